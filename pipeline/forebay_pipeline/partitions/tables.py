"""A Summary as tables and sentences, for the terminal and for the report."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from forebay_codecs import error_codes
from forebay_pipeline.jobs.time_text import instant
from forebay_pipeline.journal.clusters import mixed
from forebay_pipeline.partitions.summary import Group, Percentiles, Summary

_ERRORS: Final = {code: name for name, code in vars(error_codes).items() if name.isupper()}
_LEVELS: Final = ("p50", "p99", "p999")


class Table(NamedTuple):
    """A table of text; every row has as many cells as the header."""

    title: str
    header: Sequence[str]
    rows: Sequence[Sequence[str]]
    left_out: int = 0
    """Further rows that are not shown."""

    def numeric(self) -> list[bool]:
        """Which columns hold only numbers, and so are aligned right."""
        columns = zip(*self.rows, strict=True)
        return [all(not cell or cell.lstrip("+−")[:1].isdigit() for cell in column) for column in columns]


def table(title: str, header: Sequence[str], rows: Iterable[Sequence[object]], left_out: int = 0) -> Table:
    """A Table of `rows`; integers get thousands separators, so numbers that count nothing are to be given as text."""
    cells = [[f"{cell:,}" if isinstance(cell, int) else str(cell) for cell in row] for row in rows]
    return Table(title, header, cells, left_out)


def sizes(summary: Summary) -> Table:
    """KIP-794's table: batches, bytes and records by group."""
    header = [*summary.by, "batches", "bytes", "records", "bytes/batch", "records/batch", "share %", "failed"]
    return table("Batches", header, map(_size, _keyed(summary), summary.groups), summary.groups_left_out)


def _size(key: Sequence[str], group: Group) -> Sequence[object]:
    averages = f"{group.bytes_per_batch:,.2f}", f"{group.records_per_batch:,.2f}"
    return *key, group.batches, group.bytes, group.records, *averages, percent(group.share), group.failed


def times(summary: Summary) -> Table:
    """Percentiles of linger and upstream times by group."""
    header = [*summary.by, *(f"linger {level}" for level in _LEVELS), *(f"upstream {level}" for level in _LEVELS)]
    rows = [
        (*key, *_levels(group.linger_us), *_levels(group.upstream_us))
        for key, group in zip(_keyed(summary), summary.groups, strict=True)
    ]
    return table("Times in ms", header, rows, summary.groups_left_out)


def _keyed(summary: Summary) -> list[list[str]]:
    return [[str(group.key[name]) for name in summary.by] for group in summary.groups]


def _levels(values: Percentiles) -> Iterator[str]:
    return (ms(value) for value in (values.p50_us, values.p99_us, values.p999_us))


def skew(summary: Summary) -> Table:
    """How evenly each topic's bytes are spread."""
    header = ["topic", "partitions", "bytes", "largest", "its share %", "max/mean", "Gini"]
    rows = [
        (
            one.topic,
            one.partitions,
            one.bytes,
            str(one.largest),
            percent(one.largest_share),
            f"{one.max_to_mean:.2f}",
            f"{one.gini:.2f}",
        )
        for one in summary.topics
    ]
    return table("Skew across partitions", header, rows, summary.topics_left_out)


def runaways(summary: Summary) -> Table:
    """The partitions that ran away, and for how long."""
    header = ["topic", "partition", "since", "until", "share %", "× fair", "wait ms", "others' ms"]
    rows = [
        (
            one.topic,
            str(one.partition),
            instant(one.since_us),
            "ongoing" if one.until_us is None else instant(one.until_us),
            percent(one.share),
            f"{one.times_fair:.2f}",
            ms(one.wait_us),
            ms(one.others_wait_us),
        )
        for one in summary.runaways
    ]
    return table("Runaway partitions", header, rows, summary.runaway_changes_left_out)


def reasons(summary: Summary) -> Table:
    """Why batches were sent."""
    rows = [(one.reason, one.batches, one.bytes, one.records) for one in summary.reasons]
    return table("Why batches were sent", ["reason", "batches", "bytes", "records"], rows)


