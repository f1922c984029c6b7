"""The JSON Schema of the settings' file, as jsonschema reads it, beside what Forebay itself takes."""

from __future__ import annotations

import json
import tomllib
from typing import Any

import jsonschema
import pytest
from click.testing import CliRunner

from forebay_proxy.commands import cli
from forebay_proxy.config.values import SETTINGS, Setting
from tests.kit.paths import ROOT

SCHEMA = json.loads(CliRunner().invoke(cli.main, ("config", "--format", "schema")).stdout)
EXAMPLE = (ROOT / "deploy" / "forebay.toml").read_text()
NUMBERS = [setting for setting in SETTINGS.values() if setting.bounds]


def takes(**values: Any) -> bool:
    return not list(jsonschema.Draft7Validator(SCHEMA).iter_errors(values))


def forebay_takes(setting: Setting, value: object) -> bool:
    try:
        setting.parse(value)
    except ValueError:
        return False
    return True


def test_it_is_a_schema() -> None:
    jsonschema.Draft7Validator.check_schema(SCHEMA)


def test_the_example_is_valid_with_all_that_it_comments_out() -> None:
    assert takes(**tomllib.loads(EXAMPLE))
    everything = tomllib.loads(EXAMPLE.replace('# "', '"'))
    assert set(everything) == set(SETTINGS)
    assert takes(**everything)


@pytest.mark.parametrize("setting", NUMBERS, ids=lambda setting: setting.name)
def test_numbers_have_the_same_bounds(setting: Setting) -> None:
    assert setting.bounds is not None
    least, greatest = setting.bounds
    for value in (least - 1, least, greatest, greatest + 1):
        assert takes(**{setting.name: value}) == forebay_takes(setting, value)


@pytest.mark.parametrize(
    "name",
    [name for name, known in SCHEMA["properties"].items() if any("enum" in each for each in known["anyOf"])],
)
def test_words_are_the_same(name: str) -> None:
    (words,) = (each["enum"] for each in SCHEMA["properties"][name]["anyOf"] if "enum" in each)
    assert all(forebay_takes(SETTINGS[name], word) for word in words)
    assert not takes(**{name: "no such word"})


@pytest.mark.parametrize(
    ("values", "valid"),
    [
        ({"lingre.ms": 5}, False),
        ({"linger.ms": "soon"}, False),
        ({"linger.ms": "${env:LINGER}"}, True),
        ({"topics.include": ["a*", "b"]}, True),
        ({"topics.include": [1]}, False),
        ({"partitioner": "one-of-ours"}, True),
        ({"journal.ledger": "yes"}, False),
        ({"otlp.endpoint": "http://collector:4318/v1/metrics"}, True),
        ({"otlp.endpoint": "http://me:hunter2@collector:4318/v1/metrics"}, False),
        ({"node.ports": {"1001": 9093}}, True),
        ({"node.ports": {"1001": 99_093}}, False),
        ({"enable.adaptive.partitioning": False}, True),
        ({"listener.name.ssl.ssl.keystore.location": "/etc/key.pem"}, True),
        ({"listener.name.ssl.ssl.keystore.place": "/etc/key.pem"}, False),
    ],
)
def test_a_file_that_is_right_or_wrong(values: dict[str, Any], valid: bool) -> None:
    assert takes(**values) == valid
