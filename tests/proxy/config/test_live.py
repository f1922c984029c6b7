"""What a reload may change, what it may not, and what it leaves to those who watch files."""

from __future__ import annotations

from typing import Any

import msgspec

from forebay_proxy.config.kinds import ListenerAddress
from forebay_proxy.config.listeners import ListenerSettings
from forebay_proxy.config.live import LIVE, difference, with_live
from forebay_proxy.config.secret import Secret
from forebay_proxy.config.settings import HostPort, Settings
from forebay_proxy.config.values import SETTINGS

NOW = Settings(
    bootstrap_servers=(), listeners=(ListenerAddress("EXTERNAL", "127.0.0.1", 9092),), topics_include=("orders*",)
)


def changed(**to: Any) -> Settings:
    return msgspec.structs.replace(NOW, **to)


def test_all_live_settings_are_settings() -> None:
    assert SETTINGS.keys() >= LIVE


def test_nothing_changes_nothing() -> None:
    assert difference(NOW, changed()) == ({}, [], [])


def test_patterns_are_told_before_and_after() -> None:
    new = changed(topics_include=("orders*", "logs"), topics_exclude=("logs.old",))
    changes = {"topics.include": "orders* → orders*,logs", "topics.exclude": " → logs.old"}
    assert difference(NOW, new) == (changes, [], [])


def test_what_needs_other_workers_is_named() -> None:
    racks = {"external": ListenerSettings(client_rack="b")}
    new = changed(topics_exclude=("x",), buffer_memory=1 << 30, listener_name=racks)
    assert difference(NOW, new) == (
        {
            "topics.exclude": " → x",
            "buffer.memory": "33554432 → 1073741824",
            "listener.name.external.client.rack": " → b",
        },
        ["buffer.memory", "listener.name.external.client.rack"],
        [],
    )


def test_no_secret_is_told() -> None:
    told = difference(NOW, changed(sasl_jaas_config=Secret("hidden!")))
    assert "hidden!" not in str(told)


def test_others_are_named() -> None:
    new = changed(
        workers=7,
        topics_exclude=("x",),
        listener_name={"external": ListenerSettings(producers_only=True)},
    )
    assert difference(NOW, new).others == ["workers", "listener.name.external.producers.only"]


def test_a_listener_that_is_told_its_defaults_is_no_news() -> None:
    assert difference(NOW, changed(listener_name={"external": ListenerSettings()})) == ({}, [], [])


def test_what_stands_in_files_is_others_to_watch() -> None:
    written = {"ssl.keystore.key": "${file:/run/keys:key}"}
    before, after = (changed(ssl_keystore_key=Secret(key), references=written) for key in ("yesterday's", "today's"))
    assert difference(before, after) == ({}, [], [])
    elsewhere = msgspec.structs.replace(after, references={"ssl.keystore.key": "${file:/run/other:key}"})
    assert difference(before, elsewhere).workers == ["ssl.keystore.key"]


def test_what_nobody_watches_is_compared_wherever_it_stands() -> None:
    names = ("topics.exclude", "bootstrap.servers", "client.rack", "listener.name.external.ssl.principal.mapping.rules")
    written = dict.fromkeys(names, "${file:/etc/forebay.properties:it}")
    rules = {"external": ListenerSettings(ssl_principal_mapping_rules="RULE:^(.*)$/$1/L")}
    new = changed(
        topics_exclude=("x",),
        bootstrap_servers=(HostPort("b", 1),),
        client_rack="a",
        listener_name=rules,
        references=written,
    )
    found = difference(changed(references=written), new)
    assert found.changes.keys() == {*names} - {"bootstrap.servers"}
    assert found.workers == ["client.rack", "listener.name.external.ssl.principal.mapping.rules"]
    assert found.others == ["bootstrap.servers"]


def test_what_is_watched_elsewhere_is_news_even_with_the_same_value() -> None:
    before, after = (
        changed(
            ssl_keystore_key=Secret("same"),
            topics_exclude=("x",),
            references=dict.fromkeys(("ssl.keystore.key", "topics.exclude"), f"${{file:/run/{folder}:it}}"),
        )
        for folder in ("here", "there")
    )
    for now, new in [(before, after), (before, changed(ssl_keystore_key=Secret("same"), topics_exclude=("x",)))]:
        for one, other in [(now, new), (new, now)]:
            told = {"ssl.keystore.key": "[hidden] → [hidden]"}
            assert difference(one, other) == (told, ["ssl.keystore.key"], [])


def test_only_live_settings_are_taken_over() -> None:
    new = changed(topics_include=("x",), linger_ms=7, workers=3)
    told = with_live(NOW, new)
    assert (told.topics_include, told.linger_ms, told.workers) == (("x",), 7, 1)
    assert told == changed(topics_include=("x",), linger_ms=7)
