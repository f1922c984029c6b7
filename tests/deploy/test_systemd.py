"""The systemd unit, as systemd itself reads it."""

from __future__ import annotations

import configparser
import re
import subprocess
import tomllib
from pathlib import Path

from tests.deploy.files import DEPLOY
from tests.kit.paths import ROOT

UNIT = DEPLOY / "systemd" / "forebay.service"
INSTALLED = "/opt/forebay/bin/forebay"

MAX_EXPOSED = 20
"""Tenths of systemd's exposure level, from 0 to 100; what it calls OK ends at 45. The unit has 12."""


def verify(unit: str, folder: Path) -> str:
    """What `systemd-analyze verify` has to say. It asks for the program, which is not installed here."""
    path = folder / UNIT.name
    path.write_text(unit.replace(INSTALLED, "/bin/true"))
    answer = subprocess.run(["systemd-analyze", "verify", path], capture_output=True, text=True, timeout=60)
    return answer.stdout + answer.stderr


def test_systemd_understands_every_line(tmp_path: Path) -> None:
    assert verify(UNIT.read_text(), tmp_path) == ""


def test_a_misspelt_line_is_found_out(tmp_path: Path) -> None:
    complaint = verify(UNIT.read_text().replace("LimitNOFILE", "LimitNoFiles"), tmp_path)
    assert "LimitNoFiles" in complaint


def test_it_is_hardened() -> None:
    command = ["systemd-analyze", "security", "--offline=true", f"--threshold={MAX_EXPOSED}", str(UNIT)]
    answer = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert answer.returncode == 0, answer.stdout


def test_nothing_keeps_it_from_being_started_again() -> None:
    """tests/deploy/test_systemd_restart.py has a real systemd do it."""
    unit = configparser.ConfigParser(strict=False)
    unit.optionxform = str  # type: ignore[assignment,method-assign]
    unit.read(UNIT)
    assert unit["Unit"]["StartLimitIntervalSec"] == "0"


def test_it_waits_for_longer_than_the_drain() -> None:
    unit = configparser.ConfigParser(strict=False)
    unit.optionxform = str  # type: ignore[assignment,method-assign]
    unit.read(UNIT)
    settings = tomllib.loads((DEPLOY / "forebay.toml").read_text())
    assert unit.getint("Service", "TimeoutStopSec") * 1000 > settings["shutdown.timeout.ms"]
    assert unit["Service"]["KillSignal"] == "SIGTERM"
    assert unit["Service"]["ExecStart"] == f"{INSTALLED} run --config /etc/forebay/forebay.toml"


def test_what_is_said_of_it_works_with_older_versions_too() -> None:
    """Before 252 --kill-whom was called --kill-who, which later ones take, too (test_systemd_restart.py)."""
    for told in (UNIT, ROOT / "docs" / "operating.md"):
        assert re.findall(r"systemctl kill (--\S+)=", told.read_text()) == ["--kill-who"]
