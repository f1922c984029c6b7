"""Scenes for tests of the audit, each in a topic of its own: what happens, and what an audit should say of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import msgspec

from forebay_pipeline.audit.result import Kind
from tests.pipeline.audit.world import World
from tests.pipeline.rows import ledger_part


class Scene(NamedTuple):
    happens: Callable[[World], None]
    counts: dict[str, int]
    findings: Sequence[tuple[Kind, int, int, int]] = ()
    """Kind, partition, first and last offset."""
    unclaimed: int = 0
    later: int = 0


def fill(world: World) -> None:
    """Two clients, now and then served as users, three partitions; keyed, moved and mixed parts of all shapes: 46."""
    world.send(world.made(5, b"key"), client_id="keyed")
    moved = world.part(world.made(10), partition=2)
    world.answer([moved], partition=0, client_id="moved", principal="User:alice")
    keyed, null_keys = world.made(3, b"key"), world.made(4)
    world.answer([world.part(keyed, 1), world.part(null_keys, 0)], partition=1, client_id="moved")
    world.send([(b"", b""), (None, None), (b"k", None), (None, b"")], 1, client_id="keyed")
    world.send(world.made(20, b"key"), 3, client_id="keyed", principal="User:bob")


ALL_THERE = {"acknowledged": 46, "present": 46}


# --- planted ------------------------------------------------------------------------------------------------------


def lose(world: World) -> None:
    """Two records in the middle of a part."""
    fill(world)
    del world.log(3).records[7], world.log(3).records[8]


def cut_off(world: World) -> None:
    """The log's last four records, of a part of twenty."""
    fill(world)
    world.cut(16, 3)


def lose_a_partition(world: World) -> None:
    fill(world)
    del world.logs[world.topic][2]


def drop_topic(world: World) -> None:
    fill(world)
    del world.logs[world.topic]


def make_topic_again(world: World) -> None:
    """It has other records at the same offsets now, and fewer."""
    world.send(world.made(5), topic_id="then")
    del world.logs[world.topic]
    world.ids[world.topic] = "now"
    world.send(world.made(3), topic_id="now")


def make_topic_again_for_the_same(world: World) -> None:
    """What was sent to the former one was sent anew, but for the last two."""
    same = world.made(5, b"key")
    world.send(same, topic_id="then")
    world.send(world.made(2), topic_id="then")
    del world.logs[world.topic]
    world.ids[world.topic] = "now"
    world.send(same, topic_id="now")


def duplicate(world: World) -> None:
    """The ten moved records once more, in another partition; then something behind them."""
    fill(world)
    world.append(list(world.log(2).records.values()), 1)
    world.send(world.made(1), 1)


def alter_value(world: World) -> None:
    fill(world)
    world.log(3).records[3] = (b"key", b"another value")


def alter_key(world: World) -> None:
    fill(world)
    _, value = world.log(3).records[3]
    world.log(3).records[3] = (b"another key", value)


def null_for_empty(world: World) -> None:
    """(b"", b"") → (None, b""): the same bytes, but for the lengths."""
    fill(world)
    world.log(1).records[3] = (None, b"")


def swap(world: World) -> None:
    """Two records within a part: none is missing, and yet it is another part."""
    fill(world)
    records = world.log(3).records
    records[3], records[4] = records[4], records[3]


def turn_round(world: World) -> None:
    """What was sent first stands behind what the same connection sent later."""
    fill(world)
    early, late = world.made(2, b"key"), world.made(3, b"key")
    behind, before = world.part(late), world.part(early)
    world.answer([before])
    world.answer([behind])


def overlap(world: World) -> None:
    """A part is told to be where the last five of another one are."""
    fill(world)
    records = [world.log(3).records[offset] for offset in range(15, 20)]
    world.answer([ledger_part(records, partition=3, base_offset=15, movable=True)])


def everything(world: World) -> None:
    """In one partition. A lost record is no altered one; a copy of what was lost is a copy nevertheless."""
    parts = [world.made(4, b"key") for _ in range(5)]
    world.append([*parts[0], *parts[1], *parts[3], *parts[2], *parts[1], *parts[4]])
    for part, base in zip(parts, (0, 4, 12, 8, 20), strict=True):
        world.answer([ledger_part(part, base_offset=base)])
    del world.log().records[5]
    world.log().records[3] = (b"key", b"altered")
    world.cut(23)


