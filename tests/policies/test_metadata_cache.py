"""The metadata cache: each rule at its edges, with a clock of the test's own."""

from __future__ import annotations

from random import Random

import pytest

from forebay_codecs.error_codes import (
    LEADER_NOT_AVAILABLE,
    NONE,
    TOPIC_AUTHORIZATION_FAILED,
    UNKNOWN_TOPIC_OR_PARTITION,
)
from forebay_codecs.metadata import NO_TOPIC_ID, Broker, Metadata, Partition, Topic
from forebay_codecs.metadata_response import encode_topic
from forebay_codecs.one_broker import of_topic
from forebay_policies.described_topic import NO_IDS
from forebay_policies.metadata_cache import ERROR_AGE_S, JITTER, LOWER_S, MAX_ERRORS, NEVER, Ages, MetadataCache

SOFT, MAX, IDLE = 60.0, 300.0, 200.0
AGES = Ages(SOFT, MAX, IDLE)
FIRST_ID, SECOND_ID = bytes(15) + b"\1", bytes(15) + b"\2"


def topic(name: str, *leaders: int, epoch: int = 0, topic_id: bytes = NO_TOPIC_ID, error: int = NONE) -> Topic:
    partitions = tuple(
        Partition(NONE, index, leader, epoch, (leader,), (leader,)) for index, leader in enumerate(leaders)
    )
    return Topic(error, name, topic_id, is_internal=False, partitions=partitions)


def told(*topics: Topic, nodes: tuple[int, ...] = (0, 1), controller: int = 0) -> Metadata:
    return Metadata(0, {node: Broker(f"{node}.example", 9092, None) for node in nodes}, "c", controller, topics, NONE)


def cache(max_topics: int = 1000, group: int = 100, seed: int = 1, ages: Ages = AGES) -> MetadataCache:
    return MetadataCache(ages, max_topics, group, Random(seed))


def holding(*topics: Topic, at: float = 0.0, max_topics: int = 1000, group: int = 100) -> MetadataCache:
    filled = cache(max_topics, group)
    filled.store(told(*topics), [each.name or "" for each in topics], at)
    return filled


def served(of: MetadataCache, name: str, now: float) -> bool:
    return of.find(name, now) is not None


# Ages


def test_a_topic_is_served_until_its_max_age_which_counts_from_the_question() -> None:
    known = holding(topic("a", 0), at=10.0)
    assert served(known, "a", 10.0 + MAX - 0.001)
    assert not served(known, "a", 10.0 + MAX)


def test_what_nobody_asked_for_is_not_there() -> None:
    assert cache().find("a", 0.0) is None
    assert cache().cluster(0.0) is None
    assert cache().everything(0.0) is None


def test_an_unknown_topic_is_kept_briefly() -> None:
    known = cache()
    known.store(told(), ["nowhere"], 5.0)
    found = known.find("nowhere", 5.0 + ERROR_AGE_S - 0.001)
    assert found is not None
    assert found.error
    assert found.topic.error_code == UNKNOWN_TOPIC_OR_PARTITION
    assert not served(known, "nowhere", 5.0 + ERROR_AGE_S)
    assert len(known) == 0


def test_a_topic_that_turns_up_is_no_error_any_more_and_one_that_goes_is_one() -> None:
    known = cache()
    known.store(told(), ["a"], 0.0)
    known.store(told(topic("a", 1)), ["a"], 0.1)
    assert not known.find("a", 0.2).error  # type: ignore[union-attr]
    known.store(told(), ["a"], 0.3)
    assert known.find("a", 0.4).error  # type: ignore[union-attr]
    assert len(known) == 0


def test_a_topic_that_may_not_be_seen_any_more_is_told_as_that() -> None:
    known = holding(topic("a", 1))
    known.store(told(topic("a", error=TOPIC_AUTHORIZATION_FAILED)), ["a"], 50.0)
    found = known.find("a", 50.1)
    assert found is not None
    assert found.topic.error_code == TOPIC_AUTHORIZATION_FAILED
    assert not served(known, "a", 50.0 + ERROR_AGE_S)


def test_that_a_topic_may_not_be_created_says_nothing_of_it() -> None:
    known = holding(topic("a", 1))
    refused = told(topic("a", error=TOPIC_AUTHORIZATION_FAILED), topic("b", error=TOPIC_AUTHORIZATION_FAILED))
    assert known.store(refused, ["a", "b"], 5.0, creates=True) == {}
    assert known.find("a", 5.1).updated_at == 0.0  # type: ignore[union-attr]
    assert known.find("b", 5.1) is None


