"""What the demo shows: progress while a load runs, and one table at the end.

In: counts that change (demo_load.LoadCounts), then one Leg for each way that the load went. Out: text on a rich
Console: a bar where it is a terminal, plain lines where it is not.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Final, NamedTuple

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn
from rich.table import Table

from forebay_proxy.demo.load import LoadCounts, LoadPlan, LoadResult
from forebay_proxy.demo.reader import Stored

_BAR_EVERY: Final = 0.25
_LINE_EVERY: Final = 2.0


class Leg(NamedTuple):
    """One way that the load went: what the clients saw, what the brokers received and what they hold."""

    name: str
    result: LoadResult
    produce_requests: int
    stored: Stored

    @property
    def nothing_lost(self) -> bool:
        """Every record was acknowledged, and as many are there: counts, not contents, are compared."""
        return not self.result.failed and self.result.acknowledged == self.stored.total


def percentile(ordered: Sequence[float], percent: int) -> float:
    """The nearest rank: of 1000 values in order, the 99th percentile is the 990th. NaN of none."""
    if not ordered:
        return float("nan")
    return ordered[max(0, -(-len(ordered) * percent // 100) - 1)]


def average(values: Sequence[float]) -> float:
    """The mean. NaN of none."""
    return sum(values) / len(values) if values else float("nan")


def comparison(legs: Sequence[Leg], partitions: int, slow: frozenset[int]) -> Table:
    """`slow` are the partitions that the slow broker leads."""
    table = Table()
    table.add_column("")
    for leg in legs:
        table.add_column(leg.name.replace(", ", ",\n"), justify="right")
    table.add_row("records/s acknowledged", *(f"{leg.result.per_second:,.0f}" for leg in legs))
    table.add_row("average latency", *(_ms(average(leg.result.latencies)) for leg in legs))
    table.add_row("p99 latency", *(_ms(percentile(leg.result.latencies, 99)) for leg in legs))
    table.add_row("Produce requests the brokers saw", *(f"{leg.produce_requests:,}" for leg in legs))
    table.add_row("records a request", *(_ratio(leg.stored.total, leg.produce_requests) for leg in legs))
    table.add_row("records a batch", *(_ratio(leg.stored.records_in_batches, leg.stored.batches) for leg in legs))
    table.add_section()
    for partition in range(partitions):
        label = f"share of partition {partition}" + (" (slow broker)" if partition in slow else "")
        table.add_row(label, *(_share([partition], leg.stored) for leg in legs))
    table.add_row("slow broker together", *(_share(slow, leg.stored) for leg in legs))
    return table


def nothing_lost_line(leg: Leg) -> str:
    """One line that compares what was acknowledged with what is stored."""
    result, stored = leg.result, leg.stored
    verdict = "nothing lost, the counts agree" if leg.nothing_lost else "NOT THE SAME"
    refused = f", {result.failed:,} failed" if result.failed else ""
    return f"{leg.name}: {result.acknowledged:,} acknowledged{refused}, {stored.total:,} in the partitions: {verdict}"


def _ms(seconds: float) -> str:
    return f"{seconds * 1000:,.1f} ms"


def _ratio(whole: int, parts: int) -> str:
    return f"{whole / parts:,.1f}" if parts else "–"


def _share(partitions: Sequence[int] | frozenset[int], stored: Stored) -> str:
    if not stored.total:
        return "–"
    return f"{sum(stored.records[p] for p in partitions) / stored.total:.1%}"


class _Speed:
    """Records/s and average latency since it was last asked."""

    def __init__(self, counts: LoadCounts) -> None:
        self._counts = counts
        self._at = time.perf_counter()
        self._acknowledged = 0
        self._waited = 0.0

    def __str__(self) -> str:
        now, counts = time.perf_counter(), self._counts
        records = counts.acknowledged - self._acknowledged
        waited = counts.waited - self._waited
        per_second = records / max(now - self._at, 1e-9)
        self._at, self._acknowledged, self._waited = now, counts.acknowledged, counts.waited
        latency = _ms(waited / records) if records else "–"
        failed = f", {counts.failed:,} failed" if counts.failed else ""
        return f"{counts.acknowledged:,} records, {per_second:,.0f}/s, {latency}{failed}"


@asynccontextmanager
async def progress(console: Console, name: str, plan: LoadPlan, counts: LoadCounts) -> AsyncIterator[None]:
    """Show how the load proceeds until the block is left."""
    show = _show_bar if console.is_terminal else _show_lines
    async with AsyncExitStack() as stack:
        task = asyncio.create_task(show(console, name, plan.warm_up + plan.seconds, counts))
        stack.push_async_callback(_end, task)
        yield


async def _end(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.wait([task])


async def _show_bar(console: Console, name: str, seconds: float, counts: LoadCounts) -> None:
    columns = (TextColumn("{task.description:<22}"), BarColumn(24), TextColumn("{task.fields[speed]}"))
    start = time.perf_counter()
    speed = _Speed(counts)
    # Refreshed from here, not from rich's own thread: it would compete with the load at any moment.
    with Progress(*columns, console=console, auto_refresh=False) as bar:
        row = bar.add_task(name, total=seconds, speed="")
        while True:
            bar.update(row, completed=min(seconds, time.perf_counter() - start), speed=str(speed))
            bar.refresh()
            await asyncio.sleep(_BAR_EVERY)


async def _show_lines(console: Console, name: str, seconds: float, counts: LoadCounts) -> None:
    start = time.perf_counter()
    speed = _Speed(counts)
    while True:
        await asyncio.sleep(_LINE_EVERY)
        gone = min(seconds, time.perf_counter() - start)
        console.print(f"{name}: {gone:.0f} of {seconds:g} s, {speed}", highlight=False)
