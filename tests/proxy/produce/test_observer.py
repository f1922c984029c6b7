"""While Forebay only observes, brokers get what clients sent, byte for byte; and what it would have done is counted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from forebay_codecs.api_keys import PRODUCE
from forebay_codecs.compression import GZIP
from forebay_codecs.error_codes import NONE, NOT_LEADER_OR_FOLLOWER
from forebay_policies import own_choices
from forebay_policies.journal_rows import LONGEST_CLIENT_ID, GaugeRow, LedgerRow, ObservedRow
from forebay_proxy.metrics import clients_seen
from forebay_proxy.metrics.catalog import FLUSH_REASONS
from forebay_proxy.produce import observer
from forebay_proxy.produce.handler import SLICE
from tests.codecs.message_oracle import messages
from tests.codecs.record_oracle import Record
from tests.kit.app import Running, running
from tests.kit.event_loop import in_loop, turns, until
from tests.kit.fake_broker import FakeCluster
from tests.kit.journal import of, rows_in
from tests.kit.wire import Batches, batch, keyed, null_key, old_produce, only, produce, produced

OBSERVED: dict[str, Any] = {"moves": "observe"}
TOPICS = {"ponds": [0, 0, 0, 0], "lakes": [0, 0], "single": [0]}


def records(forebay: Running) -> tuple[float, float]:
    """(would have moved, would have been kept)."""
    moved, kept = (forebay.count("forebay_observed_records_total", fate) for fate in ("moved", "kept"))
    return moved, kept


def batches(forebay: Running) -> tuple[float, float]:
    """(came, would have been sent)."""
    came, sent = (forebay.count("forebay_observed_batches_total", side) for side in ("client", "upstream"))
    return came, sent


async def known(forebay: Running, client: Any, *topics: str) -> None:
    """Forebay knows the topics, which it is told of by the first record of each; the client's connection stands."""
    for topic in topics:
        client.send(produce(99, (topic, 0, batch(keyed("first"))), client_id="first"))
        await client.receives(99)
    await until(lambda: all(topic in forebay.app._realm.view.cluster.topics for topic in topics))


class TestNothingIsTouched:
    @in_loop
    @pytest.mark.parametrize("acks", [0, 1])
    @pytest.mark.parametrize(
        "sent",
        [
            [("ponds", 1, batch(null_key("a", "b")))],
            [("ponds", 1, batch(keyed("a"))), ("lakes", 0, batch(null_key("b"), GZIP))],
            [("ponds", 1, batch([*null_key("a"), *keyed("b")]))],
            [("ponds", 1, batch(null_key("a"), crc=1))],
            [("ponds", 1, batch(null_key("a"), producer_id=7)), ("ponds", 2, batch(null_key("a")))],
            [("ponds", index % 4, batch(null_key("a"))) for index in range(observer.MAX_BATCHES + 9)],
        ],
    )
    async def test_a_request_reaches_its_broker_byte_for_byte(self, sent: list[Batches], acks: int) -> None:
        async with FakeCluster(TOPICS) as cluster, running(cluster.bootstrap, **OBSERVED) as forebay:
            client = await forebay.client(0)
            await known(forebay, client, "ponds", "lakes")
            cluster[0].forget()
            frame = produce(7, *sent, acks=acks)
            client.send(frame)
            asked = await cluster[0].receives(PRODUCE)
            assert asked.frame == frame[4:]
            assert (
                forebay.count("forebay_records_total", "moved") == forebay.count("forebay_records_total", "kept") == 0
            )

    @in_loop
    async def test_beside_one_that_is_merged_it_is_untouched(self) -> None:
        async with FakeCluster(TOPICS) as cluster, running(cluster.bootstrap, topics_observe=("ponds",)) as forebay:
            client = await forebay.client(0)
            await known(forebay, client, "ponds")
            cluster[0].forget()
            cluster[0].holds(PRODUCE)
            untouched = batch(null_key("seen"), GZIP)
            client.send(produce(1, ("ponds", 1, untouched), ("lakes", 1, batch(null_key("moves")))))
            asked = [await cluster[0].receives(PRODUCE) for _ in range(2)]
            frames = {topic: each.frame for each in asked for topic, _ in each.produce.topics}
            assert untouched in frames["ponds"]
            assert frames["ponds"] != frames["lakes"]
            cluster[0].releases(PRODUCE)
            for each in asked:
                each.answer()
            (answer,) = await client.receives(1)
            assert {told.error_code for told in produced(answer).values()} == {NONE}
            assert sum(records(forebay)) == 1
            assert forebay.count("forebay_batches_in_total", "observed") == 2
            assert forebay.count("forebay_batches_in_total", "null_key") == 1

    @in_loop
    async def test_message_sets_are_converted_as_all_untouched_ones_are_and_observed(self) -> None:
        async with FakeCluster(TOPICS) as cluster, running(cluster.bootstrap, **OBSERVED) as forebay:
            client = await forebay.client(0)
            await known(forebay, client, "ponds")
            came = batches(forebay)[0]
            client.send(old_produce(1, ("ponds", 1, messages([Record(None, b"a"), Record(None, b"b")], magic=0))))
            await client.receives(1)
            assert cluster.values("ponds", 1) == ["a", "b"]
            assert batches(forebay)[0] == came + 1
            assert sum(records(forebay)) == 2

    @in_loop
    async def test_what_may_not_be_touched_is_not_observed_either(self) -> None:
        changed = {**OBSERVED, "topics_exclude": ("lakes",), "client_ids_exclude": ("connect-*",)}
        async with FakeCluster(TOPICS) as cluster, running(cluster.bootstrap, **changed) as forebay:
            client = await forebay.client(0)
            await known(forebay, client, "ponds")
            before = batches(forebay), forebay.count("forebay_observed_batches_unread_total")
            client.send(
                produce(1, ("lakes", 0, batch(null_key("a")))),
                produce(2, ("ponds", 0, batch(null_key("a"))), client_id="connect-1"),
                produce(3, ("ponds", 0, batch(null_key("a"), producer_id=7))),
            )
            await client.receives(1, 2, 3)
            assert (batches(forebay), forebay.count("forebay_observed_batches_unread_total")) == before
            for reason in ("topic_excluded", "client_excluded", "idempotent"):
                assert forebay.count("forebay_batches_in_total", reason) == 1


