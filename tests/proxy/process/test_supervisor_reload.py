"""SIGHUP with other settings in the file: processes and workers, as they are started by the command."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.proxy.process.test_supervisor import Forebay, running

WORKERS = pytest.mark.parametrize("workers", [1, 2])
RELOADED, REFUSED = "settings reloaded", "settings not reloaded: those in force stay"


@contextmanager
def configured(path: Path, workers: int) -> Iterator[Forebay]:
    path.write_text('"topics.include" = "orders"')
    with running("--config", str(path), workers=workers) as forebay:
        yield forebay


def reload(forebay: Forebay, event: str, count: int = 1) -> dict[str, object]:
    forebay.signal(signal.SIGHUP)
    return forebay.until(event, count)[-1]


def shown(forebay: Forebay, name: str) -> object:
    """On the page."""
    rows = json.loads(forebay.get(f"api/v1/config?q={name}")[1])["rows"]
    return next(row["value"] for row in rows if row["name"] == name)


@WORKERS
def test_patterns_are_put_into_force_in_every_worker(tmp_path: Path, workers: int) -> None:
    path = tmp_path / "forebay.toml"
    with configured(path, workers) as forebay:
        assert shown(forebay, "topics.include") == ["orders"]
        path.write_text('"topics.include" = "orders,logs"')
        line = reload(forebay, RELOADED)
        assert line["changes"] == {"topics.include": "orders → orders,logs"}
        told = forebay.until("committed", workers)
        assert [each["topics"] for each in told] == [["orders", "logs"]] * workers
        metrics = forebay.metrics()
        assert (metrics["forebay_config_generation"], metrics["forebay_config_last_reload_successful"]) == (2, 1)
        assert shown(forebay, "topics.include") == ["orders", "logs"]


@WORKERS
def test_what_is_wrong_or_of_the_start_changes_nothing(tmp_path: Path, workers: int) -> None:
    path = tmp_path / "forebay.toml"
    with configured(path, workers) as forebay:
        for number, (text, why) in enumerate(
            [
                ('"topics.includ" = "x"', "did you mean topics.include"),
                ('"topics.include" = "x"\nlinger.ms = 7', "linger.ms cannot change without a restart"),
                ("not TOML", "is not valid TOML"),
                ('"topics.include" = "refused"', "refused is refused"),
            ],
            1,
        ):
            path.write_text(text)
            assert why in str(reload(forebay, REFUSED, number)["error"])
            assert forebay.metrics()["forebay_config_last_reload_successful"] == 0
        assert "committed" not in forebay.events()
        assert forebay.metrics()["forebay_config_generation"] == 1
        path.write_text('"topics.include" = "x"')
        reload(forebay, RELOADED)
        assert forebay.metrics()["forebay_config_last_reload_successful"] == 1


def test_a_worker_that_is_started_again_begins_with_what_is_in_force(tmp_path: Path) -> None:
    path = tmp_path / "forebay.toml"
    with configured(path, 2) as forebay:
        path.write_text('"topics.include" = "later"')
        reload(forebay, RELOADED)
        forebay.until("committed", 2)
        forebay.say("die")
        forebay.until("serving", 3)
        assert [line["topics"] for line in forebay.until("begins", 3)] == [["orders"], ["orders"], ["later"]]
