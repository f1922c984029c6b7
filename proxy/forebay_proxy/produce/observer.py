"""What Forebay would do with records that it only observes (`moves`, `topics.observe`, `client.ids.observe`).

In: Produce requests some batches of which are observed (eligibility.Reason.OBSERVED), on their way untouched; their
answers. Out: the metrics forebay_observed_…; for each client where its records without a key go (own_choices); a row of
the journal for each batch (journal_rows.ObservedRow), from which `forebay-pipeline replay` predicts.

Batches are opened, at most MAX_BATCHES of a request and max.decompressed.bytes; further ones, and those that cannot be
opened, are counted as unread. Partitioners of its own choose for them, and shadow_queues says what they would have been
merged to. Nothing here changes what is sent, or holds it up for longer than it takes to look at it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from time import monotonic
from typing import Final, NamedTuple

from forebay_codecs import produce_response
from forebay_codecs.errors import Malformed
from forebay_codecs.header import printable
from forebay_codecs.produce_request import RECORD_BATCHES_FROM, ProduceRequest
from forebay_codecs.produce_response import ProduceResponse
from forebay_codecs.record_batch import BadBatch, ClientBatch, open_batch, split_by_key
from forebay_policies.accumulator import ALL_REPLICAS, NO_LEADER
from forebay_policies.eligibility import Reason
from forebay_policies.journal_rows import LONGEST_CLIENT_ID, VERSION, ObservedRow
from forebay_policies.linger import Linger
from forebay_policies.producer_batch import Lane
from forebay_policies.shadow_queues import ShadowQueues
from forebay_proxy.brokers.cluster import Cluster, TopicState
from forebay_proxy.brokers.metadata_updater import MetadataUpdater
from forebay_proxy.config.settings import Settings
from forebay_proxy.journal.recorder import Journal
from forebay_proxy.metrics.registry import MetricRegistry
from forebay_proxy.produce.classifier import ClassifiedRequest, InspectedBatch
from forebay_proxy.produce.client import Client
from forebay_proxy.produce.topic_partitioners import TopicPartitioners

MAX_BATCHES: Final = 64
"""Of one request, as many as are merged at once, which takes a few milliseconds."""
MAX_ASKED: Final = 1000
"""Topics that are asked about at a time. Clients may name any number."""


class _Seen(NamedTuple):
    """What one batch was found to be, as ObservedRow has it."""

    topic: str
    partition: int
    partitions: int
    leader: int
    codec: int
    records: int
    bytes: int
    null_key_records: int
    null_key_bytes: int
    chosen: int
    opens: int


class _Run(NamedTuple):
    """Records of a batch that stay together. `stored`: bytes as they came, `section`: uncompressed."""

    records: int
    stored: int
    section: int
    movable: bool


class ObservedRequest:
    """One request, or a part of one that takes turns, until it is answered."""

    __slots__ = ("_at_leisure", "_observer", "_sent", "client", "number", "received", "request", "seen", "user")

    def __init__(
        self, observer: Observer, client: Client, request: ProduceRequest, number: int, seen: list[_Seen], now: float
    ) -> None:
        self._observer = observer
        self.client = client
        self.request = request
        self.number = number
        self.seen = seen
        self.received = self._sent = now
        self._at_leisure = client.at_leisure
        self.user = client.user
        """As whom it was served when it sent this, as the ledger's (Entry)."""

    def leaves(self) -> None:
        """It is written now, rather than when it was looked at."""
        self._sent = monotonic()
        self._at_leisure = self.client.at_leisure

    def heard(self, answer: bytes) -> None:
        """The broker's answer, as it came."""
        try:
            self.answered(produce_response.parse(answer, self.request.version))
        except Malformed:  # the client's to judge
            self.answered(None)

    def answered(self, response: ProduceResponse | None) -> None:
        """The broker's answer; None: there is none."""
        took = monotonic() - self._sent if response is not None and self._at_leisure else -1.0
        self._observer.answered(self, took, response)