PLANTED = {
    "lost": Scene(lose, {**ALL_THERE, "present": 44, "missing": 2}, [(Kind.MISSING, 3, 7, 8)]),
    "cut-off": Scene(cut_off, {**ALL_THERE, "present": 42, "missing": 4}, [(Kind.MISSING, 3, 16, 19)]),
    "no-partition": Scene(lose_a_partition, {**ALL_THERE, "present": 36, "missing": 10}, [(Kind.MISSING, 2, 0, 9)]),
    "no-topic": Scene(
        drop_topic,
        {"acknowledged": 46, "topic_gone": 46},
        [
            (Kind.TOPIC_GONE, 0, 0, 4),
            (Kind.TOPIC_GONE, 0, 5, 8),
            (Kind.TOPIC_GONE, 1, 0, 2),
            (Kind.TOPIC_GONE, 1, 3, 6),
            (Kind.TOPIC_GONE, 2, 0, 9),
            (Kind.TOPIC_GONE, 3, 0, 19),
        ],
    ),
    "made-again": Scene(
        make_topic_again, {"acknowledged": 8, "present": 3, "topic_gone": 5}, [(Kind.TOPIC_GONE, 0, 0, 4)]
    ),
    "made-again-for-the-same": Scene(
        make_topic_again_for_the_same,
        {"acknowledged": 12, "present": 5, "topic_gone": 7},
        [(Kind.TOPIC_GONE, 0, 0, 4), (Kind.TOPIC_GONE, 0, 5, 6)],
    ),
    "duplicated": Scene(
        duplicate, {"acknowledged": 47, "present": 47, "duplicated": 10}, [(Kind.DUPLICATED, 1, 7, 16)]
    ),
    "value": Scene(alter_value, {**ALL_THERE, "altered": 20}, [(Kind.ALTERED, 3, 0, 19)]),
    "key": Scene(alter_key, {**ALL_THERE, "altered": 20}, [(Kind.ALTERED, 3, 0, 19)]),
    "null-for-empty": Scene(null_for_empty, {**ALL_THERE, "altered": 4}, [(Kind.ALTERED, 1, 3, 6)]),
    "swapped": Scene(swap, {**ALL_THERE, "altered": 20}, [(Kind.ALTERED, 3, 0, 19)]),
    "turned-round": Scene(
        turn_round, {"acknowledged": 51, "present": 51, "out_of_order": 3}, [(Kind.OUT_OF_ORDER, 0, 9, 11)]
    ),
    "overlapping": Scene(
        overlap, {"acknowledged": 51, "present": 51, "overlapping": 5}, [(Kind.OVERLAPPING, 3, 15, 19)]
    ),
    "everything": Scene(
        everything,
        {"acknowledged": 20, "present": 18, "missing": 2, "altered": 4, "duplicated": 4, "out_of_order": 4},
        [
            (Kind.MISSING, 0, 5, 5),
            (Kind.MISSING, 0, 23, 23),
            (Kind.ALTERED, 0, 0, 3),
            (Kind.DUPLICATED, 0, 16, 19),
            (Kind.OUT_OF_ORDER, 0, 8, 11),
        ],
    ),
}


# --- no findings --------------------------------------------------------------------------------------------------


def retention(world: World) -> None:
    world.send(world.made(10, b"key"))
    world.send(world.made(10, b"key"))
    world.expire(13)


def compaction(world: World) -> None:
    world.compacted.add(world.topic)
    world.send(world.made(10, b"key"))
    world.send(world.made(10, b"key"))
    for offset in (1, 2, 5):
        del world.log().records[offset]


def compaction_with_keys(world: World) -> None:
    """A hundred keys, three records of each; gone are the first two of each, a tombstone, and two last ones: lost."""
    world.compacted.add(world.topic)
    for turn in range(3):
        world.answer([world.keyed([(b"k%d" % key, b"v%d" % turn) for key in range(100)])])
    world.answer([world.keyed([(b"k7", None)])])
    world.append([(b"k8", b"by somebody else, after the last claim")])
    kept = [offset for offset in range(200, 300) if offset not in (207, 208, 217, 299)]
    world.log().records = {offset: world.log().records[offset] for offset in [*kept, 301]}


def compaction_that_lost_every_key(world: World) -> None:
    world.compacted.add(world.topic)
    for turn in range(3):
        world.answer([world.keyed([(b"k%d" % key, b"v%d" % turn) for key in range(100)])])
    world.log().records.clear()


def compaction_of_a_log_that_was_cut(world: World) -> None:
    compaction(world)
    world.cut(18)


def compaction_that_altered(world: World) -> None:
    """Of a part of which some records are gone the first is looked at, if it is there: of two parts that of one."""
    world.compacted.add(world.topic)
    for begin in (0, 3):
        world.answer([world.keyed([(b"a", b"%d" % begin), (b"b", b"2"), (b"c", b"3")])])
    world.append([(b"b", b"4")])
    for offset in (0, 1, 4):
        del world.log().records[offset]
    for offset in (2, 3):
        world.log().records[offset] = (b"a", b"altered")


