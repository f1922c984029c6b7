"""What is due by its age: not before, a group at a time, whoever uses it."""

from __future__ import annotations

from random import Random

from forebay_codecs.error_codes import NONE
from forebay_codecs.metadata import Broker, Metadata
from forebay_policies.metadata_cache import JITTER, Ages, MetadataCache
from forebay_policies.metadata_refresh import CHECK_EVERY_S, RefreshSchedule
from tests.policies.metadata_kit import BACKOFF, GROUP, IDLE, MAX, SOFT, Produced, topic

EARLY = SOFT * (1 - JITTER)


def schedule(
    *names: str, produced: dict[str, Produced] | None = None, soft: float = SOFT
) -> tuple[RefreshSchedule, MetadataCache]:
    """The cache was told of `names` at 0.0, and so the brokers are known."""
    cache = MetadataCache(Ages(soft, MAX, IDLE), 1000, GROUP, Random(1))
    topics = tuple(topic(name, 1) for name in names)
    cache.store(Metadata(0, {0: Broker("0.example", 9092, None)}, "c", 0, topics, NONE), names, 0.0)
    made = RefreshSchedule(cache, produced or {}, BACKOFF, GROUP)
    made.brokers_told(0.0)
    return made, cache


def test_nothing_is_due_before_its_soft_age() -> None:
    refresh, _ = schedule("a", "b")
    assert refresh.check(EARLY - 0.1) == ([], False, False)
    assert refresh.check(SOFT) == (["a", "b"], True, False)


def test_brokers_that_nobody_told_of_are_due_at_once() -> None:
    refresh = RefreshSchedule(MetadataCache(Ages(SOFT, MAX, IDLE), 10, 1, Random(1)), {}, BACKOFF, 1)
    assert refresh.next_check(5.0) == 5.0
    assert refresh.check(5.0).brokers


def test_a_full_group_is_followed_by_the_next_after_a_backoff() -> None:
    refresh, _ = schedule("a", "b", "c", "d")
    first = refresh.check(SOFT).names
    assert len(first) == GROUP
    assert refresh.check_at == SOFT + BACKOFF
    refresh.postpone(first, SOFT)
    assert {*refresh.check(SOFT + BACKOFF).names, *first} == {"a", "b", "c", "d"}
    assert refresh.check_at == SOFT + BACKOFF + CHECK_EVERY_S


def test_a_short_soft_age_is_looked_at_more_often() -> None:
    refresh, _ = schedule("a", soft=2.0)
    refresh.check(0.0)
    assert refresh.check_at == 0.5


def test_what_records_go_to_is_due_at_its_max_age_though_the_cache_has_dropped_it() -> None:
    produced = {f"t{number}": Produced(updated_at=0.0, used_at=MAX) for number in range(GROUP + 1)}
    refresh, _ = schedule(produced=produced)
    assert refresh.check(MAX - 0.1).names == []
    assert len(refresh.check(MAX).names) == GROUP


def test_what_records_go_to_is_used() -> None:
    refresh, cache = schedule("a", "b", produced={"a": Produced(updated_at=0.0, used_at=IDLE)})
    refresh.check(IDLE + 0.1)
    assert (cache.knows("a"), cache.knows("b")) == (True, False)


def test_the_list_of_all_topics_is_due_while_it_is_used() -> None:
    refresh, cache = schedule()
    cache.store(Metadata(0, {0: Broker("0.example", 9092, None)}, "c", 0, (), NONE), (), 0.0, all_topics=True)
    assert not refresh.check(SOFT).all_topics
    assert cache.everything(1.0) == []
    assert refresh.check(SOFT).all_topics


def test_the_next_check_is_when_the_first_is_due_but_not_before_the_pause_is_over() -> None:
    refresh, _ = schedule("a")
    assert EARLY <= refresh.next_check(0.0) <= SOFT
    refresh.check(SOFT)
    assert refresh.next_check(SOFT) == refresh.check_at
