"""Clients that pick partitions themselves are found; those that leave it to a partitioner are not."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count
from random import Random

import msgspec
import pytest

from forebay_policies.eligibility import Eligibility, Reason
from forebay_policies.own_choices import (
    CHANCE,
    CHOOSE_PARTITIONS_THEMSELVES,
    MAX_TOPICS,
    OLD_TURN_S,
    TURN_BYTES,
    TURN_S,
    Choices,
    TopicChoices,
    add_all,
    note,
    picked,
)

KIB = 1024
Places = Iterator[int]


def sent(places: Places, partitions: int, *, batches: int, size: int, every_s: float, old: bool = False) -> Choices:
    """What is known of a client that sends `batches` of `size` bytes, one in `every_s` seconds, to `places`."""
    choices: Choices = {}
    for number in range(batches):
        note(choices, "orders", partitions, next(places), size, number * every_s, old=old)
    return choices


def always(*partitions: int) -> Places:
    return (partitions[number % len(partitions)] for number in count())


def round_robin(partitions: int) -> Places:
    return (number % partitions for number in count())


def at_random(partitions: int, rng: Random) -> Places:
    while True:
        yield rng.randrange(partitions)


def sticky(partitions: int, rng: Random, batches: int) -> Places:
    """The same for so many batches, then another one at random."""
    while True:
        partition = rng.randrange(partitions)
        for _ in range(batches):
            yield partition


@pytest.mark.parametrize(("few", "partitions"), [((0,), 2), ((1,), 3), ((3, 7), 12), ((0, 400, 999), 1000)])
def test_who_keeps_to_a_few_partitions_seems_to_pick_them(few: tuple[int, ...], partitions: int) -> None:
    choices = sent(always(*few), partitions, batches=2000, size=2 * KIB, every_s=1)
    assert picked(choices) == ["orders"]
    assert len(choices["orders"].places) == len(few)


@pytest.mark.parametrize(("partitions", "few", "turns"), [(12, 2, 11), (3, 1, 14), (2, 1, 21), (12, 1, 7)])
def test_it_takes_as_many_turns_as_chance_would_not_explain(partitions: int, few: int, turns: int) -> None:
    known = TopicChoices(partitions, turns - 1, list(range(few)))
    assert not known.picked
    known.noted(0, TURN_BYTES, TURN_S, old=False)
    assert known.picked


PARTITIONERS: dict[str, Callable[[int, Random], Places]] = {
    "each in turn": lambda partitions, rng: round_robin(partitions),
    "at random": at_random,
    "KIP-480, a batch each": lambda partitions, rng: sticky(partitions, rng, 1),
    "KIP-794, 16 KB in batches of 1 KB": lambda partitions, rng: sticky(partitions, rng, 16),
}


@pytest.mark.parametrize("partitioner", PARTITIONERS.values(), ids=PARTITIONERS)
@pytest.mark.parametrize("partitions", [2, 3, 12, 1000])
@pytest.mark.parametrize("every_s", [0.001, 1.0, 100.0])
def test_who_leaves_it_to_a_partitioner_does_not(
    partitioner: Callable[[int, Random], Places], partitions: int, every_s: float
) -> None:
    for seed in range(5):
        places = partitioner(partitions, Random(seed))
        choices: Choices = {}
        for number in range(1000):
            note(choices, "orders", partitions, next(places), KIB, number * every_s, old=False)
            if number % 50 == 0:
                assert picked(choices) == []


@pytest.mark.parametrize("every_s", [1.0, 10.0])
def test_the_oldest_producers_stay_for_ten_minutes_and_do_not_pick(every_s: float) -> None:
    for seed in range(2):
        places = sticky(3, Random(seed), round(600 / every_s))
        choices = sent(places, 3, batches=round(6 * 3600 / every_s), size=40 * KIB, every_s=every_s, old=True)
        assert picked(choices) == []


def test_two_producers_that_cannot_be_told_apart_do_not_pick() -> None:
    """Both stay with their partition for 16 KB, so that their batches alternate."""
    for seed in range(5):
        each = [sticky(12, Random(f"{seed} {name}"), 16) for name in "ab"]
        places = (next(each[number % 2]) for number in count())
        assert picked(sent(places, 12, batches=4000, size=KIB, every_s=0.5)) == []


def test_little_says_nothing_however_long_it_takes() -> None:
    """A record an hour: KIP-794's partitioner would stay where it is for weeks."""
    assert picked(sent(always(1), 12, batches=100, size=100, every_s=3600)) == []