def late(world: World) -> None:
    """What stands behind the last claim may be in a file of the journal that is not closed yet."""
    records = world.made(5)
    world.send(records)
    world.append(records)


def id_of_a_moment_ago(world: World) -> None:
    """The proxy had not heard yet that the topic was created again: what it sent there is there."""
    world.ids[world.topic] = "now"
    world.send(world.made(5), topic_id="then")


def others(world: World) -> None:
    """Records of a producer that does not use the proxy. What stands before the first claim is not looked at."""
    world.append(world.made(7))
    world.send(world.made(5))
    world.append(world.made(3))
    world.send(world.made(5))


def untouched(world: World) -> None:
    world.append(world.made(4))
    world.answer([], records=4, error_code=None, partition=0)
    world.send(world.made(2))


def untouched_with_a_known_answer(world: World) -> None:
    """Its place can be looked at, though not its content."""
    world.answer([], records=4, error_code=0, partition=0, base_offset=world.append(world.made(4)))
    del world.log().records[1]


def success_without_a_place(world: World) -> None:
    world.answer([ledger_part(world.made(4), base_offset=-1)])


def refused(world: World) -> None:
    world.refuse(world.made(4))
    world.send(world.made(2))


def never_there(world: World) -> None:
    world.refuse(world.made(4))


def claims_of_nothing(world: World) -> None:
    """In an older ledger an untouched batch of an old format does not say how many records it has."""
    world.send(world.made(2))
    world.answer([], records=0, error_code=0, base_offset=7, partition=0)


def others_order(world: World) -> None:
    """Order is that of one connection of one process, and of records that stay where the client put them."""
    early, late = world.made(2, b"key"), world.made(3, b"key")
    behind, before = world.part(late), world.part(early)
    world.answer([before], connection=1)
    world.answer([behind], connection=2)
    first, second = world.made(2), world.made(2)
    behind, before = world.part(second), world.part(first)
    world.answer([before], connection=4)
    world.answer([behind], connection=4)


def other_process(world: World) -> None:
    """Connections are numbered anew in each process."""
    early, late = world.made(2, b"key"), world.made(3, b"key")
    behind, before = world.part(late), world.part(early)
    world.answer([before], process="here-1")
    world.answer([behind], process="there-2")


NO_FINDING = {
    "all-well": Scene(fill, ALL_THERE),
    "retention": Scene(retention, {"acknowledged": 20, "present": 7, "expired": 13}),
    "compaction": Scene(compaction, {"acknowledged": 20, "present": 17, "not_judged": 3}),
    "late": Scene(late, {"acknowledged": 5, "present": 5}, later=5),
    "id-of-a-moment-ago": Scene(id_of_a_moment_ago, {"acknowledged": 5, "present": 5}),
    "others": Scene(others, {"acknowledged": 10, "present": 10}, unclaimed=3),
    "untouched": Scene(untouched, {"acknowledged": 2, "present": 2, "not_followed": 4}),
    "success-without-a-place": Scene(success_without_a_place, {"not_followed": 4}),
    "refused": Scene(refused, {"acknowledged": 2, "present": 2, "unacknowledged": 4}),
    "never-there": Scene(never_there, {"unacknowledged": 4}),
    "claims-of-nothing": Scene(claims_of_nothing, {"acknowledged": 2, "present": 2}),
    "others-order": Scene(others_order, {"acknowledged": 9, "present": 9}),
    "other-process": Scene(other_process, {"acknowledged": 5, "present": 5}),
}
NEARLY = {
    "compaction-with-keys": Scene(
        compaction_with_keys,
        {"acknowledged": 301, "present": 96, "compacted": 203, "missing": 2},
        [(Kind.MISSING, 0, 217, 299)],
        later=1,
    ),
    "compaction-that-lost-every-key": Scene(
        compaction_that_lost_every_key,
        {"acknowledged": 300, "compacted": 200, "missing": 100},
        [(Kind.MISSING, 0, 200, 299)],
    ),
    "compaction-of-a-log-that-was-cut": Scene(
        compaction_of_a_log_that_was_cut,
        {"acknowledged": 20, "present": 15, "not_judged": 3, "missing": 2},
        [(Kind.MISSING, 0, 18, 19)],
    ),
    "compaction-that-altered": Scene(
        compaction_that_altered,
        {"acknowledged": 6, "present": 3, "compacted": 3, "altered": 3},
        [(Kind.ALTERED, 0, 3, 5)],
        later=1,
    ),
    "untouched-with-a-known-answer": Scene(
        untouched_with_a_known_answer, {"acknowledged": 4, "present": 3, "missing": 1}, [(Kind.MISSING, 0, 1, 1)]
    ),
}


# --- copies -------------------------------------------------------------------------------------------------------


