"""The reference: it has every setting once, in their order, and examples that are allowed."""

from __future__ import annotations

import re
from typing import get_args

import pytest

from forebay_proxy.config.reference import LISTENER_REFERENCES, REFERENCES, TOPICS, Reference
from forebay_proxy.config.values import LISTENER_SETTINGS, SETTINGS, render


def test_every_setting_stands_under_one_topic_in_the_order_of_settings() -> None:
    assert [name for settings in TOPICS.values() for name in settings] == list(SETTINGS)


@pytest.mark.parametrize("name", SETTINGS)
def test_it_explains_in_sentences(name: str) -> None:
    reference = REFERENCES[name]
    for text in (SETTINGS[name].description, reference.details):
        assert text[-1] == "."
        assert text == " ".join(text.split())
    assert reference.kafka


@pytest.mark.parametrize("name", SETTINGS)
def test_an_example_is_allowed_and_is_there_where_the_default_shows_nothing(name: str) -> None:
    setting, example = SETTINGS[name], REFERENCES[name].example
    if example:
        assert setting.parse(example) != setting.default
    else:
        assert not setting.required
        assert render(setting.default)


@pytest.mark.parametrize("name", ["client.authentication", "upstream.identity"])
def test_each_way_to_log_in_is_explained(name: str) -> None:
    for way in get_args(LISTENER_SETTINGS[name].kind):
        assert re.search(rf"\b{way}[:,] ", LISTENER_REFERENCES[name].details), way


@pytest.mark.parametrize("reference", [*REFERENCES.values(), *LISTENER_REFERENCES.values()])
def test_none_speaks_of_what_stands_before_it(reference: Reference) -> None:
    """`forebay config NAME` shows it alone."""
    assert not re.search(r"\b(mechanisms|settings?) above\b", reference.details)


def test_settings_of_kafka_are_told_from_our_own() -> None:
    assert REFERENCES["batch.size"].kafka.startswith("producer setting")
    assert REFERENCES["max.connections"].kafka.startswith("broker setting")
    assert REFERENCES["metadata.soft.age.ms"].kafka == "none"
