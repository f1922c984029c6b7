"""A journal of two days and a bit, made up: all that a report tells something of is in it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from random import Random
from typing import Final

from forebay_pipeline.journal.span import Span
from forebay_policies.journal_rows import GaugeRow, Row
from tests.pipeline.rows import (
    batch_row,
    gauge_row,
    ledger_row,
    metadata_row,
    observed_row,
    rack_row,
    sized_part,
    write_journal,
    write_lines,
)

SECOND: Final = 1_000_000
HOUR: Final = 3600 * SECOND
DAY: Final = 24 * HOUR
FIRST: Final = 1_794_960_000 * SECOND
"""2026-11-18T00:00Z"""
NAMES: Final = ["2026-11-18", "2026-11-19"]
SPAN: Final = Span(FIRST, FIRST + len(NAMES) * DAY)
LATER: Final = FIRST + 3 * DAY
"""When all of them are over."""
_TOPICS: Final = {"orders": 6, "clicks": 12, "logs": 2}
_WIDTH: Final = 10 * SECOND


def rows(seed: int) -> Iterator[Row]:
    """Of the two days, and a gauge of the third, so that they are over."""
    rng = Random(seed)
    yield from _sent(rng)
    yield from _runaway(FIRST + DAY, 40)
    yield from _runaway(FIRST + 2 * DAY - HOUR, 12)
    yield from _gauges(rng)
    yield from _of_clients(rng)
    yield from _asked(rng)
    yield gauge_row(time_us=FIRST + 2 * DAY + 2 * HOUR)


def write(folder: Path, given: Iterator[Row]) -> None:
    """As the proxy does: a file of each hour, and a torn line in one of them."""
    hours: dict[int, list[Row]] = defaultdict(list)
    for row in given:
        hours[row.time_us // HOUR].append(row)
    for of_hour in hours.values():
        write_journal(folder, sorted(of_hour, key=lambda row: row.time_us))
    write_lines(folder, b'{"kind": "batch", "time_us":\n', FIRST + DAY, name="torn")


def _at(rng: Random) -> int:
    """Some hours have nothing."""
    return FIRST + rng.randrange(len(NAMES)) * DAY + rng.choice((0, 7, 8, 15, 23)) * HOUR + rng.randrange(HOUR)


def _sent(rng: Random) -> Iterator[Row]:
    """One in thirty is not acknowledged, one in four is full; times and sizes as they are: a few large ones."""
    for _ in range(800):
        topic = rng.choice(list(_TOPICS))
        partition = int(rng.random() ** 2 * _TOPICS[topic])
        fate, error = ("retried", rng.choice((6, 7))) if rng.random() < 1 / 30 else ("acknowledged", 0)
        yield batch_row(
            time_us=_at(rng),
            process=f"here-{partition % 2}",
            topic=topic,
            partition=partition,
            leader=partition % 3,
            reason=rng.choice(("linger", "linger", "adopted", "full")),
            records=rng.randrange(1, 40),
            bytes=int(rng.lognormvariate(8, 1)),
            runs=rng.randrange(1, 5),
            acks=rng.choice((1, -1)),
            movable=topic != "logs",
            linger_us=rng.choice((0, 1, int(rng.lognormvariate(6, 1)))),
            upstream_us=int(rng.lognormvariate(7, 1.2)),
            fate=fate,
            error_code=error,
        )


def _runaway(around_us: int, windows: int) -> Iterator[Row]:
    """Partition 0 is slow and gets much, in so many windows before that time, and in half as many after it."""
    for number in range(-windows - 6, windows // 2 + 6):
        away = -windows <= number < windows // 2
        for partition in range(3):
            size, upstream_us = (6000, 39_500) if away and not partition else (1000, 1500)
            for batch in range(8):
                time_us = around_us + number * _WIDTH + batch * SECOND
                given = {"topic": "away", "partition": partition, "leader": partition, "bytes": size}
                yield batch_row(time_us=time_us, upstream_us=upstream_us, **given)


def _gauges(rng: Random) -> Iterator[Row]:
    """Of two workers that begin anew some times, one of them over midnight; a row each ten minutes."""
    for worker, starts in ((0, (0, 13 * HOUR, 26 * HOUR)), (1, (-2 * HOUR, 23 * HOUR))):
        for start, end in zip(starts, (*starts[1:], 2 * DAY), strict=True):
            totals = count()
            for time_us in range(start + SECOND, end, HOUR // 6):
                if time_us >= 0:
                    yield _gauge(rng, worker, FIRST + start, FIRST + time_us, 7 * next(totals))


def _gauge(rng: Random, worker: int, started_us: int, time_us: int, total: int) -> GaugeRow:
    return gauge_row(
        worker=worker,
        started_us=started_us,
        time_us=time_us,
        cluster_id="AB"[worker] if total else "",
        pool_waiters=rng.choice((0, 0, 0, 2)),
        pool_available_bytes=rng.randrange(33_554_432),
        queued_bytes=rng.randrange(1_000_000),
        queued_batches=rng.randrange(100),
        in_flight_requests=rng.randrange(9),
        pool_waits_total=total,
        metadata_hits_total=10 * total,
        metadata_misses_total=total,
        metadata_waits_total=total // 2,
        rows_dropped_total=total // 70,
        same_rack_bytes_total=None if worker else total * 1000,
        other_rack_bytes_total=None if worker else total * 500,
        unknown_rack_bytes_total=None if worker else 0,
    )


def _of_clients(rng: Random) -> Iterator[Row]:
    """Three that are merged, one of which picks its partition, and one that is only observed."""
    for number in range(150):
        time_us = _at(rng)
        client = rng.choice(("shop", "till", "shards"))
        records, partition = rng.randrange(1, 9), 4 if client == "shards" else rng.randrange(12)
        yield ledger_row(
            [sized_part(records, 40_000)] if number % 7 else [],
            client_id=client,
            principal="User:till" if client == "till" else "",
            host=f"10.0.0.{number % 3}",
            number=number,
            version=3 + number % 4,
            topic="clicks",
            partition=partition,
            reason="null_key" if number % 7 else "idempotent",
            records=records,
            error_code=None if number % 7 == 0 else rng.choice((0, 0, 0, 0, 7)),
            received_us=time_us,
            time_us=time_us + int(rng.lognormvariate(8, 1)),
        )
    for number in range(40):
        time_us = _at(rng)
        yield observed_row(
            client_id="agent",
            topic="metrics",
            partitions=rng.choice((0, 20)),
            partition=number % 15,
            number=number,
            opens=rng.choice((-1, 0, 1)),
            received_us=time_us,
            time_us=time_us + 1500 + number,
            error_code=None if number % 9 == 0 else 0,
        )


def _asked(rng: Random) -> Iterator[Row]:
    for _ in range(40):
        took_us = int(rng.lognormvariate(8, 1))
        yield metadata_row(time_us=_at(rng), took_us=took_us, error=rng.choice(("", "", "timeout")))
        across = {"same_bytes": rng.randrange(9999), "other_bytes": rng.randrange(9999)}
        yield rack_row(time_us=_at(rng), topic=rng.choice(("orders", "clicks", "")), **across)
