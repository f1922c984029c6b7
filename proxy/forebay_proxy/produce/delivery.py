"""What a broker's answer to a batch, or its silence, means for the records in it.

In: a drained batch and its partition's answer, a lost connection, a broker that cannot be reached, a topic that is
gone. Out: every run of the batch told to its owner exactly once, or the batch in a queue again. The rule for which is
which stands in policies.retry.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping
from random import Random
from time import monotonic
from typing import Final

from forebay_codecs import error_codes
from forebay_codecs.produce_response import PartitionResponse
from forebay_policies import retry
from forebay_policies.accumulator import Accumulator, PartitionQueue, TopicQueues
from forebay_policies.journal_rows import BatchFate
from forebay_policies.producer_batch import ProducerBatch, RecordRun
from forebay_policies.retry import Verdict
from forebay_proxy.config.settings import Settings
from forebay_proxy.journal.recorder import Journal
from forebay_proxy.logs import RateLimited, get_logger
from forebay_proxy.metrics.instruments import Counter
from forebay_proxy.metrics.registry import MetricRegistry
from forebay_proxy.produce.completion import JOURNAL

log = RateLimited(get_logger())

_ACKNOWLEDGED: Final = Verdict.ACKNOWLEDGED
_ELSEWHERE: Final = Verdict.ELSEWHERE
"""Members of an enum are looked up anew wherever they are named."""

_FATES: Final[Mapping[Verdict, BatchFate]] = {
    Verdict.ACKNOWLEDGED: "acknowledged",
    Verdict.RETRY: "retried",
    Verdict.RETRY_SAME: "retried",
    Verdict.RESEQUENCE: "retried",
    Verdict.RENEW: "retried",
    Verdict.PLAIN: "retried",
    Verdict.SPLIT: "split",
    Verdict.UNKNOWN: "unknown",
    Verdict.ANSWER: "refused",
}


SPLIT_AGAIN_S: Final = 60.0
"""Without a refusal, until a topic's client batches go in halves again."""

LOOKS: Final = 8
"""Partitions that are looked at for one to move to, by chance; all, where none of them will do."""