def test_another_error_leaves_what_is_known_to_age_on() -> None:
    known = holding(topic("a", 1))
    known.store(told(topic("a", error=LEADER_NOT_AVAILABLE)), ["a"], 50.0)
    assert known.find("a", 60.0).topic.partitions[0].leader_id == 1  # type: ignore[union-attr]
    assert not served(known, "a", MAX)


def test_a_topic_without_a_leader_is_kept_as_briefly_as_an_error() -> None:
    known = holding(topic("a", 0, -1), topic("b", 0), at=5.0)
    for now, sound in ((5.0 + ERROR_AGE_S - 0.001, True), (5.0 + ERROR_AGE_S, False)):
        assert served(known, "a", now) is sound
        assert [*known.find_sound(["a", "b"], now, NEVER)[0]] == ["b"]
    known.new_leaders("a", {1: (0, 1)})
    assert served(known, "a", 10.0), "a broker has named it"
    assert len(known.find_sound(["a", "b"], 10.0, NEVER)[0]) == 2


def test_a_topic_without_a_leader_is_bad_news() -> None:
    known = holding(topic("a", 0, -1), topic("b", 0))
    for names, bad in ((["a", "b"], True), (["b"], False)):
        found = [known.find(name, 0.5) for name in names]
        assert known.serve([each for each in found if each], 9, 0.5, NO_IDS).bad is bad


def test_brokers_are_served_until_their_max_age() -> None:
    known = holding(at=1.0)
    assert known.cluster(MAX).there.keys() == {0, 1}  # type: ignore[union-attr]
    assert known.cluster(1.0 + MAX) is None


def test_a_client_that_asks_again_is_not_told_the_same_again() -> None:
    known = holding(topic("a", 0), at=10.0)
    assert known.find("a", 12.0, fresh_since=9.0) is not None
    assert known.find("a", 12.0, fresh_since=10.0) is None
    assert known.cluster(12.0, fresh_since=11.0) is None
    known.store(told(topic("a", 0)), ["a"], 11.5)
    assert known.find("a", 12.0, fresh_since=11.0) is not None


# Refreshing in the background


def test_a_topic_is_due_past_its_soft_age_give_or_take_the_jitter() -> None:
    due_at = []
    for seed in range(200):
        known = cache(seed=seed)
        known.store(told(topic("a", 0)), ["a"], 0.0)
        due_at.append(known.next_due(0.0))
        assert known.due(due_at[-1] - 0.001) == []
        assert known.due(due_at[-1]) == ["a"]
    assert min(due_at) >= SOFT * (1 - JITTER)
    assert max(due_at) <= SOFT
    assert max(due_at) - min(due_at) > 0.9 * SOFT * JITTER


def test_the_most_used_are_due_first_in_small_groups() -> None:
    names = [f"t{number}" for number in range(10)]
    known = holding(*(topic(name, 0) for name in names), group=3)
    for uses, name in enumerate(names):
        for _ in range(uses):
            known.use(known.find(name, 1.0), 1.0)  # type: ignore[arg-type]
    assert known.due(SOFT) == ["t9", "t8", "t7"]
    known.store(told(*(topic(name, 0) for name in names[7:])), names[7:], SOFT)
    assert known.due(SOFT) == ["t6", "t5", "t4"]


def test_uses_count_since_the_last_refresh() -> None:
    known = holding(topic("a", 0), topic("b", 0), group=1)
    for _ in range(5):
        known.use(known.find("a", 1.0), 1.0)  # type: ignore[arg-type]
    known.store(told(topic("a", 0), topic("b", 0)), ["a", "b"], 50.0)
    known.use(known.find("b", 51.0), 51.0)  # type: ignore[arg-type]
    assert known.due(50.0 + SOFT) == ["b"]


def test_what_is_under_way_or_failed_is_postponed_and_served_meanwhile() -> None:
    known = holding(topic("a", 0))
    known.postpone(["a", "nowhere"], SOFT + 5)
    assert known.due(SOFT + 4.9) == []
    assert known.due(SOFT + 5) == ["a"]
    assert served(known, "a", SOFT + 4.9)


def test_an_unused_topic_is_forgotten_after_the_idle_time() -> None:
    known = holding(topic("a", 0), topic("b", 0), topic("c", 0))
    known.use(known.find("b", 100.0), 100.0)  # type: ignore[arg-type]
    known.touch("c", 150.0)
    assert known.forget_idle(IDLE) == []
    assert known.forget_idle(IDLE + 1) == ["a"]
    assert known.forget_idle(100.0 + IDLE + 1) == ["b"]
    assert known.forget_idle(150.0 + IDLE + 1) == ["c"]
    assert len(known) == 0


