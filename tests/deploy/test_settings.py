"""deploy/forebay.toml and the ConfigMap: `forebay config` accepts every setting, and the defaults shown are true."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from forebay_proxy.config.values import SETTINGS, render
from tests.deploy.files import DEPLOY, assert_accepted, forebay_config, sidecar

EXAMPLE = (DEPLOY / "forebay.toml").read_text()
COMMENTED_SETTING = re.compile(r'^# (?=")', re.MULTILINE)


def test_the_example_is_accepted() -> None:
    assert_accepted("--config", str(DEPLOY / "forebay.toml"))


def test_every_setting_that_the_example_comments_out_is_accepted(tmp_path: Path) -> None:
    everything = tmp_path / "forebay.toml"
    everything.write_text(COMMENTED_SETTING.sub("", EXAMPLE))
    assert_accepted("--config", str(everything))


def test_a_setting_that_does_not_exist_is_refused(tmp_path: Path) -> None:
    wrong = tmp_path / "forebay.toml"
    wrong.write_text(EXAMPLE.replace('# "linger.ms"', '"lingre.ms"'))
    answer = forebay_config("--config", str(wrong))
    assert answer.returncode == 2
    assert "lingre.ms" in answer.stderr


def test_the_example_shows_every_setting() -> None:
    shown = tomllib.loads(COMMENTED_SETTING.sub("", EXAMPLE))
    assert set(shown) == set(SETTINGS)


COMMENTED_OUT = {
    name: value for name, value in tomllib.loads(COMMENTED_SETTING.sub("", EXAMPLE)).items() if f'# "{name}"' in EXAMPLE
}


@pytest.mark.parametrize("name", COMMENTED_OUT)
def test_what_the_example_comments_out_is_the_default(name: str) -> None:
    setting = SETTINGS[name]
    assert render(setting.parse(COMMENTED_OUT[name])) == render(setting.default)


def test_the_config_map_is_accepted(tmp_path: Path) -> None:
    ((name, text),) = sidecar("ConfigMap")["data"].items()
    mounted = tmp_path / name
    mounted.write_text(text)
    assert_accepted("--config", str(mounted))
