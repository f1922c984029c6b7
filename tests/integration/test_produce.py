"""Every client, codec and mode, with and without keys: what was produced is in Kafka, once, unchanged, in its place."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from tests.integration.checks import produce_and_check
from tests.integration.route import Route
from tests.kit.clients import CLIENT_NAMES, Client, make_client
from tests.kit.matrix import Features, pairs, part_of, values
from tests.kit.spec import CODECS, Keys, ProduceSpec

pytestmark = pytest.mark.integration

KEYS: tuple[Keys, ...] = ("keyed", "null", "mixed")
# 2020-09-13: far from now, so that a timestamp made up on the way shows.
LONG_AGO = 1_600_000_000_000


def codec_specs() -> Iterator[ProduceSpec]:
    for codec in CODECS:
        for keys in KEYS:
            yield ProduceSpec(
                "", f"{codec}-{keys}", keys=keys, compression=codec, headers=True, timestamp_base=LONG_AGO
            )


def mode_specs() -> Iterator[ProduceSpec]:
    for keys in KEYS:
        yield ProduceSpec("", f"acks-0-{keys}", keys=keys, acks="0")
        yield ProduceSpec("", f"acks-1-{keys}", keys=keys, acks="1", linger_ms=0)
        yield ProduceSpec("", f"idempotent-{keys}", keys=keys, idempotence=True, compression="lz4")
        yield ProduceSpec("", f"transactional-{keys}", keys=keys, transactional_id="", compression="gzip")
    yield ProduceSpec("", "one-partition", keys="keyed", partition=1)
    yield ProduceSpec("", "idempotent-one-partition", keys="null", partition=2, idempotence=True)
    yield ProduceSpec("", "many", count=3_000, keys="mixed", size=200, linger_ms=0)
    yield ProduceSpec("", "large", count=30, keys="mixed", size=60_000)


def able(name: str, spec: ProduceSpec) -> ProduceSpec | None:
    """The spec, or what of it the client is able to do: fewer headers or its own clock, but not another codec."""
    client = make_client(name)
    variants = [spec, replace(spec, null_header=False), replace(spec, headers=False, timestamp_base=None)]
    return next(filter(client.can, variants), None)


def cases(names: tuple[str, ...], specs: Iterator[ProduceSpec], features: Features) -> list[object]:
    wanted = [(name, able(name, spec)) for spec in specs for name in names]
    wanted.sort(key=lambda case: names.index(case[0]))
    possible = [(name, spec) for name, spec in wanted if spec is not None]
    return part_of(possible, features, key=what_counts, name=lambda case: f"{case[0]}-{case[1].name}")


def what_counts(case: tuple[str, ProduceSpec]) -> tuple[str, str, str]:
    """(client, codec or mode, keys)"""
    name, spec = case
    return name, spec.name.removesuffix(f"-{spec.keys}"), spec.keys


def run(route: Route, client: Client, spec: ProduceSpec) -> None:
    spec = replace(spec, topic=route.topic_for(client.name))
    if spec.transactional_id is not None:
        spec = replace(spec, transactional_id=route.new_name("txn"))
    produce_and_check(route, client, spec)


@pytest.mark.parametrize(("name", "spec"), cases(CLIENT_NAMES, codec_specs(), pairs))
def test_every_codec(route: Route, get_client: Callable[[str], Client], name: str, spec: ProduceSpec) -> None:
    run(route, get_client(name), spec)


@pytest.mark.parametrize(("name", "spec"), cases(CLIENT_NAMES, mode_specs(), pairs))
def test_every_mode(route: Route, get_client: Callable[[str], Client], name: str, spec: ProduceSpec) -> None:
    run(route, get_client(name), spec)


OLDER_KAFKA_CLIENTS = ("java-1.1.1", "java-2.8.2", "java-4.3.1", "confluent", "aiokafka")


def older_kafka_specs() -> Iterator[ProduceSpec]:
    yield from (spec for spec in codec_specs() if spec.keys == "mixed")
    yield from (spec for spec in mode_specs() if spec.keys == "mixed")


@pytest.mark.parametrize(("name", "spec"), cases(OLDER_KAFKA_CLIENTS, older_kafka_specs(), values))
def test_on_kafka_3_9(
    open_route: Callable[[str], Route], get_client: Callable[[str], Client], name: str, spec: ProduceSpec
) -> None:
    run(open_route("3.9.2"), get_client(name), spec)
