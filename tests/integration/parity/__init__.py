import pytest

# What these assert is told with its values, as if it stood in a test.
pytest.register_assert_rewrite("tests.integration.parity.way")
