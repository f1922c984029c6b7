"""The checks themselves: each damage that a proxy could do to records is noticed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from tests.integration.checks import check_all
from tests.kit.clients import make_client
from tests.kit.spec import Ack, ConsumedRecord, ProduceResult, ProduceSpec

Damage = Callable[[list[ConsumedRecord]], list[ConsumedRecord]]

KEYED = ProduceSpec("t", "run", count=30, keys="keyed", key_count=3, headers=True, timestamp_base=1_000)
CONFLUENT = make_client("confluent")


def as_sent(spec: ProduceSpec) -> list[ConsumedRecord]:
    """Key k in partition k, offsets in the order of sending."""
    return [
        ConsumedRecord(
            topic=spec.topic,
            partition=seq % 3,
            offset=seq // 3,
            timestamp=1_000 + seq,
            key=spec.key(seq),
            value=spec.value(seq),
            headers=spec.record_headers(seq),
        )
        for seq in range(spec.count)
    ]


def told(spec: ProduceSpec) -> ProduceResult:
    return ProduceResult(
        [Ack(seq, record.partition, record.offset, record.timestamp) for seq, record in enumerate(as_sent(spec))]
    )


def change(**fields: object) -> Damage:
    """Record 4 with other fields."""

    def damage(records: list[ConsumedRecord]) -> list[ConsumedRecord]:
        return [replace(record, **fields) if at == 4 else record for at, record in enumerate(records)]  # type: ignore[arg-type]

    return damage


def swap(records: list[ConsumedRecord]) -> list[ConsumedRecord]:
    """Records 1 and 4, both of partition 1, in each other's place."""
    first, second = records[1], records[4]
    records[1], records[4] = replace(first, offset=second.offset), replace(second, offset=first.offset)
    return records


DAMAGES: dict[str, Damage] = {
    "lost": lambda records: records[1:],
    "twice": lambda records: [*records, replace(records[0], offset=99)],
    "key": change(key=b"other"),
    "key-gone": change(key=None),
    "value": change(value=b"other-4"),
    "another's-record": change(value=b"run-3"),
    "timestamp": change(timestamp=1_003),
    "headers-gone": change(headers=()),
    "null-header-made-empty": change(headers=(("seq", b"4"), ("empty", b""), ("none", b""), ("seq", b"run"))),
    "headers-in-another-order": change(headers=KEYED.record_headers(4)[::-1]),
    "partition": change(partition=2, offset=99),
    "offset": change(offset=99),
    "order": swap,
}


def test_undamaged_records_pass() -> None:
    check_all(KEYED, CONFLUENT, told(KEYED), as_sent(KEYED))


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES.keys())
def test_damage_is_noticed(damage: Damage) -> None:
    with pytest.raises(AssertionError):
        check_all(KEYED, CONFLUENT, told(KEYED), damage(as_sent(KEYED)))


@pytest.mark.parametrize("damage", [change(partition=2, offset=99), swap], ids=["partition", "order"])
def test_noticed_even_of_a_client_that_is_told_no_places(damage: Damage) -> None:
    """kcat's acknowledgements say nothing of where; keys and numbers do."""
    nothing_told = ProduceResult([Ack(seq) for seq in range(KEYED.count)])
    kcat = make_client("kcat")
    check_all(KEYED, kcat, nothing_told, as_sent(KEYED))
    with pytest.raises(AssertionError):
        check_all(KEYED, kcat, nothing_told, damage(as_sent(KEYED)))


def test_records_without_a_key_may_move_but_not_if_idempotent() -> None:
    moved = change(partition=2, offset=99)
    unkeyed = replace(KEYED, keys="null")
    check_all(unkeyed, CONFLUENT, told(unkeyed), moved(as_sent(unkeyed)))
    idempotent = replace(unkeyed, idempotence=True)
    with pytest.raises(AssertionError):
        check_all(idempotent, CONFLUENT, told(idempotent), moved(as_sent(idempotent)))


def test_an_acknowledgement_that_failed_or_never_came_is_noticed() -> None:
    complete = told(KEYED)
    for result in (
        replace(complete, acks=complete.acks[1:]),
        replace(complete, acks=complete.acks[1:], failures={0: "timed out"}),
    ):
        with pytest.raises(AssertionError):
            check_all(KEYED, CONFLUENT, result, as_sent(KEYED))