def before_the_first_claim(world: World) -> None:
    """It is not looked at: nothing says that it is of this time."""
    records = world.made(5)
    world.time_out(records)
    world.send(records)


def sent_again(world: World) -> None:
    world.send(world.made(1))
    records = world.made(5)
    world.time_out(records)
    world.send(records)


def copied_by_nobody(world: World) -> None:
    records = world.made(5)
    world.send(records)
    world.append(records)
    world.send(world.made(1))


def there_after_all(world: World) -> None:
    """The client was told that it may not be there, and it is, once."""
    world.send(world.made(1))
    records = world.made(5)
    world.time_out(records)
    world.send(world.made(1))


def in_other_batches(world: World) -> None:
    """As librdkafka does: what is tried again is batched with what has come meanwhile."""
    world.send(world.made(1))
    records = world.made(5)
    world.time_out(records)
    world.send(records[:2])
    world.send([*records[2:], *world.made(3)])


def acknowledged_twice(world: World) -> None:
    """The client sent the same content twice: so it wanted it."""
    records = world.made(5)
    world.send(records)
    world.send(records, 1)


def same_content_elsewhere(world: World) -> None:
    """Of a part in topic "others", which somebody writes to this one."""
    world.send(world.made(1))
    world.append(list(world.logs["others"][0].records.values())[7:12])
    world.send(world.made(1))


def same_crc(world: World) -> None:
    """Another producer's record, whose CRC-32 happens to be that of a part of one record."""
    world.send([(None, b"a02552f76dbdf5fd")])
    world.append([(None, b"670009b22c087272")])
    world.send(world.made(1))


def same_crc_in_an_older_ledger(world: World) -> None:
    """It has nothing but the CRC-32 to tell them apart."""
    world.answer([msgspec.structs.replace(world.part([(None, b"a02552f76dbdf5fd")]), first_xxh64=None)])
    world.append([(None, b"670009b22c087272")])
    world.send(world.made(1))


def twice_over(world: World) -> None:
    """Copies one after the other, of parts that begin with the same record, the longer one first."""
    records = world.made(5)
    world.send(records)
    world.send(records[:2])
    world.append([*records, *records[:2], *records[:3]])
    world.send(world.made(1))


def not_the_longest(world: World) -> None:
    """As librdkafka may: a and b c were answered with errors and are there, then a b and c d were sent."""
    world.send(world.made(1))
    a, b, c, d = world.made(4)
    world.append([a, b, c])
    world.refuse([a])
    world.refuse([b, c])
    world.send([a, b])
    world.send([c, d])


COPIES = {
    "before-the-first-claim": Scene(before_the_first_claim, {"acknowledged": 5, "present": 5, "unacknowledged": 5}),
    "sent-again": Scene(
        sent_again,
        {"acknowledged": 6, "present": 6, "unacknowledged": 5, "duplicated": 5},
        [(Kind.DUPLICATED, 0, 1, 5)],
    ),
    "copied-by-nobody": Scene(
        copied_by_nobody, {"acknowledged": 6, "present": 6, "duplicated": 5}, [(Kind.DUPLICATED, 0, 5, 9)]
    ),
    "there-after-all": Scene(there_after_all, {"acknowledged": 2, "present": 2, "unacknowledged": 5, "unconfirmed": 5}),
    "in-other-batches": Scene(
        in_other_batches,
        {"acknowledged": 9, "present": 9, "unacknowledged": 5, "duplicated": 5},
        [(Kind.DUPLICATED, 0, 1, 5)],
    ),
    "not-the-longest": Scene(
        not_the_longest,
        {"acknowledged": 5, "present": 5, "unacknowledged": 3, "duplicated": 3},
        [(Kind.DUPLICATED, 0, 1, 1), (Kind.DUPLICATED, 0, 2, 3)],
    ),
    "acknowledged-twice": Scene(acknowledged_twice, {"acknowledged": 10, "present": 10}),
    "same-content-elsewhere": Scene(same_content_elsewhere, {"acknowledged": 2, "present": 2}, unclaimed=5),
    "same-crc": Scene(same_crc, {"acknowledged": 2, "present": 2}, unclaimed=1),
    "same-crc-in-an-older-ledger": Scene(
        same_crc_in_an_older_ledger,
        {"acknowledged": 2, "present": 2, "duplicated": 1},
        [(Kind.DUPLICATED, 0, 1, 1)],
    ),
    "twice-over": Scene(
        twice_over,
        {"acknowledged": 8, "present": 8, "duplicated": 9},
        [(Kind.DUPLICATED, 0, 7, 11), (Kind.DUPLICATED, 0, 12, 13), (Kind.DUPLICATED, 0, 14, 15)],
        unclaimed=1,
    ),
}

SCENES = {**PLANTED, **NO_FINDING, **NEARLY, **COPIES}
