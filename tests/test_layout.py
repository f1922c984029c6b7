"""Where things are: each source module has the test file of its name, in the folder of its name."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest

from tests.kit.paths import ROOT

PACKAGES: Final = {
    "codecs": "forebay_codecs",
    "policies": "forebay_policies",
    "proxy": "forebay_proxy",
    "pipeline": "forebay_pipeline",
}

DECLARES: Final = "declares, decides nothing"

WITHOUT_OWN_TEST: Final = {
    "codecs/errors": DECLARES,
    "codecs/share_responses": "codecs/test_response_filter.py",
    "policies/hold_reason": DECLARES,
    "policies/journal_rows": DECLARES,
    "proxy/errors": DECLARES,
    "proxy/brokers/broker_view": DECLARES,
    "proxy/clients/client_identity": "proxy/clients/test_client_connection.py",
    "proxy/clients/connection_context": DECLARES,
    "proxy/clients/gateway": "proxy/clients/test_client_connection.py, proxy/test_app.py",
    "proxy/commands/admin_endpoint": "proxy/commands/test_command_config.py, proxy/commands/test_top_view.py",
    "proxy/commands/clients": "proxy/commands/test_cli.py",
    "proxy/commands/text_output": "proxy/commands/test_cli.py, proxy/commands/test_config.py",
    "proxy/config/sources": "proxy/config/test_settings.py",
    "proxy/config/values": "proxy/config/test_settings.py",
    "proxy/demo/forebay": "proxy/demo/test_run.py",
    "proxy/demo/load": "proxy/demo/test_run.py",
    "proxy/demo/reader": "proxy/demo/test_run.py",
    "proxy/demo/report": "proxy/demo/test_run.py",
    "proxy/demo/wire": "proxy/demo/test_run.py",
    "proxy/journal/gauges": "proxy/journal/test_recorder.py",
    "proxy/metrics/catalog": "proxy/metrics/test_registry.py",
    "proxy/metrics/exposition": "proxy/metrics/test_registry.py",
    "proxy/metrics/traffic": "proxy/clients/test_client_connection.py, proxy/clients/test_connections.py",
    "proxy/produce/client": DECLARES,
    "proxy/produce/journal_topic": "proxy/journal/test_recorder.py",
    "proxy/produce/ledger": "proxy/journal/test_recorder.py",
    "pipeline/audit/compaction": "pipeline/audit/test_examine.py",
    "pipeline/errors": DECLARES,
    "pipeline/partitions/summary": DECLARES,
}
"""Module → the tests that cover it, or why it needs none. New modules come with a test of their own instead."""


def modules() -> list[str]:
    """As they are called above: `proxy/clients/gateway`."""
    return [
        f"{folder}/{path.relative_to(ROOT / folder / package).with_suffix('').as_posix()}"
        for folder, package in PACKAGES.items()
        for path in sorted((ROOT / folder / package).rglob("*.py"))
        if path.stem != "__init__"
    ]


def own_test(module: str) -> Path:
    folder, _, name = module.rpartition("/")
    return ROOT / "tests" / folder / f"test_{name}.py"


def test_every_module_has_its_test() -> None:
    assert [name for name in modules() if not own_test(name).is_file() and name not in WITHOUT_OWN_TEST] == []


@pytest.mark.parametrize("module", WITHOUT_OWN_TEST)
def test_exceptions_are_still_needed_and_name_tests_that_exist(module: str) -> None:
    assert module in modules()
    assert not own_test(module).is_file()
    if (named := WITHOUT_OWN_TEST[module]) != DECLARES:
        assert [name for name in named.split(", ") if not (ROOT / "tests" / name).is_file()] == []


def test_every_room_says_what_it_is_for() -> None:
    rooms = {path.parent for top in ("proxy", "pipeline") for path in (ROOT / top / PACKAGES[top]).rglob("*.py")}
    silent = [room for room in rooms if not (room / "__init__.py").read_text().startswith('"""')]
    assert silent == []
