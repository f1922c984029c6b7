from __future__ import annotations

import pytest

from tests.kit.spark import pytest_runtest_makereport, spark

pytest.register_assert_rewrite("tests.pipeline.duck", "tests.pipeline.elsewhere")

__all__ = ["pytest_runtest_makereport", "spark"]


@pytest.fixture(autouse=True)
def _few_shuffles(request: pytest.FixtureRequest) -> None:
    """A job's command that a test calls sets its own number in the session that all tests share."""
    if "spark" in request.fixturenames:
        request.getfixturevalue("spark").conf.set("spark.sql.shuffle.partitions", "2")