def fates(summary: Summary) -> Table:
    """What became of batches, with the names of errors."""
    rows = [(one.fate, error_name(one.error_code), one.batches, one.records) for one in summary.fates]
    return table("What became of batches", ["fate", "error", "batches", "records"], rows)


def workers(summary: Summary) -> Table:
    """Memory and queues of each worker."""
    header = [
        "worker",
        "starts",
        "seconds",
        "waiting %",
        "waits",
        "pool bytes",
        "min free",
        "max queued",
        "max batches",
        "max in flight",
        "rows dropped",
    ]
    rows = [
        (
            str(one.worker),
            one.starts,
            one.seconds,
            percent(one.seconds_waited / one.seconds),
            one.pool_waits,
            one.pool_bytes,
            one.least_available_bytes,
            one.most_queued_bytes,
            one.most_queued_batches,
            one.most_in_flight,
            one.rows_dropped,
        )
        for one in summary.workers
    ]
    return table("Workers", header, rows)


def totals(summary: Summary) -> str:
    """All batches of the span in one sentence."""
    total = summary.total
    return (
        f"{total.batches:,} batches, {total.records:,} records, {total.bytes:,} bytes; ms p50 / p99 / p999: "
        f"linger {' / '.join(_levels(total.linger_us))}, upstream {' / '.join(_levels(total.upstream_us))}"
    )


def metadata(summary: Summary) -> str:
    """The metadata cache in one sentence; empty if no client asked for topics."""
    use = summary.metadata
    if use.hit_rate is None:
        return ""
    return (
        f"Metadata: {percent(use.hit_rate)} % of {use.hits + use.misses:,} topic lookups were cached; "
        f"{use.waits:,} waits; {use.requests:,} requests to brokers, {use.failed:,} failed."
    )


GB: Final = 1e9
MONTH_S: Final = 30 * 24 * 3600


def racks(summary: Summary, price_per_gb: float | None = None) -> str:
    """What stayed in its client's rack and what crossed, and at that price a GB (10⁹ bytes) what it costs.

    One or two sentences; empty if nothing is known of racks, or nothing was sent.
    """
    use = summary.racks
    if use is None or not (known := use.same_bytes + use.other_bytes):
        return ""
    unknown = f" Of {use.unknown_bytes / GB:,.1f} GB it is not known." if use.unknown_bytes else ""
    crossed = use.other_bytes / GB
    sentence = (
        f"Racks: {percent(use.same_bytes / known)} % of {known / GB:,.1f} GB went to a leader in the client's rack, "
        f"{crossed:,.1f} GB crossed.{unknown}"
    )
    if price_per_gb is None:
        return sentence
    cost = crossed * price_per_gb
    month = f", and {cost * MONTH_S / use.seconds:,.2f} in 30 days like that" if use.seconds else ""
    return f"{sentence} At {price_per_gb:g} a GB that is {cost:,.2f}{month}."


def warnings(summary: Summary) -> Iterator[str]:
    """A sentence for each reason why the numbers are incomplete, or not what they seem."""
    if summary.rows_dropped:
        yield f"Journal rows dropped because the disk or the topic was slow or full: {summary.rows_dropped:,}."
    if summary.torn:
        yield f"Unreadable lines or files in the journal: {summary.torn:,}."
    if several := mixed(summary.clusters):
        yield several


def error_name(code: int) -> str:
    """Kafka's name for an error code, or the number if the name is not known."""
    return _ERRORS.get(code, str(code))


def percent(share: float) -> str:
    """0.628 → 62.8"""
    return f"{100 * share:.1f}"


def rate(per_second: float) -> str:
    """1234.5 → 1,234; below ten with two digits, so that a little is not shown as none: 0.0412 → 0.041"""
    return f"{per_second:,.0f}" if per_second >= 10 else f"{per_second:.2g}"


def ms(time_us: float) -> str:
    """Microseconds as milliseconds: 1234567 → 1,234.6"""
    return f"{time_us / 1000:,.1f}"