def test_much_at_once_says_nothing() -> None:
    assert picked(sent(always(1), 12, batches=2000, size=TURN_BYTES, every_s=TURN_S / 4000)) == []
    slow = sent(always(1), 12, batches=100, size=TURN_BYTES, every_s=OLD_TURN_S / 20, old=True)
    assert picked(slow) == []


def test_more_partitions_than_before_are_another_topic() -> None:
    choices = sent(always(1), 3, batches=2000, size=2 * KIB, every_s=1)
    note(choices, "orders", 6, 1, KIB, 2000, old=False)
    assert picked(choices) == []


@pytest.mark.parametrize("partition", [-1, 3, 1 << 30])
def test_a_partition_that_there_is_not_says_nothing(partition: int) -> None:
    choices: Choices = {}
    note(choices, "orders", 3, partition, KIB, 0.0, old=False)
    assert choices == {}


def test_of_one_client_a_bounded_number_of_topics_is_known_and_a_bounded_number_of_places() -> None:
    choices: Choices = {}
    for topic in range(3 * MAX_TOPICS):
        for partition in range(0, 10_000, 70):
            note(choices, str(topic), 20_000, partition, KIB, 0.0, old=False)
    assert len(choices) == MAX_TOPICS
    assert max(len(each.places) for each in choices.values()) == 128


class TestSeveralProcesses:
    """A client's connections to the brokers may be those of different workers, each of which sees a part."""

    def test_each_sees_few_partitions_and_together_they_do_not(self) -> None:
        one = sent(always(0, 1), 4, batches=2000, size=2 * KIB, every_s=1)
        other = sent(always(2, 3), 4, batches=2000, size=2 * KIB, every_s=1)
        assert picked(one) == picked(other) == ["orders"]
        together: Choices = {}
        add_all(together, one)
        add_all(together, other)
        assert picked(together) == []
        assert picked(one) == ["orders"], "what was added is left alone"

    def test_their_turns_add_up(self) -> None:
        half = TopicChoices(12, 6, [1, 2])
        together: Choices = {}
        add_all(together, {"orders": half})
        assert picked(together) == []
        add_all(together, {"orders": half})
        assert picked(together) == ["orders"]

    def test_who_is_known_to_use_many_in_one_uses_many(self) -> None:
        together: Choices = {}
        add_all(together, {"orders": TopicChoices(12, 100, [1])})
        add_all(together, {"orders": TopicChoices(12, 0, [], wide=True)})
        assert picked(together) == []

    def test_it_travels(self) -> None:
        choices = {"orders": TopicChoices(12, 6, [1, 2], began=3.5, size=7)}
        assert msgspec.msgpack.decode(msgspec.msgpack.encode(choices), type=Choices) == choices


@pytest.mark.parametrize(
    ("client_id", "excluded"),
    [
        ("connector-producer-mirror-source-0", True),
        ("app-6f0c-StreamThread-1-producer", True),
        ("near->far|0|offset-syncs-source-producer", True),
        ("near->far|12|offset-syncs-target-producer", True),
        ("MirrorMaker-1", True),
        ("my-mirrormaker", True),
        ("my-mirror-maker", True),
        ("Mirror-Maker", True),
        ("till-7", False),
        ("producer-1", False),
        ("mirror", False),
    ],
)
def test_software_that_chooses_partitions_itself_is_known_by_its_id(client_id: str, excluded: bool) -> None:
    left_alone = Eligibility(("*",), (), ("*",), CHOOSE_PARTITIONS_THEMSELVES)
    assert left_alone.client(client_id) is (Reason.CLIENT_EXCLUDED if excluded else None)


def test_chance_is_one_in_a_million() -> None:
    assert CHANCE == 1e-6