class TestWhatIsCounted:
    @in_loop
    async def test_an_example_by_hand(self) -> None:
        """Four batches in one turn of the loop, of the two partitions of "lakes"; round robin puts the three without a
        key on 0, 1, 0 or 1, 0, 1. The one with a key shares no batch with them. So there would be three batches."""
        settings = {**OBSERVED, "partitioner": "round_robin"}
        async with FakeCluster(TOPICS) as cluster, running(cluster.bootstrap, **settings) as forebay:
            client = await forebay.client(0)
            await known(forebay, client, "lakes")
            events = forebay.app._realm.handler.observer._queues._events
            await until(lambda: forebay.count("forebay_observed_requests_total", "upstream") >= 0 and not events)
            moved, kept = records(forebay)
            came, sent = batches(forebay)
            client.send(
                produce(
                    1,
                    ("lakes", 0, batch(null_key("a"))),
                    ("lakes", 0, batch(null_key("b"))),
                    ("lakes", 0, batch(null_key("c"))),
                    ("lakes", 0, batch(keyed("d", "e"))),
                )
            )
            await client.receives(1)
            assert sum(records(forebay)) == moved + kept + 5
            assert records(forebay)[0] - moved in (1, 2)
            assert batches(forebay) == (came + 4, sent + 3)
            await until(
                lambda: forebay.count("forebay_observed_requests_total", "upstream") >= 2
            )  # the request leaves at the end of a turn
            requests = [forebay.count("forebay_observed_requests_total", side) for side in ("client", "upstream")]
            assert requests[0] == requests[1]

    @in_loop
    @pytest.mark.parametrize(
        ("moves", "batch_metrics", "request_metric"),
        [
            ("observe", [("observed_batches_total", "upstream")], "observed_requests_total"),
            ("on", [("batches_flushed_total", reason) for reason in FLUSH_REASONS], "produce_requests_total"),
        ],
    )
    async def test_what_is_forecast_is_what_merging_does(
        self, moves: str, batch_metrics: list[tuple[str, str]], request_metric: str
    ) -> None:
        """Six batches with keys, of three partitions. Of one the codec changes, so that a batch of it waits for the
        one before: four batches in two requests."""
        sent = [("ponds", index % 2, batch(keyed(f"{index}"))) for index in range(4)]
        sent += [("lakes", 0, batch(keyed("x"))), ("lakes", 0, batch(keyed("y"), GZIP))]
        async with FakeCluster(TOPICS) as cluster, running(cluster.bootstrap, moves=moves) as forebay:

            def counted() -> tuple[float, float]:
                batches_sent = sum(forebay.count(f"forebay_{name}", label) for name, label in batch_metrics)
                return batches_sent, forebay.count(f"forebay_{request_metric}", "upstream")

            client = await forebay.client(0)
            await known(forebay, client, "ponds", "lakes")
            batches_before, requests_before = counted()
            client.send(produce(1, *sent))
            await client.receives(1)
            await until(lambda: counted() == (batches_before + 4, requests_before + 2))

    @in_loop
    async def test_where_there_is_one_partition_nothing_would_move(self) -> None:
        async with FakeCluster(TOPICS) as cluster, running(cluster.bootstrap, **OBSERVED) as forebay:
            client = await forebay.client(0)
            await known(forebay, client, "single")
            client.send(produce(1, ("single", 0, batch(null_key("a")))))
            await client.receives(1)
            assert records(forebay) == (0, 1)

    @in_loop
    async def test_what_is_not_looked_at_is_told(self) -> None:
        """What is damaged, what is too much, and topics that are not known yet."""
        async with FakeCluster(TOPICS) as cluster, running(cluster.bootstrap, **OBSERVED) as forebay:
            client = await forebay.client(0)
            await known(forebay, client, "ponds")
            before = forebay.count("forebay_observed_batches_unread_total")
            came = batches(forebay)[0]
            client.send(produce(1, ("ponds", 0, batch(keyed("a"), crc=1)), ("ponds", 1, batch(keyed("a")))))
            client.send(produce(2, *[("ponds", 0, batch(keyed("a")))] * (observer.MAX_BATCHES + 9)))
            client.send(produce(3, ("lakes", 0, batch(keyed("a"))), ("ponds", 4, batch(keyed("a")))))
            await client.receives(1, 2, 3)
            assert forebay.count("forebay_observed_batches_unread_total") - before == 1 + 9 + 2
            assert batches(forebay)[0] - came == 1 + observer.MAX_BATCHES

    @in_loop
    async def test_no_more_is_decompressed_than_may_be(self) -> None:
        settings = {**OBSERVED, "max_decompressed_bytes": 50_000}
        async with FakeCluster(TOPICS) as cluster, running(cluster.bootstrap, **settings) as forebay:
            client = await forebay.client(0)
            await known(forebay, client, "ponds")
            before = forebay.count("forebay_observed_batches_unread_total")
            packed = batch(keyed("a" * 20_000), GZIP)
            client.send(produce(1, *[("ponds", 0, packed)] * 4))
            await client.receives(1)
            assert forebay.count("forebay_observed_batches_unread_total") - before == 2

    @in_loop
    async def test_the_partitioner_that_really_chooses_is_not_disturbed(self) -> None:
        async with FakeCluster(TOPICS) as cluster, running(cluster.bootstrap, client_ids_observe=("seen",)) as forebay:
            client = await forebay.client(0)
            client.send(produce(1, ("ponds", 0, batch(null_key("a")))))
            await client.receives(1)
            kinds = ("sticky", "switch")
            chosen = [forebay.count("forebay_partitioner_choices_total", "adaptive", kind) for kind in kinds]
            client.send(produce(2, ("ponds", 0, batch(null_key("a"))), client_id="seen"))
            await client.receives(2)
            assert sum(records(forebay)) == 1
            assert chosen == [forebay.count("forebay_partitioner_choices_total", "adaptive", kind) for kind in kinds]


