"""Who waits for metadata: each is told once what it waits for, by an answer that is new enough, or dropped."""

from __future__ import annotations

from forebay_codecs.metadata import NO_TOPIC_ID, Topic
from forebay_policies.described_topic import DescribedTopic
from forebay_policies.metadata_cache import NEVER, CachedTopic
from forebay_policies.metadata_waiters import ClientWaiters, RecordWaiters, WaiterGroup
from tests.policies.metadata_kit import FakeWaiter

ID = bytes(range(16))


def known(name: str) -> CachedTopic:
    topic = Topic(0, name, NO_TOPIC_ID, is_internal=False, partitions=())
    return CachedTopic(name, DescribedTopic(topic), 0.0, 0.0)


class TestGroups:
    def test_an_answer_serves_those_who_were_told_before_its_request_left(self) -> None:
        group = WaiterGroup()
        anew, content = FakeWaiter(), FakeWaiter()
        group.add(anew, 5.0)
        group.add(content, NEVER)
        assert group.take(5.0) == [content]
        assert group.take(5.1) == [anew]
        assert not group

    def test_who_is_dropped_is_not_taken(self) -> None:
        group = WaiterGroup()
        waiter = FakeWaiter()
        group.add(waiter, NEVER)
        group.drop(waiter)
        group.drop(waiter)
        assert group.take(1.0) == []


class TestClients:
    def test_each_is_told_once(self) -> None:
        waiters, waiter = ClientWaiters(), FakeWaiter()
        waiters.add_name("a", waiter, NEVER)
        waiters.add_id(ID, waiter, NEVER)
        waiters.for_all.add(waiter, NEVER)
        waiters.for_brokers.add(waiter, NEVER)
        topics = [Topic(0, "b", ID, is_internal=False, partitions=())]
        for _ in range(2):
            waiters.tell_brokers(1.0)
            assert waiters.tell_topics({"a": known("a")}, 1.0) == []
            waiters.tell_ids([ID], topics, {"b": known("b")}, 1.0)
            waiters.tell_all([known("a")], 1.0)
        assert waiter.told == ["brokers", "a", (ID, "b"), ["a"]]
        assert not waiters.by_name
        assert not waiters.by_id

    def test_an_id_that_is_not_in_the_answer_does_not_exist(self) -> None:
        waiters, waiter = ClientWaiters(), FakeWaiter()
        waiters.add_id(ID, waiter, NEVER)
        waiters.tell_ids([ID], [Topic(100, None, ID, is_internal=False, partitions=())], {}, 1.0)
        assert waiter.told == [(ID, None)]

    def test_names_for_which_an_answer_came_too_early_are_returned(self) -> None:
        waiters, waiter = ClientWaiters(), FakeWaiter()
        waiters.add_name("a", waiter, 5.0)
        assert waiters.tell_topics({"a": known("a"), "b": known("b")}, 4.0) == ["a"]
        assert waiter.told == []

    def test_who_asks_for_an_id_anew_is_not_told_by_an_earlier_request(self) -> None:
        waiters, anew, content = ClientWaiters(), FakeWaiter(), FakeWaiter()
        waiters.add_id(ID, anew, 5.0)
        waiters.add_id(ID, content, NEVER)
        waiters.tell_ids([ID], [], {}, 4.0)
        assert (anew.told, content.told) == ([], [(ID, None)])
        waiters.tell_ids([ID], [], {}, 6.0)
        assert anew.told == [(ID, None)]
        assert not waiters.by_id

    def test_who_is_told_may_wait_for_the_same_again(self) -> None:
        waiters = ClientWaiters()

        class Again(FakeWaiter):
            def topic_told(self, name: str, known: CachedTopic) -> None:
                super().topic_told(name, known)
                waiters.add_name(name, self, 9.0)

        waiter = Again()
        waiters.add_name("a", waiter, NEVER)
        waiters.tell_topics({"a": known("a")}, 1.0)
        assert waiter.told == ["a"]
        assert "a" in waiters.by_name

    def test_the_last_to_leave_a_name_takes_it_along(self) -> None:
        waiters, first, second = ClientWaiters(), FakeWaiter(), FakeWaiter()
        for waiter in (first, second):
            waiters.add_name("a", waiter, NEVER)
            waiters.add_id(ID, waiter, NEVER)
            waiters.for_all.add(waiter, NEVER)
            waiters.for_brokers.add(waiter, NEVER)
        assert waiters.drop(["a", "b"], [ID, bytes(16)], first) == []
        assert waiters.drop(["a", "b"], [ID, bytes(16)], second) == ["a"]
        assert not any([waiters.by_name, waiters.by_id, waiters.for_all, waiters.for_brokers])


class TestRecords:
    def test_all_are_called_once(self) -> None:
        waiters = RecordWaiters()
        called: list[int] = []
        waiters.add("a", lambda: called.append(1))
        waiters.add("a", lambda: called.append(2))
        waiters.call("a")
        assert called == [1, 2]
        assert "a" not in waiters

    def test_who_has_left_is_not_called(self) -> None:
        waiters = RecordWaiters()
        called: list[str] = []

        def ready() -> None:
            called.append("a")

        for _ in range(2):
            waiters.add("a", ready)
            assert "a" in waiters
            waiters.drop("a", ready)
            waiters.drop("a", ready)
            assert "a" not in waiters
        assert called == []