def test_ages_that_change_count_for_what_is_known() -> None:
    ages = Ages(SOFT, MAX, IDLE)
    known = cache(ages=ages)
    known.store(told(topic("a", 0)), ["a"], 0.0)
    assert served(known, "a", 3.0)
    ages.become(Ages(1.0, 2.0, 4.0))
    assert not served(known, "a", 3.0)
    assert known.forget_idle(3.0) == []
    assert known.forget_idle(5.0) == ["a"]


# What is newer


def test_a_leader_epoch_never_goes_back() -> None:
    known = holding(topic("a", 1, 0, epoch=7, topic_id=FIRST_ID))
    older = topic("a", 0, 0, epoch=6, topic_id=FIRST_ID)
    known.store(told(older), ["a"], 1.0)
    found = known.find("a", 2.0)
    assert found is not None
    assert [(each.leader_id, each.leader_epoch) for each in found.topic.partitions] == [(1, 7), (0, 7)]
    assert found.updated_at == 1.0
    known.store(told(topic("a", 0, 0, epoch=8, topic_id=FIRST_ID)), ["a"], 3.0)
    assert [each.leader_id for each in known.find("a", 3.0).topic.partitions] == [0, 0]  # type: ignore[union-attr]


def leaders(of: MetadataCache, name: str = "a") -> list[int]:
    known = of.find(name, 0.0)
    assert known is not None
    return [partition.leader_id for partition in known.topic.partitions]


def test_lower_epochs_are_believed_once_they_are_all_that_is_told_for_a_while() -> None:
    """Of a cluster whose metadata was restored."""
    known = holding(topic("a", 1, 1, epoch=7, topic_id=FIRST_ID))
    older = told(topic("a", 0, 0, epoch=6, topic_id=FIRST_ID))
    for after, believed in ((0.0, False), (LOWER_S - 0.001, False), (LOWER_S, True)):
        known.store(older, ["a"], 10.0 + after)
        assert leaders(known) == ([0, 0] if believed else [1, 1])
    known.store(told(topic("a", 1, 1, epoch=7, topic_id=FIRST_ID)), ["a"], 20.0)
    assert leaders(known) == [1, 1]
    known.store(older, ["a"], 30.0)
    assert leaders(known) == [1, 1], "which were told once since"


def test_a_broker_that_tells_the_known_epoch_refutes_a_lower_one() -> None:
    for confirmed in ([topic("a", 1, 0, epoch=7, topic_id=FIRST_ID)], [topic("a", 1, epoch=8, topic_id=FIRST_ID)], []):
        known = holding(topic("a", 1, epoch=7, topic_id=FIRST_ID))
        older = told(topic("a", 0, epoch=6, topic_id=FIRST_ID))
        known.store(older, ["a"], 10.0)
        if confirmed:
            known.store(told(*confirmed), ["a"], 12.0)
        else:
            assert known.new_leaders("a", {0: (1, 7)}) == {}
        known.store(older, ["a"], 10.0 + LOWER_S)
        assert leaders(known) == [1]
        assert known.new_leaders("a", {0: (0, 6)}) == {}, "which refutes nothing"
        known.store(older, ["a"], 10.0 + 2 * LOWER_S)
        assert leaders(known) == [0]


def test_where_topics_have_no_ids_one_whose_epochs_begin_anew_is_another_one() -> None:
    known = holding(topic("a", 1, 1, epoch=7))
    known.store(told(topic("a", 0, 0, 0, epoch=0)), ["a"], 1.0)
    assert leaders(known) == [0, 0, 0]


@pytest.mark.parametrize(("epochs", "then"), [((7, 0), (0, 0)), ((7, 7), (0, 1)), ((1, 1), (0, 0))])
def test_and_one_of_which_some_do_is_not_at_once(epochs: tuple[int, ...], then: tuple[int, ...]) -> None:
    def of(leader: int, each: tuple[int, ...]) -> Topic:
        made = topic("a", *[leader] * len(each))
        partitions = zip(made.partitions, each, strict=True)
        return made._replace(partitions=tuple(found._replace(leader_epoch=epoch) for found, epoch in partitions))

    known = holding(of(1, epochs))
    known.store(told(of(0, then)), ["a"], 1.0)
    assert leaders(known)[0] == 1
    known.store(told(of(0, then)), ["a"], 1.0 + LOWER_S)
    assert leaders(known) == [0, 0]


