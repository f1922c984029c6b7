"""m. What the telemetry journal costs: of the produce path's CPU at some 5,000 batches/s, and by itself, a row."""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import Callable, Sequence
from random import Random
from statistics import median
from typing import Final, cast

from bench.report import Section, Table
from bench.rig import Watch, shown
from bench.wire_frames import records_in
from bench.wire_load import Load, offer
from bench.wired import codecs, forebay, sink
from forebay_codecs.produce_request import ProduceRequest
from forebay_codecs.record_batch import open_batch, read_header
from forebay_policies.accumulator import Accumulator, TopicQueues
from forebay_policies.buffer_pool import BufferPool
from forebay_policies.eligibility import Reason
from forebay_policies.producer_batch import Lane, RecordRun
from forebay_proxy.brokers.cluster import Cluster
from forebay_proxy.journal.files import JournalFiles
from forebay_proxy.journal.recorder import Journal
from forebay_proxy.metrics.registry import MetricRegistry
from forebay_proxy.produce.classifier import ClassifiedRequest, InspectedBatch, TouchedBatch
from forebay_proxy.produce.client import Client
from forebay_proxy.produce.completion import ProduceCompletion
from forebay_proxy.produce.ledger import Ledger
from tests.codecs.record_oracle import Record, encode_batch
from tests.kit.forebay import ForebayProcess

TARGET: Final = 0.02
_REQUESTS: Final = 13_500
"""A second: they make some 5,000 batches. A machine on which they take more than _BUSY of a core gets fewer."""
_BUSY: Final = 0.65
_TARGETED: Final = "with a journal"
_WAYS: Final = ("without", "without, once more", _TARGETED, "with a ledger too")
"""The second one says how far two processes differ that do the same."""


def run(short: bool) -> Section:
    rounds, seconds = (1, 1.0) if short else (15, 4.0)
    rng = Random(2)
    with tempfile.TemporaryDirectory() as folder, sink() as broker:
        journal = {"journal.dir": folder, "journal.segment.bytes": "8388608"}
        ways = [{}, {}, journal, {**journal, "journal.ledger": "true"}]
        rate = _bearable(broker, seconds)
        found = [_round(broker, ways, rate, seconds, rng) for _ in range(rounds)]
    a_row = _a_row(20_000 if short else 300_000)
    words = _words(rounds, rate)
    return Section("m", "The telemetry journal", [words, _paths(found), _row_words(), _rows(found, a_row)])


def _bearable(broker: int, seconds: float) -> int:
    """Requests a second at which a Forebay without a journal has time to spare: else their number depends on it."""
    with forebay(broker) as proxy:
        run = _run(proxy, _REQUESTS, seconds)
    return min(_REQUESTS, int(_BUSY * 1e6 / run.cpu))


def _round(broker: int, ways: Sequence[dict[str, str]], rate: int, seconds: float, rng: Random) -> list[_Run]:
    """Each way once, in any order, by a process of its own: where things lie in memory makes one slower or faster."""
    found = {}
    for way in rng.sample(range(len(ways)), len(ways)):
        with forebay(broker, **ways[way]) as proxy:
            found[way] = _run(proxy, rate, seconds)
    return [found[way] for way in range(len(ways))]


class _Run:
    """Of one proxy: batches and rows a second, µs of CPU a request, requests a batch."""

    def __init__(self, batches: float, rows: float, cpu: float, merged: float) -> None:
        self.batches = batches
        self.rows = rows
        self.cpu = cpu
        self.merged = merged


def _run(proxy: ForebayProcess, rate: int, seconds: float) -> _Run:
    load = Load(proxy.node_port(0), "produce", 16_384, 4, 8, seconds, 512, 0.5, (proxy.pid,), rate)
    rows = _rows_written(proxy)
    with Watch(proxy) as watch:
        outcome = offer(load)
    # What the metrics counted has the warm-up in it, and the CPU has not: only ratios of the one go with the other.
    merged = watch.records_a_batch / records_in(load.size, load.value_size)
    batches = outcome.rate / merged
    written = (_rows_written(proxy) - rows) / watch.batches * batches
    return _Run(batches, written, 1e6 * outcome.cpu / outcome.requests, merged)


def _rows_written(proxy: ForebayProcess) -> float:
    return proxy.metrics().get("forebay_journal_rows_total", 0.0)


def _paths(found: list[list[_Run]]) -> Table:
    without = [(rounds[0].cpu + rounds[1].cpu) / 2 for rounds in found]
    rows: list[list[object]] = []
    for way, name in enumerate(_WAYS):
        these = [rounds[way] for rounds in found]
        ratios = sorted(one.cpu / other - 1 for one, other in zip(these, without, strict=True))
        more = median(ratios)
        target = f"< {100 * TARGET:g} %: {'met' if more < TARGET else 'missed'}" if name == _TARGETED else ""
        rows.append(
            [
                name,
                shown(median(each.batches for each in these)),
                shown(median(each.rows for each in these)),
                shown(median(each.cpu for each in these)),
                f"{100 * more:+.1f} ({100 * ratios[0]:+.1f} to {100 * ratios[-1]:+.1f})",
                target,
            ]
        )
    return Table(["", "batches/s", "rows/s", "µs of CPU a request", "more, % (rounds)", "target"], rows)