class TestChangedWhileClientsSend:
    """What is drawn at random stands in test_changed_patterns."""

    @in_loop
    async def test_what_was_observed_is_answered_before_what_is_merged_is_sent(self) -> None:
        async with FakeCluster(TOPICS) as cluster, running(cluster.bootstrap, **OBSERVED) as forebay:
            client = await forebay.client(0)
            cluster[0].holds(PRODUCE)
            client.send(produce(1, ("ponds", 0, batch(keyed("first")))))
            away = await cluster[0].receives(PRODUCE)
            forebay.change(moves="on")
            client.send(produce(2, ("ponds", 0, batch(keyed("second")))), produce(3, ("ponds", 0, batch(keyed("3rd")))))
            behind = await cluster[0].receives(PRODUCE)
            assert (behind.connection, behind.values) == (away.connection, ["second"])
            cluster[0].releases(PRODUCE)
            away.answer()
            behind.answer()
            await client.receives(1, 2, 3)
            assert cluster.values("ponds", 0) == ["first", "second", "3rd"]
            assert forebay.count("forebay_batches_in_total", "keyed") == 1


class TestWhoPicksPartitions:
    @in_loop
    async def test_a_client_that_does_is_told_from_one_that_does_not(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(own_choices, "TURN_S", 0.0)
        monkeypatch.setattr(own_choices, "TURN_BYTES", 1)
        async with FakeCluster(TOPICS) as cluster, running(cluster.bootstrap, **OBSERVED) as forebay:
            picks, does_not = await forebay.client(0), await forebay.client(0)
            await known(forebay, await forebay.client(0), "ponds", "single")
            for number in range(40):
                sent = ("ponds", 1, batch(null_key("a"))), ("single", 0, batch(null_key("a")))
                picks.send(produce(number, *sent, client_id="picks"))
                does_not.send(produce(number, ("ponds", number % 4, batch(null_key("a"))), client_id="does not"))
                await picks.receives(number)
                await does_not.receives(number)
            told = {row["client_id"]: row["picks_partitions"] for row in clients_seen.rows(forebay.clients())}
            assert told["picks"] == [{"topic": "ponds", "used": 1, "partitions": 4}]
            assert told["does not"] == []


class TestJournal:
    async def _told(self, folder: Path, *frames: bytes, numbers: tuple[int, ...], **changed: Any) -> list[Any]:
        settings = {**OBSERVED, **changed, "journal_dir": str(folder)}
        async with FakeCluster(TOPICS) as cluster, running(cluster.bootstrap, **settings) as forebay:
            client = await forebay.client(0)
            await known(forebay, client, "ponds")
            client.send(*frames)
            await client.receives(*numbers)
            await turns()
            await forebay.app.drain()
        rows: list[Any] = rows_in(folder)
        return rows

    @in_loop
    async def test_each_batch_is_told_with_what_became_of_it(self, tmp_path: Path) -> None:
        mixed = batch([*null_key("a", "b"), *keyed("c")])
        rows = await self._told(tmp_path, produce(1, ("ponds", 2, mixed), client_id="till-7"), numbers=(1,))
        first, row = of(ObservedRow, rows)
        assert (row.topic, row.partition, row.partitions, row.leader) == ("ponds", 2, 4, 0)
        assert (row.client_id, row.host, row.acks, row.version, row.codec) == ("till-7", "127.0.0.1", 1, 7, 0)
        assert (row.records, row.null_key_records) == (3, 2)
        assert 0 < row.null_key_bytes < row.bytes < len(mixed)
        assert 0 <= row.chosen < 4
        assert row.opens == 2
        assert row.error_code == NONE
        assert row.time_us - row.received_us >= row.took_us >= 0
        assert (first.seq, row.seq, row.number) == (1, 2, 2)
        assert first.took_us == -1, "it had to connect"
        assert of(GaugeRow, rows)[-1].observed_rows_total == 2

    @in_loop
    async def test_what_waits_behind_another_says_nothing_about_the_broker(self, tmp_path: Path) -> None:
        frames = [produce(number, ("ponds", 0, batch(keyed("a")))) for number in (1, 2)]
        rows = of(ObservedRow, await self._told(tmp_path, *frames, numbers=(1, 2)))
        assert [row.took_us >= 0 for row in rows[1:]] == [True, False]
        assert len({row.number for row in rows}) == 3

    @in_loop
    async def test_without_acks_nothing_is_known_of_the_answer(self, tmp_path: Path) -> None:
        frames = produce(1, ("ponds", 0, batch(keyed("a"))), acks=0), produce(2, ("ponds", 0, batch(keyed("b"))))
        unheard, heard = of(ObservedRow, await self._told(tmp_path, *frames, numbers=(2,)))[1:]
        assert (unheard.acks, unheard.took_us, unheard.error_code) == (0, -1, None)
        assert heard.error_code == NONE

    @in_loop
    async def test_a_request_that_takes_turns_with_others_has_one_number(self, tmp_path: Path) -> None:
        observed = [("ponds", number, batch(keyed("a"))) for number in range(2 * SLICE)]
        frame = produce(1, ("lakes", 0, batch(null_key("b"))), *observed)
        settings = {**OBSERVED, "topics_move": ("lakes",), "journal_dir": str(tmp_path)}
        async with FakeCluster(TOPICS) as cluster, running(cluster.bootstrap, **settings) as forebay:
            clients = [await forebay.client(0), await forebay.client(0)]
            for client in clients:
                await known(forebay, client, "ponds", "lakes")
            for client in clients:
                client.send(frame)
            for client in clients:
                await client.receives(1)
            await forebay.app.drain()
        rows = [row for row in of(ObservedRow, rows_in(tmp_path)) if row.topic == "ponds"]
        numbers = {(row.connection, row.number) for row in rows if row.partition >= 4}
        assert len(numbers) == len({connection for connection, _ in numbers}) == 2

    @in_loop
    async def test_a_client_id_that_is_too_long_is_cut(self, tmp_path: Path) -> None:
        frame = produce(1, ("ponds", 0, batch(keyed("a"))), client_id="c" * 30_000)
        row = of(ObservedRow, await self._told(tmp_path, frame, numbers=(1,)))[-1]
        assert row.client_id == "c" * LONGEST_CLIENT_ID

    @in_loop
    async def test_beside_what_is_merged_too(self, tmp_path: Path) -> None:
        frame = produce(1, ("ponds", 0, batch(null_key("a"))), ("lakes", 0, batch(null_key("b"))))
        rows = await self._told(tmp_path, frame, numbers=(1,), topics_move=("lakes",))
        assert [(row.topic, row.error_code) for row in of(ObservedRow, rows)][1:] == [("ponds", NONE)]

    @in_loop
    async def test_the_ledger_has_it_as_untouched(self, tmp_path: Path) -> None:
        frame = produce(1, ("ponds", 0, batch(null_key("a"))))
        rows = await self._told(tmp_path, frame, numbers=(1,), journal_ledger=True)
        assert {(row.reason, len(row.parts), row.error_code) for row in of(LedgerRow, rows)} == {("observed", 0, None)}

    @in_loop
    async def test_the_ledger_knows_how_many_records_a_message_set_has_and_where_they_are(self, tmp_path: Path) -> None:
        frame = old_produce(1, ("ponds", 0, messages([Record(None, b"a"), Record(None, b"b")], magic=0)))
        rows = await self._told(tmp_path, frame, numbers=(1,), journal_ledger=True)
        row = of(LedgerRow, rows)[-1]
        assert (row.reason, row.records, row.parts, row.error_code) == ("observed", 2, [], NONE)
        assert row.base_offset >= 0

    @in_loop
    async def test_a_refusal_is_told(self, tmp_path: Path) -> None:
        settings = {**OBSERVED, "journal_dir": str(tmp_path)}
        async with FakeCluster(TOPICS) as cluster, running(cluster.bootstrap, **settings) as forebay:
            client = await forebay.client(0)
            cluster[0].holds(PRODUCE)
            client.send(produce(1, ("ponds", 0, batch(keyed("a")))))
            (await cluster[0].receives(PRODUCE)).answer(error_code=NOT_LEADER_OR_FOLLOWER)
            cluster[0].releases(PRODUCE)
            assert only((await client.receives(1))[0]).error_code == NOT_LEADER_OR_FOLLOWER
            await forebay.app.drain()
        assert [row.error_code for row in of(ObservedRow, rows_in(tmp_path))] == [NOT_LEADER_OR_FOLLOWER]


@in_loop
async def test_producers_on_one_port_are_observed_as_well(tmp_path: Path) -> None:
    settings = {**OBSERVED, "producers_only": True, "journal_dir": str(tmp_path)}
    async with FakeCluster({"ponds": [0, 1]}, nodes=2) as cluster, running(cluster.bootstrap, **settings) as forebay:
        client = await forebay.client()
        await known(forebay, client, "ponds")
        client.send(produce(1, ("ponds", 0, batch(null_key("a"))), ("ponds", 1, batch(null_key("b")))))
        assert {told.error_code for told in produced((await client.receives(1))[0]).values()} == {NONE}
        await forebay.app.drain()
    rows = of(ObservedRow, rows_in(tmp_path))[1:]
    assert [(row.leader, row.error_code, row.took_us) for row in rows] == [(0, NONE, -1), (1, NONE, -1)]


@in_loop
async def test_another_linger_counts_for_what_is_observed_too() -> None:
    lingers = {"linger_ms": 0, **OBSERVED}
    async with FakeCluster(TOPICS) as cluster, running(cluster.bootstrap, **lingers) as forebay:
        client = await forebay.client(0)
        await known(forebay, client, "ponds")

        async def opened_by_two(number: int) -> float:
            _, before = batches(forebay)
            for correlation_id in (number, number + 1):
                client.send(produce(correlation_id, ("ponds", 1, batch(keyed("a")))))
                await client.receives(correlation_id)
            return batches(forebay)[1] - before

        assert await opened_by_two(1) == 2
        forebay.change(linger_ms=60_000)
        assert await opened_by_two(3) <= 1  # the last one before may be open still
