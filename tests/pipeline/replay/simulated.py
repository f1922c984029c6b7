"""Worlds and traffic for tests of the simulation, and journals of what a simulation did: with service times known."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from random import Random

import msgspec

from forebay_pipeline.replay.service_times import SIZES, AcksTimes, BrokerTimes, Constant, constant
from forebay_pipeline.replay.settings import Simulated, Texts
from forebay_pipeline.replay.simulation import Outcome, Request, Run, Simulation, World, lane_of
from forebay_policies.accumulator import PartitionQueue
from forebay_policies.journal_rows import BatchRow, LedgerPart, LedgerRow, Row
from forebay_policies.producer_batch import ProducerBatch
from tests.pipeline.rows import START_US, batch_row, ledger_row, sized_part

TOPIC = "t"
MS = 0.001


def settings(**texts: object) -> Simulated:
    """`settings(linger_ms=5)`: the rest are the defaults."""
    given: Texts = {name.replace("_", "."): str(value) for name, value in texts.items()}
    return msgspec.convert(dict(given), Simulated, strict=False)


def world(leaders: Sequence[int], *service_ms: float | BrokerTimes, turn_ms: float = 0.0, topic: str = TOPIC) -> World:
    """Broker n takes `service_ms[n]` for each request."""
    brokers = {
        leader: times if isinstance(times, BrokerTimes) else constant(times * MS)
        for leader, times in enumerate(service_ms)
    }
    return World({topic: list(leaders)}, brokers, Constant(turn_ms * MS), Constant(0.0))


def takes(alone_ms: float, busy_ms: float | None = None, followers_ms: float | None = None) -> BrokerTimes:
    """A broker: for a request by itself, for one that finds others under way, for acks=all; the first, if not given."""

    def acks(alone_ms: float, busy_ms: float) -> AcksTimes:
        sizes = len(SIZES) + 1
        return AcksTimes((Constant(alone_ms * MS),) * sizes, (Constant(busy_ms * MS),) * sizes)

    busy_ms = alone_ms if busy_ms is None else busy_ms
    followers_ms = alone_ms if followers_ms is None else followers_ms
    return BrokerTimes(leader=acks(alone_ms, busy_ms), followers=acks(followers_ms, followers_ms))


def run(
    records: int = 1, size: int = 512, partition: int = 0, *, movable: bool = True, topic: str = TOPIC, acks: int = 1
) -> Run:
    return Run(topic, partition, lane_of(acks, movable=movable), records, size)


def sent_at(*times_ms: float, **of_run: object) -> list[Request]:
    """One run at each of these times, each from a connection of its own."""
    return [Request(at * MS, number, [run(**of_run)]) for number, at in enumerate(times_ms)]  # type: ignore[arg-type]


def steady(
    records_per_s: float, seconds: float, seed: int = 1, connections: int = 3, size: int = 512
) -> Iterator[Request]:
    rng = Random(seed)
    at = rng.expovariate(records_per_s)
    while at < seconds:
        yield Request(at, rng.randrange(connections), [run(size=size)])
        at += rng.expovariate(records_per_s)


class _Noted(Outcome):
    """Remembers when each batch left."""

    def __init__(self, simulation: Journaled, where: World) -> None:
        super().__init__(0.0, where.leaders)
        self._simulation = simulation

    def sent(self, batches: Iterable[ProducerBatch]) -> None:
        batches = list(batches)
        for batch in batches:
            self._simulation.left_at[batch.number] = self._simulation.now
        super().sent(batches)


class Journaled(Simulation):
    """A simulation that writes the journal rows which a proxy would have written, but for offsets in the ledger."""

    def __init__(self, made: Simulated, where: World, rng: Random) -> None:
        super().__init__(made, where, rng)
        self.rows: list[Row] = []
        self.left_at: dict[int, float] = {}
        self.outcome = _Noted(self, where)
        self._ends: dict[tuple[str, int], int] = {}
        self._answered = 0

    def _answer(self, broker, group, drained, took) -> None:  # type: ignore[no-untyped-def]
        for queue, batch in drained:
            self.rows.append(self._batch(queue, batch))
        super()._answer(broker, group, drained, took)

    def _batch(self, queue: PartitionQueue, batch: ProducerBatch) -> BatchRow:
        offset = self._ends.get((queue.topic.name, queue.index), 0)
        self._ends[queue.topic.name, queue.index] = offset + batch.record_count
        left = self.left_at[batch.number]
        return batch_row(
            time_us=START_US + round(self.now * 1e6),
            topic=queue.topic.name,
            partition=queue.index,
            leader=queue.leader,
            records=batch.record_count,
            bytes=batch.size,
            runs=len(batch.runs),
            movable=batch.lane.movable,
            acks=batch.lane.acks,
            linger_us=round((left - batch.opened_at) * 1e6),
            upstream_us=round((self.now - left) * 1e6),
            load=queue.queued_bytes,
            base_offset=offset,
        )

    def answered(self, request: Request) -> None:
        super().answered(request)
        self._answered += 1
        for each in request.runs:
            part = sized_part(each.records, each.size, partition=each.partition, movable=each.lane.movable)
            self.rows.append(self._ledger(request, each, part))

    def _ledger(self, request: Request, each: Run, part: LedgerPart) -> LedgerRow:
        return ledger_row(
            [part],
            time_us=START_US + round(self.now * 1e6),
            received_us=START_US + round(request.at * 1e6),
            number=round(request.at * 1e6),
            connection=request.connection,
            topic=each.topic,
            partition=each.partition,
        )