def _rows(found: list[list[_Run]], a_row: dict[str, tuple[float, float]]) -> Table:
    """`a_row`: µs on the loop and in the thread that writes."""
    path = median(rounds[0].cpu * rounds[0].merged for rounds in found)
    rows: list[list[object]] = []
    for name, (loop, thread) in a_row.items():
        share = (loop + thread) / path
        rows.append([name, shown(loop), shown(thread), shown(loop + thread), f"{100 * share:.2f} %"])
    return Table(["a row of", "µs on the loop", "µs writing it", "in all", "of the CPU of a batch"], rows)


def _a_row(count: int) -> dict[str, tuple[float, float]]:
    return asyncio.run(_measured(count))


class _Kept:
    """A sink in memory, so that making rows and writing them are timed apart."""

    def __init__(self) -> None:
        self.lines: list[tuple[bytes, int]] = []
        self.crowded = False
        self.dropped = 0
        self.at_once = 1 << 20
        self.files_before = None

    def open(self) -> None:
        pass

    def put(self, lines: bytes, rows: int) -> None:
        self.lines.append((lines, rows))

    async def close(self) -> None:
        pass


async def _measured(count: int) -> dict[str, tuple[float, float]]:
    made: dict[str, tuple[float, float]] = {}
    makers = {"a batch": _batch_row, "a choice": _choice_row, "a ledger's request (30 records)": _ledger_row}
    for name, maker in makers.items():
        kept = _Kept()
        journal = Journal(0, MetricRegistry())
        journal.start(kept)
        work = maker(journal)
        began = time.process_time()
        for number in range(count):
            work(number)
        loop = time.process_time() - began
        with tempfile.TemporaryDirectory() as folder:
            files = JournalFiles(folder, 0, 8 << 20, 3600, 1 << 40, -1)
            began = time.process_time()
            files.open()
            for lines, rows in kept.lines:
                files.put(lines, rows)
            await files.close()
            thread = time.process_time() - began
        made[name] = (1e6 * loop / count, 1e6 * thread / count)
    return made


def _topic() -> TopicQueues:
    """Three partitions, each with a batch of one record."""
    pool = BufferPool(1 << 25, 4096, 16_384)
    accumulator = Accumulator(pool, 16_384, 262_144)
    topic = accumulator.topic("bench")
    accumulator.set_leaders(topic, [0, 0, 0], 0.0)
    data = encode_batch([Record(None, b"x" * 100)])
    header = read_header(data, 0, len(data))
    assert header is not None
    batch = open_batch(data, header, 1 << 20)
    completion = ProduceCompletion(9, 1, 1, 1000, 0.0, lambda *_: None, ("127.0.0.1", "bench"))
    completion.add_topic("bench")
    for partition in range(3):
        run = completion.add_run(completion.add_partition(partition), 1, moved=False, whole=True)
        accumulator.append(topic.queue(partition), Lane(1, 0, True), run, batch, 0.0)
    return topic


def _choice_row(journal: Journal) -> Callable[[int], None]:
    topic = _topic()
    return lambda number: journal.choice(topic, number % 3)


def _batch_row(journal: Journal) -> Callable[[int], None]:
    queue = _topic().queue(0)
    (sent,) = queue.batches
    rng = Random(1)
    waits = [rng.random() / 100 for _ in range(1024)]

    def row(number: int) -> None:
        now = number * 0.0002
        sent.sent(0, 16_384 + number % 4096, now - waits[number % 1024])
        journal.batch(queue, sent, now, "acknowledged", 0, number * 30)

    return row


def _ledger_row(journal: Journal) -> Callable[[int], None]:
    pool = BufferPool(1 << 25, 4096, 16_384)
    ledger = Ledger(journal, Cluster(Accumulator(pool, 16_384, 262_144)))
    data = encode_batch([Record(None, b"x" * 512)] * 30)
    header = read_header(data, 0, len(data))
    assert header is not None
    batch = open_batch(data, header, 1 << 20)
    inspected = [InspectedBatch("bench", 0, 0, len(data), header, None, message_set=False)]
    touched = TouchedBatch(0, "bench", 0, batch, len(data), movable=True, whole=True)
    found = ClassifiedRequest()
    found.reasons.append(Reason.NULL_KEY)
    request = ProduceRequest(9, 1, "bench", None, 1, 1000, [("bench", [(0, 0, len(data))])])

    class Peer:
        host = "127.0.0.1"
        number = 1
        user = ""

    client = cast(Client, Peer())

    def row(number: int) -> None:
        entry = ledger.arrived(client, request, inspected)
        completion = ProduceCompletion(9, 1, 1, 1000, 0.0, lambda *_: None, None)
        completion.add_topic("bench")
        run: RecordRun = completion.add_run(completion.add_partition(0), 30, moved=False, whole=True)
        run.partition = number % 7
        entry.classified(0, found)
        entry.appended(run, touched)
        run.base_offset = number * 30
        entry.answered(completion)

    return row


def _words(rounds: int, rate: int) -> str:
    return (
        f"{rate:,} requests a second of 16 KB, which are 30 records, before a sink that answers at once; each"
        f" way a new Forebay process (codecs {codecs()}), medians of {rounds} rounds of all in any order. CPU is the"
        " process's, with the thread that writes and compresses."
    )


def _row_words() -> str:
    return (
        "The same by itself, many rows one after the other, CPU time of this process: making a row, and writing it,"
        " compressing included. The batch's CPU is that without a journal, above."
    )