def test_what_was_told_of_one_topics_epochs_says_nothing_of_the_next() -> None:
    known = holding(topic("a", 1, epoch=7, topic_id=FIRST_ID))
    older = told(topic("a", 0, epoch=6, topic_id=FIRST_ID))
    known.store(older, ["a"], 10.0)
    known.store(told(topic("a", 1, epoch=7, topic_id=SECOND_ID)), ["a"], 11.0)
    known.store(told(topic("a", 0, epoch=6, topic_id=SECOND_ID)), ["a"], 20.0)
    assert leaders(known) == [1]


def test_a_topic_made_anew_under_its_name_begins_with_its_own_epochs() -> None:
    known = holding(topic("a", 1, 1, epoch=7, topic_id=FIRST_ID))
    known.store(told(topic("a", 0, epoch=0, topic_id=SECOND_ID)), ["a"], 1.0)
    found = known.find("a", 2.0)
    assert found is not None
    assert [(each.leader_id, each.leader_epoch) for each in found.topic.partitions] == [(0, 0)]
    assert (known.name_of(FIRST_ID), known.name_of(SECOND_ID)) == (None, "a")


def test_partitions_that_were_added_are_told() -> None:
    known = holding(topic("a", 0, epoch=3))
    known.store(told(topic("a", 0, 1, 1, epoch=3)), ["a"], 1.0)
    assert len(known.find("a", 1.0).topic.partitions) == 3  # type: ignore[union-attr]


def test_a_broker_without_epochs_is_believed() -> None:
    known = holding(topic("a", 1, epoch=7))
    known.store(told(topic("a", 0, epoch=-1)), ["a"], 1.0)
    assert known.find("a", 1.0).topic.partitions[0].leader_id == 0  # type: ignore[union-attr]


def test_a_leader_that_a_broker_names_is_known_at_once() -> None:
    known = holding(topic("a", 0, 0, 0, epoch=3))
    before = known.find("a", 0.0).described.section(9, NO_IDS)  # type: ignore[union-attr]
    assert known.new_leaders("a", {1: (1, 4), 2: (1, 5), 0: (1, 3), 9: (1, 9)}) == {1: 1, 2: 1}
    assert known.new_leaders("a", {1: (0, 4)}) == {}, "the same epoch is no news"
    assert known.new_leaders("b", {0: (0, 9)}) == {}
    found = known.find("a", 0.0)
    assert found is not None
    assert [(each.leader_id, each.leader_epoch) for each in found.topic.partitions] == [(0, 3), (1, 4), (1, 5)]
    assert found.described.section(9, NO_IDS) != before


# Hints


def test_an_invalidated_topic_is_served_when_it_was_asked_for_after_that() -> None:
    known = holding(topic("a", 0), topic("b", 0))
    known.invalidate("a", 5.0)
    assert not served(known, "a", 5.0)
    assert served(known, "b", 5.0)
    known.store(told(topic("a", 0)), ["a"], 4.9)
    assert not served(known, "a", 5.1), "it was asked for before"
    known.store(told(topic("a", 1)), ["a"], 5.2)
    assert served(known, "a", 5.3)


def test_an_unknown_topic_that_is_invalidated_is_asked_for_again() -> None:
    known = cache()
    known.store(told(), ["a"], 0.0)
    known.invalidate("a", 0.1)
    assert not served(known, "a", 0.2)


def test_a_lost_broker_concerns_what_it_led_and_no_more() -> None:
    known = holding(topic("a", 0, 1), topic("b", 1), topic("c", 0))
    assert sorted(known.invalidate_node(0, 1.0)) == ["a", "c"]
    assert [served(known, name, 1.0) for name in "abc"] == [False, True, False]
    assert known.cluster(1.0) is None
    known.store(told(nodes=(1,)), [], 2.0)
    assert known.cluster(2.0).there.keys() == {1}  # type: ignore[union-attr]


def test_an_administrators_change_makes_everything_old() -> None:
    known = holding(topic("a", 0))
    known.store(told(topic("a", 0)), [], 0.5, all_topics=True)
    known.store(told(), ["b"], 0.5)
    known.invalidate_all(1.0)
    assert [served(known, name, 1.0) for name in "ab"] == [False, False]
    assert known.everything(1.0) is None
    known.store(told(topic("a", 0)), ["a"], 0.9)
    assert not served(known, "a", 1.1), "asked for before"
    known.store(told(topic("a", 0)), ["a"], 1.2)
    assert served(known, "a", 1.3)