class Delivery:
    """Tells every owner exactly once, or puts its records in a queue again.

    `leader_changed` is told the topic where a broker may not lead a partition any more, and named nobody who does (else
    that was taken over before), `acknowledged` how many seconds a batch of the partition took from its opening on,
    unless it was sent again, or its client was throttled meanwhile."""

    def __init__(
        self,
        accumulator: Accumulator,
        settings: Settings,
        stats: MetricRegistry,
        leader_changed: Callable[[str], None],
        acknowledged: Callable[[PartitionQueue, float], None],
        rng: Random,
        journal: Journal | None = None,
    ) -> None:
        self._accumulator = accumulator
        self._backoff = settings.retry_backoff_ms / 1000
        self._backoff_max = settings.retry_backoff_max_ms / 1000
        self._leader_changed = leader_changed
        self._acknowledged = acknowledged
        self._rng = rng
        self._loop = asyncio.get_running_loop()
        self._latency = stats.histogram("forebay_produce_latency_seconds")
        self._retries = {
            reason: stats.counter("forebay_retries_total", reason=reason)
            for reason in ("repartitioned", "backoff", "split", "unreachable", "outcome_unknown", "resequenced")
        }
        self._broker_errors = stats.counter("forebay_errors_total", side="upstream", kind="answered")
        self._unknown = stats.counter("forebay_errors_total", side="upstream", kind="outcome_unknown")
        self._retriable = stats.counter("forebay_errors_total", side="internal", kind="retriable")
        self._journal = journal

    def answered(self, queue: PartitionQueue, batch: ProducerBatch, response: PartitionResponse) -> None:
        """The leader answered `batch`: it is acknowledged, tried again, split or failed, as `retry.judge` says."""
        verdict = retry.judge(
            response.error_code,
            response.base_offset,
            len(batch.runs),
            sequenced=batch.producer_id >= 0,
            tainted=batch.tainted,
            tries=batch.tries,
        )
        if verdict is _ELSEWHERE:
            goes = batch.lane.movable and batch.tries + 1 < retry.ELSEWHERE_TRIES
            # Told of half a batch, a client sends all of it again, and the other half would be appended each time.
            verdict = Verdict.RETRY if goes or _holds_half(batch) else Verdict.ANSWER
        now = monotonic()
        if self._journal is not None:
            fate: BatchFate = (
                "acknowledged" if verdict is _ACKNOWLEDGED else self._fate(verdict, queue, batch, response)
            )
            self._journal.batch(queue, batch, now, fate, response.error_code, response.base_offset)
        if verdict is _ACKNOWLEDGED:
            seconds = now - batch.opened_at
            self._latency.observe(seconds)
            self._acknowledge(batch, response, now)
            queue.sequence.acknowledged(batch)
            self._accumulator.completed(queue, batch, now)
            if not batch.tries and not self._was_muted(queue, batch):  # else it tells of something else
                self._acknowledged(queue, seconds)
        elif verdict is Verdict.RETRY:
            queue.sequence.given_back(batch)
            self._retry(queue, batch, response, now)
        elif verdict is Verdict.RETRY_SAME:
            if _is_gone(queue, response):
                batch.tainted = True
                self._fail_gone(queue, batch)
            else:
                self._retry_same(queue, batch, now, named=response.current_leader is not None)
        elif verdict is Verdict.RESEQUENCE or verdict is Verdict.RENEW or verdict is Verdict.PLAIN:
            self._resequence(queue, batch, verdict, response, now)
        elif verdict is Verdict.UNKNOWN:
            _count(self._unknown, batch.runs)
            if response.error_code == error_codes.INVALID_PRODUCER_EPOCH:
                queue.sequence.renew()
            if response.error_code == error_codes.UNKNOWN_SERVER_ERROR:
                self.fail(queue, batch, response.error_code, response.error_message)
                return
            why = "the outcome of an earlier attempt is not known"
            if not batch.tainted:
                if response.current_leader is None:
                    self._leader_changed(queue.topic.name)
                why = "the leader changed before all replicas had it"
            self.fail(queue, batch, error_codes.REQUEST_TIMED_OUT, why)
        elif verdict is Verdict.SPLIT:
            queue.sequence.given_back(batch)
            batch = self._accumulator.without_done(queue, batch)
            if len(batch.runs) == 1 or batch.runs[0].owner.done:  # if one is, nobody waits for any
                self._again(queue, batch, now)
                return
            self._retries["split"].value += 1
            numbers = self._accumulator.next_number(), self._accumulator.next_number()
            self._accumulator.replace(queue, batch, batch.halves(numbers, now), now)
        else:
            lacks_replicas = response.error_code == error_codes.NOT_ENOUGH_REPLICAS
            if lacks_replicas or _holds_half(batch) or not self.splits(queue.topic.name):
                queue.topic.refused_at = now
            if response.base_offset < 0:  # else it is no proof
                queue.sequence.given_back(batch)
            _count(self._broker_errors, batch.runs)
            self.fail(queue, batch, response.error_code, response.error_message, response.record_errors)

    def splits(self, name: str) -> bool:
        """Whether client batches in which only some records have a key may go in halves. Not where a half was refused,
        or replicas are missing, and for as long as brokers go on to refuse what is sent to the topic: a client that is
        told of one half sends both again, and takes neither for appended."""
        topic = self._accumulator.topics.get(name)
        return topic is None or topic.refused_at is None or monotonic() - topic.refused_at >= SPLIT_AGAIN_S

    def _fate(
        self, verdict: Verdict, queue: PartitionQueue, batch: ProducerBatch, response: PartitionResponse
    ) -> BatchFate:
        """Of a batch that is not acknowledged, as the journal has it."""
        if _FATES[verdict] == "retried" and _is_gone(queue, response):
            if verdict is Verdict.RETRY_SAME:
                return "unknown"
            if batch.tries or not (batch.lane.movable and _others(queue)):
                return "refused"
        return _FATES[verdict]

    def _was_muted(self, queue: PartitionQueue, batch: ProducerBatch) -> bool:
        """Whether its client was throttled while it waited: that makes no broker slow for others."""
        throttling = self._accumulator.throttling
        return throttling.active and throttling.muted(batch.sent_to, queue.client_id, batch.opened_at)

    def fail(
        self,
        queue: PartitionQueue,
        batch: ProducerBatch,
        error_code: int,
        message: str | None,
        record_errors: list[tuple[int, str | None]] | None = None,
    ) -> None:
        """Tell every owner. Record numbers are passed on only where they are the client's own."""
        told = record_errors if record_errors and len(batch.runs) == 1 and batch.runs[0].whole else []
        for run in batch.runs:
            try:
                run.owner.failed(run, error_code, message, told)
            except Exception as error:
                _not_told(error)
        self._accumulator.completed(queue, batch, monotonic())

    def lost(self, queue: PartitionQueue, batch: ProducerBatch) -> None:
        """The connection ended after the batch was written: it may be appended. Under its sequence it is sent again;
        without one, another attempt is the client's."""
        again = batch.producer_id >= 0
        now = monotonic()
        if self._journal is not None:
            code = error_codes.REQUEST_TIMED_OUT
            self._journal.batch(queue, batch, now, "retried" if again else "unknown", code, -1)
        if again:
            self._retry_same(queue, batch, now)
            return
        _count(self._unknown, batch.runs)
        self.fail(
            queue, batch, error_codes.REQUEST_TIMED_OUT, "the connection to the broker was lost before it answered"
        )

    def unreachable(self, node_id: int) -> None:
        """Nothing was written to this broker: what may go elsewhere goes at once, the rest waits."""
        now = monotonic()
        for queue in self._accumulator.ready_queues(node_id):
            self._move_away(queue, now)

    def available(self, topic: TopicQueues) -> None:
        """Some of its partitions are, and none was: what waits for others and may go elsewhere had nowhere to go."""
        now = monotonic()
        there = set(topic.available)
        for queue in topic.queues():
            if queue.index not in there:
                self._move_away(queue, now)

    def avoided(self, node_ids: Collection[int]) -> None:
        """These brokers are to get nothing that may go elsewhere: what waits for them goes, ready or not."""
        now = monotonic()
        for topic in self._accumulator.topics.values():
            for queue in topic.queues():
                if queue.leader in node_ids and queue.index not in topic.available:
                    for batch in [b for b in queue.batches if b.lane.movable and not b.tainted]:
                        self._move(queue, batch, now)

    def _move_away(self, queue: PartitionQueue, now: float) -> None:
        """Everything that waits there and may go elsewhere, ready or not: where something ready stays, nobody would be
        told of what becomes ready later."""
        for batch in [b for b in queue.batches if b.lane.movable and not b.tainted]:
            if not self._move(queue, batch, now):
                break
            self._retries["unreachable"].value += 1

    def gone(self, queues: Iterable[PartitionQueue]) -> None:
        """The brokers do not know these partitions any more. What may go to others of the topic goes there."""
        now = monotonic()
        for queue in queues:
            while queue.batches:
                batch = queue.batches[0]
                if batch.lane.movable and not batch.tainted and self._move(queue, batch, now):
                    continue
                self._accumulator.take_out(queue, batch)
                self._fail_gone(queue, batch)

    def _fail_gone(self, queue: PartitionQueue, batch: ProducerBatch) -> None:
        if batch.tainted:
            _count(self._unknown, batch.runs)
            code = error_codes.REQUEST_TIMED_OUT  # some clients take the other one for a refusal and send again
        else:
            _count(self._retriable, batch.runs)
            code = error_codes.UNKNOWN_TOPIC_OR_PARTITION
        self.fail(queue, batch, code, "the topic or partition no longer exists")

    def deserted(self, runs: Iterable[RecordRun]) -> None:
        """These runs are not sent again: whoever still waits for them is told, in the loop's next turn."""
        told = list(runs)
        _count(self._unknown, told)
        self._loop.call_soon(self._tell_unknown, told)

    def _tell_unknown(self, runs: Iterable[RecordRun]) -> None:
        for run in runs:
            try:
                run.owner.failed(run, error_codes.REQUEST_TIMED_OUT, "it is not known what became of them", [])
            except Exception as error:
                _not_told(error)

    def _acknowledge(self, batch: ProducerBatch, response: PartitionResponse, now: float) -> None:
        offset, time, start = response.base_offset, response.log_append_time, response.log_start_offset
        if batch.tainted and time == batch.max_timestamp:
            time = -1  # what brokers answer to a duplicate, also where records keep the client's time
        took = -1.0 if batch.tries else now - batch.sent_at
        for run in batch.runs:
            run.took = took
            try:
                run.owner.acknowledged(run, offset, time, start)
            except Exception as error:
                _not_told(error)

    def _retry(self, queue: PartitionQueue, batch: ProducerBatch, response: PartitionResponse, now: float) -> None:
        log.info(
            "batch not taken by its broker",
            topic=queue.topic.name,
            partition=queue.index,
            error_code=response.error_code,
            tries=batch.tries + 1,
        )
        leads_no_more = retry.leads_no_more(response.error_code)
        if leads_no_more:
            if response.current_leader is None:
                self._leader_changed(queue.topic.name)
        else:
            queue.topic.refused_at = now
            batch.refused_by += (queue.leader,)
        batch.tries += 1
        batch = self._accumulator.without_done(queue, batch)
        if batch.tries == 1 and batch.lane.movable and self._move(queue, batch, now):
            self._retries["repartitioned"].value += 1
            return
        if _is_gone(queue, response):
            self._fail_gone(queue, batch)
            return
        self._retries["backoff"].value += 1
        self._back_off(queue, batch, batch.tries - 1, now, elsewhere=batch.lane.movable and not leads_no_more)

    def _retry_same(self, queue: PartitionQueue, batch: ProducerBatch, now: float, *, named: bool = False) -> None:
        """It may be appended: its sequence goes with it, and nothing of the queue leaves before it. At once the first
        time, since most connections are lost by themselves; from then on what can leave the queue does not wait."""
        log.info(
            "outcome of a batch not known, sent again",
            topic=queue.topic.name,
            partition=queue.index,
            tries=batch.tries + 1,
        )
        self._retries["outcome_unknown"].value += 1
        if not named:
            self._leader_changed(queue.topic.name)
        batch.tainted = True
        self._again(queue, batch, now)
        if batch.tries > 1:
            self._move_away(queue, now)

    def _resequence(
        self, queue: PartitionQueue, batch: ProducerBatch, verdict: Verdict, response: PartitionResponse, now: float
    ) -> None:
        """It is not appended, for reasons of its sequence: again under another one, or none."""
        log.warning(
            "sequence not taken by the broker",
            topic=queue.topic.name,
            partition=queue.index,
            error_code=response.error_code,
        )
        self._retries["resequenced"].value += 1
        if verdict is Verdict.RESEQUENCE:
            tainted = batch.tainted
            queue.sequence.bump(batch)
            batch.tainted = tainted  # as long as it is not appended, bytes of the earlier attempt may come
        else:
            queue.sequence.given_back(batch)
            if verdict is Verdict.RENEW:
                queue.sequence.renew()
            elif response.error_code == error_codes.CLUSTER_AUTHORIZATION_FAILED:
                queue.sequence.disable()
            else:
                queue.sequence.plain = True
        if not batch.tainted:
            batch = self._accumulator.without_done(queue, batch)
        self._again(queue, batch, now)

    def _again(self, queue: PartitionQueue, batch: ProducerBatch, now: float) -> None:
        batch.tries += 1
        if batch.tries > 1:
            self._back_off(queue, batch, batch.tries - 2, now)
        else:
            self._accumulator.clear_in_flight(queue, batch)
            self._accumulator.send_back(queue, (batch,), now, paused=False)

    def _back_off(
        self, queue: PartitionQueue, batch: ProducerBatch, doublings: int, now: float, *, elsewhere: bool = False
    ) -> None:
        """`elsewhere`: it leaves its queue after that, if there is another broker to go to."""
        self._accumulator.clear_in_flight(queue, batch)
        self._accumulator.send_back(queue, (batch,), now, paused=True)
        pause = retry.backoff(doublings, self._backoff, self._backoff_max, self._rng)
        self._loop.call_later(pause, self._resume, queue, batch if elsewhere else None)

    def _resume(self, queue: PartitionQueue, leaves: ProducerBatch | None) -> None:
        now = monotonic()
        if leaves is not None and leaves in queue.batches:
            self._move(queue, leaves, now)
        self._accumulator.resume(queue, now)

    def _move(self, queue: PartitionQueue, batch: ProducerBatch, now: float) -> bool:
        """To a partition of another broker that can be reached, which has not refused it if there is one; False where
        there is none."""
        index = self._other(queue, batch.refused_by)
        if index < 0:
            return False
        self._accumulator.move(batch, queue, queue.topic.queue(index, batch.lane.acks), now)
        return True

    def _other(self, queue: PartitionQueue, refused_by: Collection[int]) -> int:
        """A partition as `_move` wants it; −1: there is none. The least loaded of LOOKS, any of those that are equally
        so: to look at thousands for each batch takes the loop up to a second."""
        topic = queue.topic
        available, leaders, loads = topic.available, topic.leaders, topic.loads()
        left_out = {queue.leader, *refused_by}
        others = [
            index for index in self._rng.sample(available, min(LOOKS, len(available))) if leaders[index] not in left_out
        ]
        if not others:
            others = [index for index in available if leaders[index] not in left_out] or _others(queue)
        if not others:
            return -1
        least = min([loads.get(index, 0) for index in others])
        return self._rng.choice([index for index in others if loads.get(index, 0) == least])


def _others(queue: PartitionQueue) -> list[int]:
    """Its topic's partitions that another broker leads, which can be reached."""
    topic = queue.topic
    return [index for index in topic.available if topic.leaders[index] != queue.leader]


def _holds_half(batch: ProducerBatch) -> bool:
    """Whether it holds some records of a client batch whose others go by themselves."""
    return any(not run.whole for run in batch.runs)


def _is_gone(queue: PartitionQueue, response: PartitionResponse) -> bool:
    """Whether the partition that refuses a batch is not there any more, which was told while that was away."""
    refused = response.error_code == error_codes.UNKNOWN_TOPIC_OR_PARTITION
    return refused and queue.index >= queue.topic.partition_count


def _count(errors: Counter, runs: Iterable[RecordRun]) -> None:
    """A batch has failed; the journal's own rows alone are no error of clients."""
    if any(run.owner.client != JOURNAL for run in runs):
        errors.value += 1


def _not_told(error: Exception) -> None:
    """A fault of ours towards one client, which its deadline answers: the batch's other clients, and those who wait
    for its partition, must not have it too."""
    log.error("a client could not be told what became of its records", exc_info=error)