class Observer:
    """Each batch counts once, as looked at or as unread. `partitioners`: makes those that choose for observed records.

    `journal` is None where none is kept.
    """

    def __init__(
        self,
        cluster: Cluster,
        updater: MetadataUpdater,
        settings: Settings,
        stats: MetricRegistry,
        partitioners: Callable[[Settings], TopicPartitioners],
        journal: Journal | None,
    ) -> None:
        self._cluster = cluster
        self._updater = updater
        self._settings = settings
        self._max_decompressed = settings.max_decompressed_bytes
        self._make_partitioners = partitioners
        self._partitioners: TopicPartitioners | None = None
        self._journal = journal
        self._loop = asyncio.get_running_loop()
        self._queues = ShadowQueues(
            settings.batch_size,
            settings.batch_max_size,
            settings.max_request_size,
            Linger(settings.linger_ms),
            settings.max_in_flight_requests_per_connection,
            self._acknowledged,
        )
        cluster.on_forgotten(self._queues.forget)
        self._scheduled = False
        self._asked: set[str] = set()
        self._moved = stats.counter("forebay_observed_records_total", fate="moved")
        self._kept = stats.counter("forebay_observed_records_total", fate="kept")
        self._batches = stats.counter("forebay_observed_batches_total", side="client")
        self._batches_sent = stats.counter("forebay_observed_batches_total", side="upstream")
        self._requests = stats.counter("forebay_observed_requests_total", side="client")
        self._unread = stats.counter("forebay_observed_batches_unread_total")
        stats.counter_from("forebay_observed_requests_total", self._requests_sent, side="upstream")

    def change(self, settings: Settings) -> None:
        """What is live of these counts from now on, as for records that are merged."""
        self._settings = settings
        self._queues.change(Linger(settings.linger_ms))
        if self._partitioners is not None:
            self._partitioners.change(settings)

    # Requests

    def passed(
        self, client: Client, frame: bytes, request: ProduceRequest, inspected: Sequence[InspectedBatch]
    ) -> None:
        """All of a request goes on as it came, now. The client's connection is asked to tell what it is answered."""
        seen = self._look(client, frame, request, inspected, {}, 0, None)
        if seen is None:
            return
        if request.acks == 0:
            seen.answered(None)
        else:
            client.hears(seen.heard)

    def beside(
        self,
        client: Client,
        frame: bytes,
        request: ProduceRequest,
        inspected: Sequence[InspectedBatch],
        found: ClassifiedRequest,
        first: int,
        earlier: ObservedRequest | None,
    ) -> ObservedRequest | None:
        """Slots of a request, the first of which is `first`: some are touched, or were converted, as `found` says.

        `earlier`: those of its earlier slots that were observed first; None: there are none.

        What is returned is to be told when the untouched ones are sent, and of their answer; None: none is observed.
        """
        converted = {slot - first: batch for slot, batch in (found.converted or {}).items()}
        found.converted = None
        return self._look(client, frame, request, inspected, converted, found.decompressed, earlier)

    def _look(
        self,
        client: Client,
        frame: bytes,
        request: ProduceRequest,
        inspected: Sequence[InspectedBatch],
        converted: dict[int, ClientBatch],
        decompressed: int,
        earlier: ObservedRequest | None,
    ) -> ObservedRequest | None:
        now = monotonic()
        left = self._max_decompressed - decompressed
        seen: list[_Seen] = []
        looked_at = 0
        for place, entry in enumerate(inspected):
            if entry.reason is not Reason.OBSERVED:
                continue
            batch = converted.get(place)
            if entry.message_set and batch is None:
                continue  # nothing is in it, or it was refused
            looked_at += 1
            if looked_at > MAX_BATCHES:
                self._unread.value += 1
                continue
            if batch is None:
                assert entry.header is not None, "else it would not be observed"
                try:
                    batch = open_batch(frame, entry.header, left)
                except BadBatch as error:
                    self._unread.value += 1
                    if error.opened:
                        left //= 2
                    continue
                if batch.codec:
                    left -= batch.size
            seen.append(self._judged(client, request, entry, batch, now))
        if self._queues.waits_for_turn and not self._scheduled:
            self._scheduled = True
            self._loop.call_soon(self._turn_over)
        if not seen:
            return None
        if earlier is not None:
            number = earlier.number
        else:
            self._requests.value += 1
            number = self._next_number()
        return ObservedRequest(self, client, request, number, seen, now)

    def _next_number(self) -> int:
        if self._journal is None:
            return 0
        self._journal.observed_requests += 1
        return self._journal.observed_requests

    # Batches

    def _judged(
        self, client: Client, request: ProduceRequest, entry: InspectedBatch, batch: ClientBatch, now: float
    ) -> _Seen:
        state = self._cluster.usable(entry.topic)
        partitions = state.queues.partition_count if state is not None else 0
        null_keys = 0 if partitions == 1 else batch.null_keys
        runs = _runs(batch, null_keys)
        null_key_bytes = sum([run.section for run in runs if run.movable])
        chosen, opens, leader = -1, -1, NO_LEADER
        if state is None or not 0 <= entry.partition < partitions:
            self._unread.value += 1
            if state is None:
                self._ask(entry.topic)
        else:
            state.used_at = now
            leader = state.queues.leader_of(entry.partition)
            chosen, opens = self._placed(client, request, entry, state, batch.codec, runs, now)
            if null_keys:
                old = request.version < RECORD_BATCHES_FROM
                client.null_keys_went(entry.topic, partitions, entry.partition, null_key_bytes, old=old)
        return _Seen(
            entry.topic,
            entry.partition,
            partitions,
            leader,
            batch.codec,
            batch.record_count,
            batch.size,
            null_keys,
            null_key_bytes,
            chosen,
            opens,
        )

    def _placed(
        self,
        client: Client,
        request: ProduceRequest,
        entry: InspectedBatch,
        state: TopicState,
        codec: int,
        runs: list[_Run],
        now: float,
    ) -> tuple[int, int]:
        """Count what would become of `runs`: the partition chosen for those that may move, −1 without any, and how many
        batches they would have opened."""
        if self._partitioners is None:
            self._partitioners = self._make_partitioners(self._settings)
        partitioner = self._partitioners.of(entry.topic, client.rack)
        chosen, opens = -1, 0
        for run in runs:
            lane = Lane(request.acks, codec, run.movable, client.principal)
            who = (client.host, request.client_id)
            placed = self._queues.place(
                state.queues, partitioner, entry.partition, lane, who, run.stored, run.section, now
            )
            if run.movable:
                chosen = placed.partition
            (self._kept if placed.partition == entry.partition else self._moved).value += run.records
            opens += placed.opens
        self._batches.value += 1
        self._batches_sent.value += opens
        return chosen, opens

    def _ask(self, topic: str) -> None:
        """What brokers know of it, for the next time. No topic is created by asking so."""
        if topic in self._asked or len(self._asked) >= MAX_ASKED:
            return
        self._asked.add(topic)
        self._updater.want(topic, lambda: self._asked.discard(topic))

    # Time

    def _turn_over(self) -> None:
        self._scheduled = False
        self._queues.turn_over(monotonic())

    def _requests_sent(self) -> int:
        self._queues.advance(monotonic())
        return self._queues.requests

    def _acknowledged(self, topic: str, partition: int, seconds: float) -> None:
        if self._partitioners is not None:
            self._partitioners.learned(topic, partition, seconds)

    # Answers

    def answered(self, observed: ObservedRequest, took: float, response: ProduceResponse | None) -> None:
        """`took`: the broker's seconds; −1: not known."""
        client, request, seen = observed.client, observed.request, observed.seen
        leaders = {each.leader for each in seen}
        if len(leaders) > 1 or NO_LEADER in leaders or client.node_id not in (None, *leaders):
            took = -1.0  # several brokers' times, or another's
        if took >= 0:
            for leader in leaders:
                self._queues.took(leader, took, acks_all=request.acks == ALL_REPLICAS)
        journal = self._journal
        if journal is None:
            return
        codes = _error_codes(response)
        now_us, received_us = journal.time_us(monotonic()), journal.time_us(observed.received)
        took_us = int(took * 1_000_000) if took >= 0 else -1
        client_id = printable(request.client_id or "")[:LONGEST_CLIENT_ID]
        for each in seen:
            journal.observed_rows += 1
            journal.write(
                ObservedRow(
                    now_us,
                    journal.worker,
                    journal.process,
                    observed.number,
                    received_us,
                    client.number,
                    client_id,
                    client.host,
                    request.version,
                    each.topic,
                    each.partition,
                    each.partitions,
                    each.leader,
                    request.acks,
                    each.codec,
                    each.records,
                    each.bytes,
                    each.null_key_records,
                    each.null_key_bytes,
                    each.chosen,
                    each.opens,
                    took_us,
                    codes.get((each.topic, each.partition)),
                    VERSION,
                    journal.observed_rows,
                    observed.user,
                )
            )


def _runs(batch: ClientBatch, null_keys: int) -> list[_Run]:
    """What of the batch would stay together, `null_keys` of its records being movable."""
    records, section = batch.record_count, batch.size
    if 0 < null_keys < records:
        keyed, null_key = (part.size for part in split_by_key(batch))
        stays = _Run(records - null_keys, keyed, keyed, movable=False)
        return [stays, _Run(null_keys, null_key, null_key, movable=True)]
    stored = batch.came_end - batch.came_start if batch.header else section
    return [_Run(records, stored, section, movable=null_keys > 0)]


def _error_codes(response: ProduceResponse | None) -> dict[tuple[str, int], int]:
    if response is None:
        return {}
    return {(topic, each.partition): each.error_code for topic, answers in response.topics for each in answers}