# All topics


def test_all_topics_are_those_of_the_last_list_and_what_was_asked_for_since() -> None:
    known = holding(topic("old", 0))
    known.store(told(topic("a", 0), topic("b", 1)), [], 1.0, all_topics=True)
    assert not served(known, "old", 1.0), "it is not in the list"
    known.store(told(topic("new", 0)), ["new"], 2.0)
    assert sorted(each.name for each in known.everything(3.0) or ()) == ["a", "b", "new"]
    known.store(told(), ["a"], 4.0)
    assert sorted(each.name for each in known.everything(4.0) or ()) == ["b", "new"]


def test_the_list_has_an_age_of_its_own() -> None:
    known = cache()
    known.store(told(topic("a", 0)), [], 1.0, all_topics=True)
    known.store(told(topic("a", 0)), ["a"], 200.0)
    assert known.everything(1.0 + MAX) is None
    assert known.everything(5.0, fresh_since=1.0) is None
    assert known.everything(5.0, fresh_since=0.9) is not None


def test_the_list_is_not_served_while_one_of_its_topics_may_not_be() -> None:
    known = cache()
    known.store(told(topic("a", 0), topic("b", 0)), [], 1.0, all_topics=True)
    known.invalidate("b", 2.0)
    assert known.everything(2.0) is None


def test_a_topic_without_a_leader_makes_the_list_no_older() -> None:
    """It may be without for days, and a list is large."""
    known = cache()
    known.store(told(topic("a", -1), topic("b", 0)), [], 1.0, all_topics=True)
    assert len(known.everything(10.0) or ()) == 2


def test_a_list_that_is_used_is_refreshed_and_keeps_its_topics() -> None:
    known = cache()
    known.store(told(topic("a", 0)), [], 0.0, all_topics=True)
    assert not known.all_due(SOFT), "nobody used it"
    known.everything(SOFT - 1)
    assert not known.all_due(SOFT - 1)
    assert known.all_due(SOFT)
    assert known.forget_idle(IDLE + 1) == []
    assert known.forget_idle(SOFT - 1 + IDLE + 1) == ["a"]
    assert known.everything(IDLE + 100) is None


def test_what_is_used_as_part_of_the_list_alone_is_refreshed_with_it() -> None:
    known = cache()
    known.store(told(topic("a", 0), topic("b", 0)), [], 0.0, all_topics=True)
    known.serve(known.everything(1.0) or [], 9, 1.0, NO_IDS, all_topics=True)
    assert known.due(SOFT) == []
    assert known.next_due(1.0) == SOFT - 1.0
    known.use(known.find("b", 2.0), 2.0)  # type: ignore[arg-type]
    assert known.due(SOFT) == ["b"]


def test_it_is_not_served_by_name_beyond_its_soft_age_until_it_has_been_used_so() -> None:
    known = cache()
    known.store(told(topic("a", 0), topic("b", 0)), [], 0.0, all_topics=True)
    known.touch("b", 1.0)
    assert [served(known, name, SOFT - 1) for name in "ab"] == [True, True]
    assert [served(known, name, SOFT) for name in "ab"] == [False, True]
    assert [*known.find_sound(["a", "b"], SOFT, NEVER)[0]] == ["b"]


def test_what_was_used_by_name_long_ago_is_refreshed_with_the_list_again() -> None:
    known = holding(topic("a", 0))
    known.store(told(topic("a", 0)), [], IDLE - 1, all_topics=True)
    assert known.forget_idle(IDLE + 1) == []
    assert known.due(IDLE + SOFT) == []
    assert not served(known, "a", IDLE + SOFT)


def test_a_list_that_was_not_used_is_as_old_as_its_soft_age_at_most() -> None:
    known = cache()
    known.store(told(topic("a", 0)), [], 0.0, all_topics=True)
    assert known.everything(SOFT) is None
    assert known.everything(SOFT - 1) is not None
    assert known.everything(SOFT + 1) is not None, "it is being refreshed"


# Bounds


def test_the_least_recently_used_topic_makes_room() -> None:
    known = holding(topic("a", 0), topic("b", 0, topic_id=FIRST_ID), topic("c", 0), max_topics=3)
    known.use(known.find("a", 1.0), 1.0)  # type: ignore[arg-type]
    known.store(told(topic("d", 0)), ["d"], 2.0)
    assert [served(known, name, 2.0) for name in "abcd"] == [True, False, True, True]
    assert known.name_of(FIRST_ID) is None
    assert len(known) == 3


