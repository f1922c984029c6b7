"""What is asked for next: one request in flight, the next carries all that came meanwhile. Without sockets."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import settings

from forebay_policies import metadata_requests, missing_topics
from forebay_policies.metadata_cache import JITTER, NEVER
from forebay_policies.metadata_requests import CREATE_AGAIN_S, DOUBT_S, MAX_CREATED, Cause, MetadataQuery
from forebay_policies.missing_topics import LONGEST_S, TRIES
from tests.policies.metadata_kit import BACKOFF, GROUP, SOFT, Bench, FakeWaiter, topic_id
from tests.policies.metadata_machine import MetadataMachine


class TestNextRequest:
    def test_the_brokers_are_asked_for_first(self) -> None:
        assert Bench().next(0.0) == MetadataQuery([], [], creates=False)

    def test_nothing_is_asked_for_while_nothing_is_wanted(self) -> None:
        bench = Bench().started()
        assert bench.requests.next_request(0.1) is None
        assert bench.causes == []

    def test_the_next_one_carries_all_that_came_meanwhile(self) -> None:
        bench = Bench({"a": 1, "b": 1, "c": 1}).started()
        bench.want("a")
        first = bench.next(0.1)
        bench.want("c", "b", "b")
        waiter = bench.ask("b", "d")
        bench.requests.ask_id(topic_id("e"), NEVER, waiter)
        bench.answer(first, 0.2)
        assert bench.ready == ["a"]
        second = bench.next(0.3)
        assert second == MetadataQuery([], [topic_id("e")], creates=False), "by itself: brokers would not look at names"
        bench.answer(second, 0.4)
        third = bench.next(0.4)
        assert third == MetadataQuery(["b", "c", "d"], [], creates=False)
        bench.answer(third, 0.5)
        assert sorted(bench.ready) == ["a", "b", "b", "c"]
        assert waiter.told == [(topic_id("e"), None), "b", "d"]
        assert bench.requests.next_request(0.5) is None

    def test_what_is_being_asked_for_is_not_asked_for_twice(self) -> None:
        bench = Bench({"a": 1}).started()
        first = bench.ask("a")
        query = bench.next(0.1)
        second = bench.ask("a")
        bench.answer(query, 0.2)
        assert first.told == second.told == ["a"]
        assert bench.requests.next_request(0.3) is None

    def test_who_was_told_something_wrong_meanwhile_waits_for_the_request_after_that(self) -> None:
        bench = Bench({"a": 1}).started()
        bench.ask("a")
        query = bench.next(1.0)
        anew = bench.ask("a", fresh_since=1.5)
        bench.answer(query, 2.0, asked_at=1.0)
        assert anew.told == []
        bench.answer(bench.next(2.0), 2.1, asked_at=2.0)
        assert anew.told == ["a"]

    def test_kinds_take_turns(self) -> None:
        bench = Bench({"a": 1}).started()
        clients = FakeWaiter()
        bench.ask("new", creates=True, by=clients)
        bench.requests.ask_all(NEVER, clients)
        asked = []
        for number in range(6):
            bench.ask(f"t{number}")
            query = bench.next(0.1)
            asked.append("all" if query.names is None else "new" if query.creates else "names")
            bench.answer(query, 0.2)
        assert asked == ["names", "new", "all", "names", "names", "names"]

    def test_a_request_has_a_limit_and_the_rest_follows(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(metadata_requests, "MAX_TOPICS", 3)
        bench = Bench({f"t{number}": 1 for number in range(7)}).started()
        waiter = bench.ask(*bench.there)
        for name in bench.there:
            bench.requests.ask_id(topic_id(name), NEVER, waiter)
        sizes = []
        while (query := bench.requests.next_request(0.1)) is not None:
            sizes.append((len(query.names or ()), len(query.ids)))
            bench.answer(query, 0.2)
        assert sizes == [(3, 0), (0, 3), (3, 0), (0, 3), (1, 0), (0, 1)]
        assert len(waiter.told) == 14

    def test_every_answer_tells_of_the_brokers(self) -> None:
        bench = Bench().started()
        waiter = bench.ask("a")
        query = bench.next(0.1)
        bench.requests.ask_brokers(NEVER, waiter)
        bench.answer(query, 0.2)
        assert waiter.told == ["brokers", "a"]
        assert bench.requests.next_request(0.3) is None

    def test_brokers_asked_for_anew_wait_for_a_request_that_leaves_later(self) -> None:
        bench = Bench().started()
        bench.ask("a")
        query = bench.next(1.0)
        waiter = FakeWaiter()
        bench.requests.ask_brokers(1.5, waiter)
        bench.answer(query, 2.0, asked_at=1.0)
        assert waiter.told == []
        assert bench.next(2.0) == MetadataQuery([], [], creates=False)

    def test_whoever_is_told_may_ask_for_more(self) -> None:
        bench = Bench({"a": 1, "b": 1}).started()

        class Curious(FakeWaiter):
            def brokers_told(self) -> None:
                bench.ask("b", by=self)

        waiter = Curious()
        bench.requests.ask_brokers(NEVER, waiter)
        bench.answer(bench.next(0.1), 0.2)
        bench.answer(bench.next(0.2), 0.3)
        assert waiter.told == ["b"]

    @pytest.mark.parametrize(("after", "elsewhere"), [(0.1, True), (DOUBT_S - 0.1, True), (DOUBT_S, False)])
    def test_who_was_told_in_vain_asks_another_broker(self, after: float, elsewhere: bool) -> None:
        """Cut off from the controller, one goes on telling of a leader that is not there any more."""
        bench = Bench({"a": 1}).started()
        waiter = bench.ask("a")
        query = bench.next(1.0)
        assert not query.elsewhere
        bench.answer(query, 1.0)
        bench.ask("a", fresh_since=1.0, by=waiter)
        query = bench.next(1.0 + after)
        assert query.elsewhere is elsewhere
        bench.answer(query, 1.0 + after)
        bench.requests.ask_all(1.0, waiter)
        assert bench.next(1.0 + after).elsewhere is elsewhere
        bench.requests.ask_id(topic_id("b"), 1.0, waiter)
        assert bench.next(1.0 + after) == MetadataQuery([], [topic_id("b")], creates=False, elsewhere=elsewhere)


class TestManyNames:
    """One client may name any number; others are not to wait for the answers to all of them."""

    @pytest.fixture(autouse=True)
    def few_in_a_request(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(metadata_requests, "MAX_TOPICS", 10)

    @staticmethod
    def names(number: int) -> list[str]:
        return [f"bad-{number}-{index}" for index in range(100)]

    @pytest.mark.parametrize("creates", [False, True])
    def test_those_of_others_are_in_the_next_request(self, *, creates: bool) -> None:
        bench = Bench({"honest": 1}).started()
        for number in range(5):
            bench.ask(*self.names(number), creates=creates)
        waiter = bench.ask("honest", creates=creates)
        query = bench.next(0.1)
        assert "honest" in (query.names or ())
        bench.answer(query, 0.1)
        assert waiter.told == ["honest"]

    def test_though_records_wait_for_them(self) -> None:
        bench = Bench({"honest": 1}).started()

        def many() -> None:
            bench.ready.append("many")

        for name in self.names(0):
            bench.requests.want(name, many, 0.0)
        bench.want("honest")
        asked = 0
        for turn in range(3 * TRIES):  # they are unknown, and asked for again
            now = turn * BACKOFF
            query = bench.next(now)
            asked += len(query.names or ())
            bench.answer(query, now)
            if turn == 0:
                assert bench.ready == ["honest"]
            bench.there[f"later-{turn}"] = 1
            bench.want(f"later-{turn}", now=now)
        assert asked == 10 * 3 * TRIES, "no place in a request is left empty"
        assert set(bench.ready) >= {f"later-{turn}" for turn in range(3 * TRIES - 1)}

    def test_what_is_wrong_comes_first(self) -> None:
        bench = Bench({"a": 1, "b": 1}).started()
        bench.want("a")
        bench.answer(bench.next(0.1), 0.1)
        for number in range(50):
            bench.ask(*self.names(number))
        bench.requests.invalidate(["a"], "error", 0.2)
        bench.requests.retry_later("a", 0.2)
        assert "a" in (bench.next(0.2).names or ())

    def test_who_leaves_takes_no_name_along_that_records_go_to(self) -> None:
        bench = Bench({"a": 1}).started()
        bench.want("a")
        bench.answer(bench.next(0.1), 0.1)
        leaving = bench.ask("a", now=0.2)
        bench.requests.drop(["a"], [], leaving)
        assert bench.next(0.2).names == ["a"]

    def test_who_leaves_takes_no_name_along_that_others_wait_for(self) -> None:
        bench = Bench({"a": 1, "b": 1, "new": 1}).started()

        def leaving() -> None:
            bench.ready.append("left")

        first, second = bench.ask("a"), bench.ask("a")
        bench.ask("new", creates=True, by=first)
        bench.ask("new", by=second)
        for name in ("b", "a"):
            bench.requests.want(name, leaving, 0.0)
        bench.want("b")
        bench.requests.drop(["a", "new"], [], first)
        bench.requests.forget("b", leaving)
        bench.requests.forget("a", leaving)
        for _ in range(2):
            bench.answer(bench.next(0.1), 0.1)
        assert sorted(map(str, second.told)) == ["a", "new"]
        assert bench.ready == ["b"]
        assert bench.requests.next_request(0.1) is None

    def test_what_nobody_could_be_asked_for_is_behind_what_came_meanwhile(self) -> None:
        bench = Bench({"honest": 1}).started()
        bench.ask(*self.names(0))
        bench.requests.failed(bench.next(0.1))
        bench.ask("honest")
        query = bench.next(0.2)
        assert "honest" in (query.names or ())
        assert len(query.names or ()) == 10


class TestFailures:
    def test_a_failed_request_is_made_again_with_what_came_meanwhile(self) -> None:
        bench = Bench({"a": 1, "b": 1}).started()
        waiter = bench.ask("a")
        bench.requests.ask_id(topic_id("a"), NEVER, waiter)
        bench.requests.failed(bench.next(0.1))
        bench.ask("b", by=waiter)
        query = bench.next(0.2)
        assert query == MetadataQuery(["a", "b"], [], creates=False)
        bench.requests.failed(query)
        bench.answer(bench.next(0.3), 0.3)
        of_id = bench.next(0.3)
        assert of_id == MetadataQuery([], [topic_id("a")], creates=False)
        bench.requests.failed(of_id)
        assert bench.next(0.4) == of_id, "and nothing else"
        bench.answer(of_id, 0.4)
        assert waiter.told == ["a", "b", (topic_id("a"), "a")]

    def test_the_brokers_alone_too(self) -> None:
        bench = Bench()
        bench.requests.failed(bench.next(0.0))
        assert bench.next(BACKOFF) == MetadataQuery([], [], creates=False)

    def test_creation_and_all_topics_too(self) -> None:
        bench = Bench().started()
        waiter = bench.ask("new", creates=True)
        bench.requests.failed(bench.next(0.1))
        assert bench.next(0.2) == MetadataQuery(["new"], [], creates=True)
        bench.requests.drop(["new"], [], waiter)
        bench.requests.ask_all(NEVER, waiter)
        bench.requests.failed(bench.next(0.3))
        assert bench.next(0.4) == MetadataQuery(None, [], creates=False)

    def test_nobody_who_has_left_is_remembered(self) -> None:
        bench = Bench({"a": 1}).started()
        for number in range(10):
            waiters = [bench.ask("a"), bench.ask(f"new{number}", creates=True)]
            bench.requests.failed(bench.next(0.1 * number))
            for waiter, name in zip(waiters, ("a", f"new{number}"), strict=True):
                bench.requests.drop([name], [], waiter)
        assert not bench.requests._new._lines
        assert len(bench.requests._wanted._lines) <= 1, "what nobody answered"

    def test_what_brokers_fail_at_time_and_again_holds_up_nothing_else(self) -> None:
        bench = Bench({"a": 1}).started()
        bench.requests.ask_id(topic_id("bad"), NEVER, FakeWaiter())
        others = bench.ask("new", creates=True)
        bench.requests.ask_all(NEVER, others)
        for _ in range(6):
            query = bench.next(0.1)
            if query.ids:
                bench.requests.failed(query)
            else:
                bench.answer(query, 0.1)
        assert others.told == ["new", ["a"]]

    @pytest.mark.parametrize("creates", [False, True])
    def test_it_does_not_bring_back_what_nobody_waits_for(self, *, creates: bool) -> None:
        bench = Bench().started()
        waiter = bench.ask("a", creates=creates)
        bench.requests.ask_id(topic_id("a"), NEVER, waiter)
        queries = [bench.next(0.1)]
        if creates:  # a request of its own
            bench.answer(queries.pop(), 0.1)
            queries.append(bench.next(0.1))
        bench.requests.drop(["a"], [topic_id("a")], waiter)
        bench.requests.failed(queries[0])
        bench.want("b")
        assert bench.next(0.2) == MetadataQuery(["b"], [], creates=False)


class TestLeaving:
    def test_what_nobody_waits_for_any_more_is_not_asked_for(self) -> None:
        bench = Bench().started()
        waiter = bench.ask("a")
        bench.ask("new", creates=True, by=waiter)
        bench.requests.ask_id(topic_id("a"), NEVER, waiter)
        bench.requests.ask_all(NEVER, waiter)
        bench.requests.ask_brokers(NEVER, waiter)
        bench.requests.drop(["a", "new"], [topic_id("a")], waiter)
        bench.want("b")
        bench.requests.forget("b", next(iter(bench.requests._records._ready["b"])))
        assert bench.requests.next_request(0.1) is None
        assert bench.requests.may_create("new", 0.1), "nobody was asked to"

    @pytest.mark.parametrize("failed", [False, True])
    def test_what_records_go_to_and_is_wrong_is_asked_for_though(self, failed: bool) -> None:
        bench = Bench({"a": 1}).started()
        bench.want("a")
        bench.answer(bench.next(0.1), 0.1)
        bench.requests.invalidate(["a"], "error", 0.2)
        waiter = bench.ask("a")
        if failed:
            bench.requests.failed(bench.next(0.2))
        bench.requests.drop(["a"], [], waiter)
        assert "a" in (bench.next(0.3).names or ())

    def test_others_who_wait_for_the_same_are_served(self) -> None:
        bench = Bench({"a": 1}).started()
        first, second = bench.ask("a"), bench.ask("a")
        bench.requests.drop(["a"], [], first)
        bench.answer(bench.next(0.1), 0.2)
        assert (first.told, second.told) == ([], ["a"])

    def test_those_who_left_do_not_hide_those_who_stay(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(metadata_requests, "MAX_TOPICS", 2)
        bench = Bench().started()
        names = [f"t{number}" for number in range(5)]
        waiter = bench.ask(*names)
        bench.ask("a")
        bench.requests.drop(names, [], waiter)
        assert bench.next(0.1).names == ["a"]

    def test_more_new_names_than_are_remembered_may_be_dropped(self) -> None:
        """The pauses of the first are forgotten by then."""
        bench = Bench().started()
        names = [f"t{number}" for number in range(MAX_CREATED + 1)]
        waiter = bench.ask(*names, creates=True)
        bench.requests.drop(names, [], waiter)
        assert bench.requests.next_request(0.1) is None


class TestCreation:
    def test_it_is_asked_for_once_for_all_clients(self) -> None:
        bench = Bench().started()
        waiters = [bench.ask("new", creates=True, now=1.0) for _ in range(3)]
        query = bench.next(1.0)
        assert query == MetadataQuery(["new"], [], creates=True)
        bench.answer(query, 1.1)
        assert [waiter.told for waiter in waiters] == [["new"]] * 3
        assert bench.requests.next_request(1.2) is None

    def test_and_again_when_the_pause_is_over(self) -> None:
        bench = Bench().started()
        bench.ask("new", creates=True, now=1.0)
        bench.answer(bench.next(1.0), 1.1)
        bench.ask("new", creates=True, now=1.0 + CREATE_AGAIN_S - 0.1)
        query = bench.next(2.0)
        assert query == MetadataQuery(["new"], [], creates=False)
        bench.answer(query, 2.1)
        bench.ask("new", creates=True, now=1.0 + CREATE_AGAIN_S)
        assert bench.next(7.0) == MetadataQuery(["new"], [], creates=True)

    def test_it_is_asked_for_though_its_client_was_told_meanwhile(self) -> None:
        """By the answer to somebody else, who must not create it: the next try shall find it."""
        bench = Bench().started()
        bench.ask("new")
        query = bench.next(1.0)
        waiter = bench.ask("new", creates=True)
        bench.answer(query, 1.1)
        assert waiter.told == ["new"]
        assert bench.next(1.2) == MetadataQuery(["new"], [], creates=True)

    def test_where_it_is_refused_all_who_wait_are_told_what_a_plain_question_is(self) -> None:
        bench = Bench().started()
        bench.may_create = False
        creator = bench.ask("new", creates=True, now=1.0)
        query = bench.next(1.0)
        other = bench.ask("new", now=1.0)
        bench.answer(query, 1.1)
        assert (creator.told, other.told) == ([], [])
        assert bench.requests.creation_refused("new")
        query = bench.next(1.1)
        assert query == MetadataQuery(["new"], [], creates=False)
        bench.answer(query, 1.2)
        assert creator.told == other.told == ["new"]
        assert bench.requests.next_request(1.3) is None

    def test_one_that_is_known_is_asked_for_elsewhere_then(self) -> None:
        """The broker that refused has not heard of it yet."""
        bench = Bench({"new": 1}).started()
        bench.ask("new")
        bench.answer(bench.next(1.0), 1.0)
        del bench.there["new"]
        bench.may_create = False
        bench.ask("new", fresh_since=10.0, creates=True, now=20.0)
        bench.answer(bench.next(20.0), 20.0)
        assert bench.cache.knows("new")
        assert bench.next(20.1) == MetadataQuery(["new"], [], creates=False, elsewhere=True)

    def test_a_refusal_is_forgotten_when_it_is_asked_for_again(self) -> None:
        bench = Bench().started()
        bench.may_create = False
        waiter = bench.ask("new", creates=True, now=1.0)
        query = bench.next(1.0)
        bench.requests.drop(["new"], [], waiter)
        bench.answer(query, 1.0)
        assert bench.requests.creation_refused("new")
        assert bench.requests.next_request(1.1) is None, "nobody waits"
        bench.ask("new", creates=True, now=1.0 + CREATE_AGAIN_S)
        assert not bench.requests.creation_refused("new")

    def test_who_forbids_it_creates_nothing(self) -> None:
        bench = Bench().started()
        bench.ask("a")
        bench.ask("new", creates=True)
        assert bench.next(0.1) == MetadataQuery(["a"], [], creates=False)


class TestRecords:
    def test_what_the_cache_has_is_not_asked_for(self) -> None:
        bench = Bench({"a": 1}).started()
        bench.ask("a")
        bench.answer(bench.next(0.1), 0.1)
        assert bench.want("a", now=0.2) == ["a"]
        assert bench.requests.next_request(0.2) is None
        assert bench.requests.settle("a", 0.2, usable=True)
        assert bench.ready == ["a"]

    def test_an_unknown_topic_is_told_after_some_tries_each_after_a_pause(self) -> None:
        bench = Bench().started()
        bench.want("nowhere")
        now = 0.0
        for tries in range(1, TRIES + 1):
            query = bench.next(now)
            assert query.names == ["nowhere"]
            bench.answer(query, now)
            assert bench.ready == ([] if tries < TRIES else ["nowhere"])
            if not bench.ready:
                assert bench.requests.next_request(now) is None
                now = bench.requests.next_wake(now)
        assert now == pytest.approx(BACKOFF * (TRIES - 1))
        assert bench.requests.next_request(now + BACKOFF) is None

    def test_one_that_stays_unknown_is_asked_for_ever_more_seldom_however_many_records_come(self) -> None:
        bench = Bench().started()
        now, asked_at = 0.0, []
        while now < 20.0:
            bench.want("nowhere", "nowhere", now=now)
            query = bench.requests.next_request(now)
            if query is not None:
                assert query.names == ["nowhere"]
                bench.answer(query, now)
                asked_at.append(now)
                bench.want("nowhere", "nowhere", now=now)  # those that were refused come again
            now = max(now, bench.requests.next_wake(now))
        pauses = [round(after - before, 3) for before, after in pairwise(asked_at)]
        assert pauses[: TRIES + 1] == [BACKOFF] * (TRIES - 1) + [2 * BACKOFF, 4 * BACKOFF]
        assert set(pauses[TRIES + 1 :]) == {LONGEST_S}
        assert len(pauses) > 2 * TRIES

    def test_it_is_seen_within_the_longest_pause_of_turning_up_and_is_like_any_other_then(self) -> None:
        bench = Bench().started()
        now = 0.0
        for _ in range(3 * TRIES):
            bench.want("late", now=now)
            now = max(now, bench.requests.next_wake(now))
            bench.answer(bench.next(now), now)
        bench.there["late"] = 1
        bench.ready.clear()
        bench.want("late", now=now)
        assert bench.requests.next_request(now) is None
        assert bench.requests.next_wake(now) == pytest.approx(now + LONGEST_S)
        bench.answer(bench.next(now + LONGEST_S), now + LONGEST_S)
        assert bench.ready == ["late"]
        del bench.there["late"]
        bench.requests.invalidate(["late"], "error", now + LONGEST_S)
        bench.want("late", now=now + LONGEST_S)
        bench.answer(bench.next(now + LONGEST_S), now + LONGEST_S)
        assert bench.requests.next_wake(now + LONGEST_S) == pytest.approx(now + LONGEST_S + BACKOFF)

    def test_who_comes_while_it_is_waited_for_is_refused_with_the_others(self) -> None:
        bench = Bench().started()
        bench.want("nowhere")
        bench.answer(bench.next(0.0), 0.0)
        bench.want("nowhere", now=0.01)
        assert bench.requests.next_request(0.01) is None
        for tries in range(1, TRIES):
            now = tries * BACKOFF
            bench.answer(bench.next(now), now)
        assert bench.ready == ["nowhere"] * 2

    def test_however_many_topics_are_unknown_at_once_records_are_refused(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(missing_topics, "MAX_MISSING", 2)
        bench = Bench().started()
        bench.want(*"abcde")
        for tries in range(TRIES):
            query = bench.requests.next_request(tries * BACKOFF)
            if query is not None:
                bench.answer(query, tries * BACKOFF)
        assert sorted(bench.ready) == [*"abcde"]

    def test_one_that_turns_up_is_told_at_once(self) -> None:
        bench = Bench().started()
        bench.want("late")
        bench.answer(bench.next(0.0), 0.0)
        bench.there["late"] = 1
        bench.answer(bench.next(BACKOFF), BACKOFF)
        assert bench.ready == ["late"]
        assert bench.requests.next_request(2 * BACKOFF) is None

    def test_an_answer_to_somebody_else_cures_the_pause(self) -> None:
        bench = Bench().started()
        bench.want("late")
        bench.answer(bench.next(0.0), 0.0)
        bench.there["late"] = 1
        bench.ask("late")
        bench.answer(bench.next(0.01), 0.01)
        assert bench.ready == ["late"]
        assert bench.requests.next_request(BACKOFF) is None

    def test_what_is_wrong_is_asked_for_where_records_go_there(self) -> None:
        bench = Bench({"a": 1, "b": 1}).started()
        bench.ask("b")
        bench.want("a")
        bench.answer(bench.next(0.1), 0.1)
        bench.requests.invalidate(["a", "b"], "error", 0.2)
        assert bench.next(0.2) == MetadataQuery(["a"], [], creates=False, elsewhere=True)
        assert bench.cache.find("b", 0.3) is None, "nor served"

    @pytest.mark.parametrize("cause", ["error", "connection"])
    @pytest.mark.parametrize(("after", "elsewhere"), [(0.1, True), (DOUBT_S - 0.1, True), (DOUBT_S, False)])
    def test_a_broker_whose_answer_did_not_cure_the_error_is_not_asked_again(
        self, after: float, elsewhere: bool, cause: Cause
    ) -> None:
        """Later than that the topic has changed since."""
        bench = Bench({"a": 1}).started()
        bench.want("a")
        bench.answer(bench.next(0.1), 0.1)
        bench.requests.invalidate(["a"], cause, 0.1 + after)
        query = bench.next(0.1 + after)
        assert "a" in (query.names or ())
        assert query.elsewhere is elsewhere
        bench.answer(query, 0.2 + after)
        bench.ask("a")
        assert not bench.next(0.2 + after).elsewhere, "the doubt was about the other one"

    @pytest.mark.parametrize("left_at", [0.15, 0.1 + BACKOFF])
    def test_the_doubt_about_what_nobody_waits_for_any_more_is_forgotten(
        self, left_at: float, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(metadata_requests, "MAX_TOPICS", 1)
        bench = Bench().started()
        for name in ("a", "b"):
            bench.requests.want(name, bench.ready.clear, 0.0)
            bench.answer(bench.next(0.1), 0.1)
        if left_at > 0.15:
            assert bench.next(left_at) == MetadataQuery(["a"], [], creates=False, elsewhere=True)
        for name in ("a", "b"):
            bench.requests.forget(name, bench.ready.clear)
        assert bench.requests.next_request(left_at + BACKOFF) is None
        bench.ask("b")
        assert not bench.next(100.0).elsewhere

    def test_and_again_where_it_is_being_asked_for(self) -> None:
        bench = Bench({"a": 1}).started()
        bench.ask("a")
        query = bench.next(0.1)
        bench.requests.invalidate(["a"], "error", 0.2)
        bench.answer(query, 0.3, asked_at=0.1)
        assert bench.next(0.3) == MetadataQuery(["a"], [], creates=False)

    def test_brokers_that_are_wrong_are_asked_for(self) -> None:
        bench = Bench().started()
        bench.requests.invalidate([], "connection", 0.1)
        assert bench.next(0.1) == MetadataQuery([], [], creates=False)


class TestAges:
    def test_what_is_due_is_asked_for_a_group_at_a_time_though_clients_keep_asking(self) -> None:
        bench = Bench({f"t{number}": 1 for number in range(2 * GROUP)}).started()
        bench.ask(*bench.there)
        bench.answer(bench.next(0.0), 0.0)
        groups = []
        for step in range(2):
            now = SOFT + step * BACKOFF
            bench.ask(f"new{step}")
            names = bench.next(now).names or []
            assert f"new{step}" in names
            groups.append([name for name in names if name in bench.there])
        assert [len(group) for group in groups] == [GROUP, GROUP]
        assert {name for group in groups for name in group} == set(bench.there)

    def test_a_refresh_that_fails_is_due_no_sooner_by_its_age(self) -> None:
        bench = Bench({"a": 1}).started()
        bench.ask("a")
        bench.answer(bench.next(0.0), 0.0)
        bench.requests.failed(bench.next(SOFT))
        assert bench.cache.due(SOFT + 1.0) == []
        assert bench.next(SOFT + BACKOFF).names == ["a"], "but because it failed"

    def test_the_next_wake_is_when_the_first_thing_is_due(self) -> None:
        bench = Bench({"a": 1}).started()
        bench.ask("a")
        bench.answer(bench.next(0.0), 0.0)
        assert bench.requests.next_request(0.0) is None
        wake = bench.requests.next_wake(0.0)
        assert SOFT * (1 - JITTER) <= wake <= SOFT
        assert bench.next(wake).names == ["a"]

    def test_a_retry_comes_before_what_is_due(self) -> None:
        bench = Bench({"a": 1}).started()
        bench.want("a")
        bench.answer(bench.next(0.0), 0.0)
        bench.requests.retry_later("a", 5.0)
        assert bench.requests.next_wake(5.0) == 5.0 + BACKOFF
        assert bench.next(5.0 + BACKOFF).names == ["a"]


def test_causes_are_told() -> None:
    bench = Bench({"a": 1})
    bench.next(0.0)
    bench.want("a")
    bench.ask("a", "b", creates=True)
    bench.requests.invalidate(["a"], "error", 0.0)
    bench.requests.invalidate([], "connection", 0.0)
    assert bench.causes == ["max_age", "new_topic", "client", "client", "error", "connection"]


TestLives = MetadataMachine.TestCase
TestLives.settings = settings(max_examples=100, stateful_step_count=30, deadline=None)
