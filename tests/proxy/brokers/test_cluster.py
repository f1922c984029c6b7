"""What metadata says becomes leaders, available partitions, and news of brokers."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial

import pytest

from forebay_codecs.error_codes import (
    LEADER_NOT_AVAILABLE,
    NONE,
    TOPIC_AUTHORIZATION_FAILED,
    UNKNOWN_TOPIC_OR_PARTITION,
)
from forebay_codecs.metadata import NO_TOPIC_ID
from forebay_policies.accumulator import NO_LEADER, Accumulator, PartitionQueue
from forebay_policies.memory_shares import MemoryRequest
from forebay_proxy.brokers.cluster import Cluster, Node
from tests.kit import fakes_proxy as fakes
from tests.kit.wire import keyed

MAX_AGE = 300.0


class Told:
    """A cluster and what it told."""

    def __init__(self) -> None:
        self.accumulator: Accumulator = fakes.accumulator()
        self.cluster = Cluster(self.accumulator)
        self.news: list[tuple[int, str, bool]] = []
        self.gone: list[tuple[str, int]] = []
        self.forgotten: list[str] = []
        self.cluster.on_node(self._note)
        self.cluster.on_partitions_gone(self._note_gone)
        self.cluster.on_forgotten(self.forgotten.append)

    def _note(self, node: Node) -> None:
        self.news.append((node.id, node.host, not node.gone))

    def _note_gone(self, queues: list[PartitionQueue]) -> None:
        self.gone += [(queue.topic.name, queue.index) for queue in queues]

    def available(self, name: str = "ponds") -> list[int]:
        return list(self.cluster.topics[name].queues.available)


class TestNodes:
    def test_a_broker_is_told_once_and_again_when_it_moves(self) -> None:
        told = Told()
        cluster = told.cluster
        for host in ("a", "a", "b", "b"):
            cluster.learn(1, host, 9092, 0.0)
        assert told.news == [(1, "a", True), (1, "b", True)]

    def test_a_broker_that_is_named_no_more_is_gone_in_time(self) -> None:
        told = Told()
        cluster = told.cluster
        cluster.apply(fakes.metadata({}, nodes=(0, 1)), set(), 0.0, MAX_AGE)
        cluster.apply(fakes.metadata({}, nodes=(0,)), set(), MAX_AGE, MAX_AGE)
        assert sorted(cluster.nodes) == [0, 1]
        cluster.apply(fakes.metadata({}, nodes=(0,)), set(), MAX_AGE + 1, MAX_AGE)
        assert sorted(cluster.nodes) == [0]
        assert told.news[-1] == (1, "1.example", False)

    def test_a_broker_that_responses_still_name_stays(self) -> None:
        cluster = Told().cluster
        cluster.apply(fakes.metadata({}, nodes=(0, 1)), set(), 0.0, MAX_AGE)
        cluster.learn(1, "1.example", 9092, MAX_AGE)
        cluster.apply(fakes.metadata({}, nodes=(0,)), set(), MAX_AGE + 1, MAX_AGE)
        assert 1 in cluster.nodes


class TestAnotherCluster:
    """Its ids are asked for before records go there."""

    @pytest.fixture
    def told(self) -> Told:
        return Told()

    def ids_after(self, told: Told, news: Iterable[Callable[[], None]]) -> list[int | None]:
        """The producer id in use behind each of the news; before it was 7."""
        ids = told.accumulator.ids
        ids.observe(lambda: None)
        kind = next(iter(ids.wanted))
        found = []
        for tell in news:
            ids.arrived(kind, 7, 0)
            tell()
            current = ids.of(kind)
            found.append(current.number if current is not None else None)
        return found

    def test_by_its_id(self, told: Told) -> None:
        answers = [fakes.metadata({})._replace(cluster_id=cluster_id) for cluster_id in ("one", "one", "another")]
        news = [partial(told.cluster.apply, answer, set(), 0.0, MAX_AGE) for answer in answers]
        assert self.ids_after(told, news) == [7, 7, None]

    def test_by_topics_that_are_made_again_for_a_wiped_one_may_keep_its_id(self, told: Told) -> None:
        (topic,) = fakes.metadata({"ponds": [0]}).topics
        topics = [topic._replace(topic_id=each * 16) for each in (b"1", b"1", b"2")]
        news = [partial(told.cluster.apply_topics, [each], {"ponds"}, 0.0) for each in topics]
        assert self.ids_after(told, news) == [7, 7, None]

    def test_other_topics_keep_their_ids_until_there_are_others(self, told: Told) -> None:
        told.accumulator.ids.observe(lambda: None)
        topics = fakes.metadata({"ponds": [0], "lakes": [0], "seas": [0]}).topics
        first = [each._replace(topic_id=b"1" * 16) for each in topics]
        told.cluster.apply_topics(first, {"ponds", "lakes", "seas"}, 0.0)
        sequences = {name: state.queues.queue(0).sequence for name, state in told.cluster.topics.items()}
        for sequence in sequences.values():
            sequence.producer_id = 7
        made_again = first[0]._replace(topic_id=b"2" * 16)
        told.cluster.apply_topics([made_again, first[2]], {"ponds", "lakes", "seas"}, 0.0)
        assert [sequences[name].producer_id for name in ("ponds", "lakes", "seas")] == [-1, -1, 7]

    def test_by_topics_that_are_gone_which_may_be_forgotten_when_they_are_made_again(self, told: Told) -> None:
        (topic,) = fakes.metadata({"ponds": [0]}).topics
        news = [partial(told.cluster.apply_topics, each, {"ponds"}, 0.0) for each in ([], [topic], [], [])]
        assert self.ids_after(told, news) == [7, 7, None, 7]


class TestAvailability:
    def test_partitions_without_a_leader_or_with_one_that_is_down_are_not_available(self) -> None:
        told = Told()
        cluster = told.cluster
        cluster.apply(fakes.metadata({"ponds": [0, NO_LEADER, 1, 7]}), {"ponds"}, 0.0, MAX_AGE)
        assert told.available() == [0, 2]
        assert cluster.set_down(cluster.nodes[0], down=True)
        assert told.available() == [2]
        assert not cluster.set_down(cluster.nodes[0], down=True)
        assert cluster.set_down(cluster.nodes[0], down=False)
        assert told.available() == [0, 2]

    def test_a_broker_that_is_avoided_has_no_available_partitions_where_there_are_others(self) -> None:
        told = Told()
        cluster = told.cluster
        cluster.avoid(frozenset({1}))
        cluster.apply(fakes.metadata({"ponds": [0, 1, 0, 1], "lakes": [1, 1]}), {"ponds", "lakes"}, 0.0, MAX_AGE)
        assert (told.available(), told.available("lakes")) == ([0, 2], [0, 1])
        cluster.set_down(cluster.nodes[0], down=True)
        assert told.available() == [1, 3], "no other is left"
        cluster.set_down(cluster.nodes[0], down=False)
        cluster.set_leaders("ponds", {0: 1, 4: 1, -1: 1}, 0.0)
        assert told.available() == [2]
        cluster.avoid(frozenset())
        assert told.available() == [0, 1, 2, 3]

    def test_a_broker_that_comes_back_at_another_address_is_available_again(self) -> None:
        told = Told()
        cluster = told.cluster
        cluster.apply(fakes.metadata({"ponds": [0, 1]}), {"ponds"}, 0.0, MAX_AGE)
        cluster.set_down(cluster.nodes[0], down=True)
        cluster.learn(0, "elsewhere", 9092, 1.0)
        assert told.available() == [0, 1]

    def test_of_a_topic_that_has_available_partitions_again_is_told_and_not_of_more_of_them(self) -> None:
        cluster = Told().cluster
        told: list[tuple[str, list[int]]] = []
        cluster.on_available(lambda topic: told.append((topic.name, list(topic.available))))
        cluster.apply(fakes.metadata({"ponds": [NO_LEADER, NO_LEADER]}), {"ponds"}, 0.0, MAX_AGE)
        assert told == []
        cluster.apply(fakes.metadata({"ponds": [NO_LEADER, 1]}), {"ponds"}, 1.0, MAX_AGE)
        cluster.apply(fakes.metadata({"ponds": [0, 1]}), {"ponds"}, 2.0, MAX_AGE)
        assert told == [("ponds", [1])]
        for down in (True, False):
            for node in cluster.nodes.values():
                cluster.set_down(node, down=down)
        assert told[1:] == [("ponds", [0])]

    def test_who_waits_for_memory_is_looked_at_when_a_broker_can_be_reached_again(self) -> None:
        told = Told()
        cluster, pool = told.cluster, told.accumulator.pool
        cluster.apply(fakes.metadata({"ponds": [0, 1]}), {"ponds"}, 0.0, MAX_AGE)
        ponds = cluster.topics["ponds"].queues
        cluster.set_down(cluster.nodes[0], down=True)
        pool.count(pool.memory // 2 // pool.chunk_size)
        ponds.add_load(ponds.queue(1), pool.memory // 2, pool.memory // 2)
        let_in: list[int] = []
        waits = MemoryRequest("after")
        waits.add_movable(ponds, pool.chunk_size)
        assert not pool.fits(waits)
        pool.wait(waits, lambda: let_in.extend(ponds.available))
        cluster.set_down(cluster.nodes[0], down=False)
        assert let_in == [0, 1]

    def test_the_same_object_means_that_nothing_has_changed(self) -> None:
        cluster = Told().cluster
        cluster.apply(fakes.metadata({"ponds": [0, 1]}), {"ponds"}, 0.0, MAX_AGE)
        before = cluster.topics["ponds"].queues.available
        cluster.apply(fakes.metadata({"ponds": [1, 0]}), {"ponds"}, 1.0, MAX_AGE)
        assert cluster.topics["ponds"].queues.available is before
        cluster.apply(fakes.metadata({"ponds": [1, NO_LEADER]}), {"ponds"}, 2.0, MAX_AGE)
        assert cluster.topics["ponds"].queues.available is not before


class TestTopics:
    def test_leaders_are_the_accumulators_too(self) -> None:
        told = Told()
        cluster = told.cluster
        cluster.apply(fakes.metadata({"ponds": [0, 1]}), {"ponds"}, 0.0, MAX_AGE)
        state = cluster.usable("ponds")
        assert state is not None
        queue = state.queues.queue(0)
        fakes.append(told.accumulator, queue, keyed("a"))
        fakes.flush(queue, told.accumulator)
        assert told.accumulator.has_ready(0)
        cluster.apply(fakes.metadata({"ponds": [1, 1]}), {"ponds"}, 1.0, MAX_AGE)
        assert (told.accumulator.has_ready(0), told.accumulator.has_ready(1)) == (False, True)

    def test_more_partitions_are_noticed(self) -> None:
        cluster = Told().cluster
        cluster.apply(fakes.metadata({"ponds": [0]}), {"ponds"}, 0.0, MAX_AGE)
        cluster.apply(fakes.metadata({"ponds": [0, 1, 1]}), {"ponds"}, 1.0, MAX_AGE)
        assert cluster.topics["ponds"].queues.partition_count == 3

    def test_partitions_that_no_topic_has_are_overlooked(self) -> None:
        """A list of leaders as long as the highest number says would take 16 GiB."""
        cluster = Told().cluster
        (ponds, lakes) = fakes.metadata({"ponds": [0, 1, 1], "lakes": [0]}).topics
        wrong = [
            partition._replace(partition_index=index)
            for partition, index in zip(ponds.partitions, (0, 2**31 - 1, -1), strict=True)
        ]
        topics = ponds._replace(partitions=tuple(wrong)), lakes._replace(partitions=tuple(wrong[1:]))
        cluster.apply(fakes.metadata({})._replace(topics=topics), {"ponds", "lakes"}, 0.0, MAX_AGE)
        assert cluster.topics["ponds"].queues.leaders == (0,)
        assert cluster.usable("lakes") is None

    def test_a_topic_that_is_not_answered_is_unknown(self) -> None:
        cluster = Told().cluster
        cluster.apply(fakes.metadata({}), {"ponds"}, 0.0, MAX_AGE)
        assert cluster.usable("ponds") is None
        assert cluster.topics["ponds"].error_code == UNKNOWN_TOPIC_OR_PARTITION

    def test_partitions_that_it_lacks_and_why(self) -> None:
        cluster = Told().cluster
        found = fakes.metadata({"ponds": [0, 1], "lakes": []}, errors={"lakes": TOPIC_AUTHORIZATION_FAILED})
        cluster.apply(found, {"ponds", "lakes"}, 0.0, MAX_AGE)
        assert [cluster.lacks("ponds", partition) for partition in (-1, 0, 1, 2)] == [True, False, False, True]
        assert cluster.lacks("lakes", 0)
        assert cluster.lacks("seas", 0)
        assert [cluster.why_unknown(name) for name in ("ponds", "lakes", "seas")] == [
            UNKNOWN_TOPIC_OR_PARTITION,
            TOPIC_AUTHORIZATION_FAILED,
            UNKNOWN_TOPIC_OR_PARTITION,
        ]

    def test_a_topic_that_is_gone_names_the_partitions_that_wait(self) -> None:
        told = Told()
        cluster = told.cluster
        cluster.apply(fakes.metadata({"ponds": [0, 1]}), {"ponds"}, 0.0, MAX_AGE)
        queues = cluster.topics["ponds"].queues
        queues.queue(0)
        fakes.append(told.accumulator, queues.queue(1), keyed("a"))
        cluster.apply(fakes.metadata({"ponds": []}, errors={"ponds": 3}), {"ponds"}, 1.0, MAX_AGE)
        assert told.gone == [("ponds", 1)]
        assert (cluster.usable("ponds"), told.available()) == (None, [])
        cluster.apply(fakes.metadata({"ponds": [1]}), {"ponds"}, 2.0, MAX_AGE)
        assert (cluster.usable("ponds"), told.available()) == (cluster.topics["ponds"], [0])

    @pytest.mark.parametrize(
        ("before", "after", "gone"),
        [
            pytest.param(b"a" * 16, b"b" * 16, [("ponds", 1)], id="made again"),
            pytest.param(b"a" * 16, b"a" * 16, [], id="told by a broker that lags behind"),
            pytest.param(b"a" * 16, NO_TOPIC_ID, [], id="told by a broker that knows no ids"),
            pytest.param(NO_TOPIC_ID, b"b" * 16, [], id="of which no id was known"),
        ],
    )
    def test_a_topic_made_again_with_fewer_partitions_names_those_that_wait(
        self, before: bytes, after: bytes, gone: list[tuple[str, int]]
    ) -> None:
        told = Told()
        for at, (topic_id, leaders) in enumerate([(before, [0, 1]), (after, [1])]):
            (topic,) = fakes.metadata({"ponds": leaders}).topics
            told.cluster.apply_topics([topic._replace(topic_id=topic_id)], {"ponds"}, float(at))
            for index in range(len(leaders)):
                fakes.append(told.accumulator, told.cluster.topics["ponds"].queues.queue(index), keyed("a"))
        assert told.gone == gone

    def test_a_passing_error_leaves_what_was_known(self) -> None:
        told = Told()
        cluster = told.cluster
        cluster.apply(fakes.metadata({"ponds": [0, 1]}), {"ponds"}, 0.0, MAX_AGE)
        errors = {"ponds": LEADER_NOT_AVAILABLE}
        cluster.apply(fakes.metadata({"ponds": []}, errors=errors), {"ponds"}, 1.0, MAX_AGE)
        assert (told.available(), told.gone) == ([0, 1], [])

    def test_internal_topics_are_known_as_such(self) -> None:
        cluster = Told().cluster
        cluster.apply(fakes.metadata({"inner": [0], "ponds": [0]}, internal=["inner"]), {"inner"}, 0.0, MAX_AGE)
        assert [cluster.is_internal(name) for name in ("inner", "ponds", "unknown")] == [True, False, False]
        assert cluster.topics["inner"].error_code == NONE

    def test_records_that_wait_for_a_leader_are_known(self) -> None:
        told = Told()
        cluster = told.cluster
        cluster.apply(fakes.metadata({"ponds": [0, NO_LEADER, 7]}), {"ponds"}, 0.0, MAX_AGE)
        queues = cluster.topics["ponds"].queues
        assert not cluster.waits_for_leader("unknown")
        for index, waits in ((0, False), (1, True)):
            fakes.append(told.accumulator, queues.queue(index), keyed("a"))
            assert cluster.waits_for_leader("ponds") == waits
        cluster.apply(fakes.metadata({"ponds": [0, 1, 7]}), {"ponds"}, 1.0, MAX_AGE)
        assert not cluster.waits_for_leader("ponds")
        fakes.append(told.accumulator, queues.queue(2), keyed("a"))
        assert cluster.waits_for_leader("ponds")

    def test_topics_that_nothing_is_produced_to_are_forgotten(self) -> None:
        told = Told()
        cluster = told.cluster
        cluster.apply(fakes.metadata({"ponds": [0], "lakes": [0], "seas": [0]}), set(), 0.0, MAX_AGE)
        cluster.topics["lakes"].used_at = 50.0
        fakes.append(told.accumulator, cluster.topics["seas"].queues.queue(0), keyed("a"))
        cluster.forget_idle(100.5, 100.0)
        assert sorted(cluster.topics) == sorted(told.accumulator.topics) == ["lakes", "seas"]
        assert told.forgotten == ["ponds"]