def test_an_answer_that_is_larger_than_the_cache_is_handed_on_whole() -> None:
    known = cache(max_topics=2)
    names = ["a", "b", "c"]
    found = known.store(told(*(topic(name, 0) for name in names)), names, 0.0)
    assert sorted(found) == names
    assert len(known) == 2
    known.store(told(*(topic(name, 0) for name in names)), [], 0.0, all_topics=True)
    assert known.everything(0.0) is None, "it would not be all"


def test_what_is_not_in_a_list_any_more_makes_room_for_what_is() -> None:
    known = holding(topic("a", 0), topic("gone", 0), max_topics=2)
    known.store(told(topic("a", 0), topic("b", 0)), [], 1.0, all_topics=True)
    assert sorted(each.name for each in known.everything(2.0) or ()) == ["a", "b"]


def test_a_list_of_which_something_is_not_kept_is_asked_for_again() -> None:
    known = cache()
    known.store(told(topic("a", 0), topic("b", error=LEADER_NOT_AVAILABLE)), [], 1.0, all_topics=True)
    assert known.everything(2.0) is None


def test_a_list_that_is_larger_than_the_cache_drives_out_nothing_that_is_used() -> None:
    known = holding(topic("used", 0), max_topics=2)
    known.store(told(topic("a", 0), topic("b", 0, topic_id=FIRST_ID), topic("used", 0)), [], 1.0, all_topics=True)
    assert served(known, "used", 2.0)
    assert len(known) == 2
    assert known.name_of(FIRST_ID) is None
    assert known.everything(2.0) is None


def test_names_that_nobody_has_drive_out_no_topics() -> None:
    known = holding(topic("a", 0), max_topics=1)
    names = [f"nowhere-{number}" for number in range(MAX_ERRORS + 1)]
    known.store(told(), names, 1.0)
    assert served(known, "a", 1.0)
    assert not served(known, names[0], 1.0)
    assert served(known, names[-1], 1.0)


# Sections


def test_a_section_is_made_once_a_layout() -> None:
    known = holding(topic("a", 0, 1))
    found, brokers = known.find("a", 0.0), known.brokers
    assert found is not None
    assert brokers is not None
    for version in range(14):
        assert found.described.section(version, brokers.ids) == encode_topic(found.topic, version, brokers.there)
        assert found.described.section(version, brokers.ids) is found.described.section(version, brokers.ids)
    assert found.described.section(10, brokers.ids) is found.described.section(13, brokers.ids)
    assert found.described.section(1, brokers.ids) is found.described.section(4, brokers.ids)


def test_an_answer_that_says_the_same_keeps_the_sections() -> None:
    known = holding(topic("a", 0, epoch=1))
    before = known.find("a", 0.0).described.section(9, NO_IDS)  # type: ignore[union-attr]
    known.store(told(topic("a", 0, epoch=1)), ["a"], 1.0)
    assert known.find("a", 1.0).described.section(9, NO_IDS) is before  # type: ignore[union-attr]


def test_a_section_of_v0_follows_the_brokers() -> None:
    known = holding(topic("a", 0))
    assert known.brokers is not None
    before = known.find("a", 0.0).described.section(0, known.brokers.ids)  # type: ignore[union-attr]
    known.store(told(nodes=(1,)), [], 1.0)
    after = known.find("a", 1.0).described.section(0, known.brokers.ids)  # type: ignore[union-attr]
    assert len(after) < len(before), "broker 0 is not named any more"
    known.store(told(nodes=(1,), controller=1), [], 2.0)
    assert known.find("a", 2.0).described.section(0, known.brokers.ids) is after  # type: ignore[union-attr]


@pytest.mark.parametrize("version", range(14))
def test_a_client_that_knows_of_one_broker_is_told_of_one_and_the_others_as_before(version: int) -> None:
    ponds = topic("ponds", 1, 0, -1, epoch=4)
    filled = holding(ponds)
    for _ in range(2):
        known = filled.find("ponds", 0.5)
        assert known is not None
        (alone,) = filled.serve([known], version, 0.5, frozenset((0, 1)), one_broker=True).sections
        (all_of_them,) = filled.serve([known], version, 0.5, frozenset((0, 1))).sections
        assert alone == encode_topic(of_topic(ponds), version, (0,))
        assert all_of_them == encode_topic(ponds, version, (0, 1))
