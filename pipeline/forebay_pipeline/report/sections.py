"""What the report's page contains, and in which order; how it looks is up to page.py and its templates.

In: the Facts of advice, a Summary among them, the Series of the span, and the result of an audit if there is any. Out:
headlines and sections, whose text is not escaped yet.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from forebay_pipeline.advice.facts import OBSERVED, TOUCHED, Clients, Facts
from forebay_pipeline.advice.present import Present
from forebay_pipeline.audit.result import AuditResult, ClientLine, Finding, Kind, has_users
from forebay_pipeline.errors import CLEAN
from forebay_pipeline.jobs.time_text import instant
from forebay_pipeline.partitions import tables
from forebay_pipeline.partitions.summary import Percentiles, Summary
from forebay_pipeline.partitions.tables import Table, ms, percent, rate, table
from forebay_pipeline.replay.results import ReplayReport, Result
from forebay_pipeline.replay.text import gained
from forebay_pipeline.replay.trust import average_ms, p99_ms, trusted
from forebay_pipeline.report import plots
from forebay_pipeline.report.scorecards import scorecards
from forebay_pipeline.report.series import Series, coarser
from forebay_pipeline.report.svg import Plot
from forebay_pipeline.report.trends import Trend, trends

MAX_ROWS: Final = 50
"""Of any table; the jobs' own outputs have the rest."""


class Asked(NamedTuple):
    """What the page is to show beside what the journal tells: plots of `topics` topics, those with the most bytes."""

    topics: int = 3
    audit: AuditResult | None = None
    replay: ReplayReport | None = None
    price_per_gb: float | None = None
    """Of what crosses racks, in whatever money."""
    present: Present = Present()


class Known(NamedTuple):
    """All that the page shows."""

    series: Series
    facts: Facts
    audit: AuditResult | None = None
    missing: Sequence[str] = ()
    """Sentences: what of the time is not in it."""
    missing_us: int = 0
    """How much of what is `covered` that is."""

    @property
    def summary(self) -> Summary:
        """That of the facts."""
        return self.facts.summary


class Headline(NamedTuple):
    """A number at the top of the page; highlighted if `bad`."""

    name: str
    value: str
    note: str = ""
    bad: bool = False


class Section(NamedTuple):
    """Sentences, then plots, then tables."""

    name: str
    """Becomes part of ids: letters, digits and dashes."""
    title: str
    text: Sequence[str] = ()
    plots: Sequence[Plot] = ()
    tables: Sequence[Table] = ()


def covered(known: Known) -> tuple[int, int]:
    """The first and the last time of what the page tells of: of batches, and of what clients sent."""
    summary, clients = known.summary, known.facts.clients
    if not clients.clients:
        return summary.first_us, summary.last_us
    return min(summary.first_us, clients.first_us), max(summary.last_us, clients.last_us)


def headlines(known: Known) -> Iterator[Headline]:
    """The numbers at the top of the page, in their order."""
    summary = known.summary
    yield from _of_batches(known) if summary.total.batches else _of_none(known)
    if summary.seconds_waited is not None:
        waited = summary.seconds_waited
        yield Headline("Waits for memory", f"{percent(waited)} %", "of the workers' seconds", bad=waited > 0)
    if summary.metadata.hit_rate is not None:
        yield Headline("Metadata cached", f"{percent(summary.metadata.hit_rate)} %", "of topic lookups")
    if known.audit is not None:
        yield Headline("Audit", _verdict(known.audit), _audited(known.audit), bad=known.audit.exit_code != CLEAN)
    if (replay := known.facts.replay) is not None:
        stays = replay.recommended == replay.present
        yield Headline("Replay", "settings stay" if stays else "better settings", f"{len(replay.results):,} tried")


def _of_none(known: Known) -> Iterator[Headline]:
    clients = known.facts.clients
    of = f", of the {len(clients.clients):,} largest clients" if clients.left_out else ""
    yield Headline("Records", f"{sum(one.records for one in clients.clients):,}", f"went on as they came{of}")


def _of_batches(known: Known) -> Iterator[Headline]:
    summary, total = known.summary, known.summary.total
    first_us, last_us = covered(known)
    seconds = (last_us - first_us - known.missing_us) / 1e6
    yield Headline("Records", f"{total.records:,}", f"{rate(total.records / seconds)} a second" if seconds >= 1 else "")
    yield Headline("Bytes", size(total.bytes), f"{total.batches:,} batches of {size(total.bytes_per_batch)}")
    yield Headline("Linger p99", f"{ms(total.linger_us.p99_us)} ms", _other_levels(total.linger_us))
    yield Headline("Brokers' answers p99", f"{ms(total.upstream_us.p99_us)} ms", _other_levels(total.upstream_us))
    yield Headline("Not acknowledged", f"{total.failed:,}", "batches", bad=bool(total.failed))
    now = sum(one.until_us is None for one in summary.runaways)
    yield Headline(
        "Runaways", f"{len(summary.runaways):,}", f"{now:,} at the end" if now else "", bad=bool(summary.runaways)
    )


def _other_levels(times: Percentiles) -> str:
    return f"p50 {ms(times.p50_us)}, p99.9 {ms(times.p999_us)}"


def _verdict(audit: AuditResult) -> str:
    if found := audit.totals.findings:
        return f"{found:,} findings"
    return "incomplete" if audit.incomplete else "clean"


def _audited(audit: AuditResult) -> str:
    return f"{audit.totals.acknowledged:,} records acknowledged"


def sections(known: Known) -> Iterator[Section]:
    """The page's sections in their order."""
    if known.facts.clients.clients:
        cards = scorecards(known.facts.clients, MAX_ROWS)
        yield Section("clients", "Clients", tables=_cut([cards]))
    if known.summary.total.batches:
        yield _trends(known.series)
        yield _partitions(known.summary, known.series)
        yield _times(known.summary, known.series)
        yield _batches(known.summary, known.series)
    else:
        yield _passed_on(known.facts.clients)
    yield _memory(known.summary, known.series)
    if racks := tables.racks(known.summary, known.facts.price_per_gb):
        yield Section("racks", "What crossed racks", [racks], tables=_cut([_crossed(known.facts)]))
    if known.audit is not None:
        yield _audit(known.audit)
    if known.facts.replay is not None:
        yield _replay(known.facts.replay)


def _passed_on(clients: Clients) -> Section:
    reasons = clients.reasons
    rows = [
        (
            one.topic or "(others)",
            one.reason.replace("_", " "),
            one.batches,
            one.opens if one.reason == OBSERVED else "",
        )
        for one in reasons
    ]
    made = table("Clients' batches, and why they were not merged", ["topic", "why", "batches", "would have been"], rows)
    text = (
        "Clients' batches were merged, but the journal has no rows of the merged batches."
        if clients.batches(*TOUCHED)
        else "Nothing was merged in this time: whatever clients sent went on as it came."
    )
    if any(one.reason == OBSERVED for one in reasons):
        text += " Of what was only observed, the last column tells how many batches it would have become."
    return Section("passed-on", "What went on as it came", [text], tables=_cut([made]))


def _trends(series: Series) -> Section:
    found = list(trends(series))
    clear = [one for one in found if one.clear]
    text = [f"{one.name} {one.verdict} from {_told(one, one.first)} to {_told(one, one.last)}." for one in clear]
    if not found:
        text = ["The time is too short to tell trends."]
    elif not clear:
        text = ["Nothing has clearly changed from the first quarter of the time to the last."]
    rows = [(one.name, _told(one, one.first), _told(one, one.last), _change(one), one.verdict) for one in found]
    header = ["what", "first quarter", "last quarter", "change", "trend"]
    made = _cut([table("Medians of the first and the last quarter of the time", header, rows)])
    return Section("trends", "What has changed", text, [plots.rates(series.times, series.width_us)], made)


def _told(trend: Trend, value: float) -> str:
    if trend.unit == "bytes":
        return size(value)
    number = f"{value:,.0f}" if value >= 100 else f"{value:,.2f}"
    return f"{number} {trend.unit}".strip()


def _change(trend: Trend) -> str:
    if trend.change is None:
        return ""
    return "0 %" if abs(trend.change) < 0.005 else f"{100 * trend.change:+,.0f} %".replace("-", "−")


def _partitions(summary: Summary, series: Series) -> Section:
    text = [] if summary.runaways else ["No partition ran away: none was both slower than the others and given more."]
    drawn = [plots.shares(number, topic, series.width_us) for number, topic in enumerate(series.shares)]
    made = [tables.runaways(summary), tables.skew(summary), tables.sizes(summary)]
    return Section("partitions", "Where records went", text, drawn, _cut(made))


def _times(summary: Summary, series: Series) -> Section:
    drawn = [plots.waits(series.times, series.width_us), plots.lingers(series.times, series.width_us)]
    return Section("times", "How long they took", (), drawn, _cut([tables.times(summary)]))


def _batches(summary: Summary, series: Series) -> Section:
    made = [tables.reasons(summary), tables.fates(summary)]
    return Section("batches", "Batches", (), [plots.sizes(series.times, series.width_us)], _cut(made))


def _memory(summary: Summary, series: Series) -> Section:
    if not series.gauges:
        return Section("memory", "Memory, queues and metadata", ["The journal has no gauges of this time."])
    text = [sentence for sentence in [tables.metadata(summary)] if sentence]
    drawn = [plots.memory(*coarser(series.gauges, series.width_us))]
    return Section("memory", "Memory, queues and metadata", text, drawn, _cut([tables.workers(summary)]))


def _crossed(facts: Facts) -> Table:
    """What crossed by topic, and what it costs where a price is known."""
    price, use = facts.price_per_gb, facts.summary.racks
    month = tables.MONTH_S / max(1.0, use.seconds if use else 0.0)
    rows = [
        (
            one.topic or "(others)",
            size(one.same_bytes),
            size(one.other_bytes),
            size(one.unknown_bytes),
            percent(one.other_bytes / known) if (known := one.same_bytes + one.other_bytes) else "",
            *(() if price is None else _costs(one.other_bytes / tables.GB * price, month)),
        )
        for one in facts.topic_racks
    ]
    money = [] if price is None else ["cost", "in 30 days"]
    return table(
        "Topics of which most crossed", ["topic", "same rack", "crossed", "not known", "crossed %", *money], rows
    )


def _costs(cost: float, month: float) -> tuple[str, str]:
    return f"{cost:,.2f}", f"{cost * month:,.2f}"


def _audit(audit: AuditResult) -> Section:
    counts = ("acknowledged", "present", *(kind.value for kind in Kind), "expired", "compacted", "not_followed")
    user = ["user"] if has_users(audit) else []

    def user_of(one: ClientLine | Finding) -> list[str]:
        return [one.principal] if user else []

    clients = table(
        "Records, by topic, user and client" if user else "Records, by topic and client",
        ["topic", *user, "client id", *(count.replace("_", " ") for count in counts)],
        [
            (one.topic, *user_of(one), one.client_id, *(getattr(one, count) for count in counts))
            for one in audit.clients
        ],
        audit.clients_left_out,
    )
    found = table(
        "Findings",
        ["what", "topic", "partition", "offsets", "records", *user, "client id", "answered", "note"],
        [
            (
                one.kind.value.replace("_", " "),
                one.topic,
                str(one.partition),
                f"{one.first_offset}–{one.last_offset}",
                one.records,
                *user_of(one),
                one.client_id,
                instant(one.time_us),
                one.note,
            )
            for one in audit.findings
        ],
    )
    topics = table(
        "Not in the ledger", ["topic", "unclaimed", "later"], [(t.topic, t.unclaimed, t.later) for t in audit.topics]
    )
    total = audit.totals
    verdict = (
        f"{total.findings:,} records are not as they were acknowledged."
        if total.findings
        else "Nothing is missing, duplicated, altered or out of order"
        + (" of what was audited." if audit.incomplete else ".")
    )
    return Section(
        "audit",
        "Whether anything was lost",
        [
            f"{total.acknowledged:,} records were acknowledged, {total.present:,} of them are present. {verdict}",
            *audit.notes,
            *audit.incomplete,
        ],
        [plots.audit(total)],
        _cut([found, clients, topics]),
    )


def _replay(report: ReplayReport) -> Section:
    best = report.results[report.recommended]
    words = ", ".join(f"{name} = {value}" for name, value in best.settings.items()) or "the defaults"
    names = list(report.results[0].settings)
    header = [
        "",
        *names,
        "average ms (95 %)",
        "p50 ms",
        "p99 ms (95 %)",
        "bytes/batch",
        "records/batch",
        "requests",
        "skew",
        "Gini",
        "pool peak",
    ]
    order = sorted(range(len(report.results)), key=lambda index: report.results[index].average_ms)
    rows = [(", ".join(report.marks(index)), *_result(report.results[index], names)) for index in order]
    return Section(
        "replay",
        "What other settings would have done",
        [
            f"{report.records:,} records ({report.source}, {report.seconds:,.0f} s) were replayed with "
            f"{len(report.results):,} settings. Recommended: {words}. {report.reason}",
            *trusted(report),
            *gained(report),
            *(f"Assumed: {line}." for line in report.assumed),
        ],
        [plots.grid(report)],
        _cut([table("The settings tried, the best average first", header, rows)]),
    )


def _result(result: Result, names: Sequence[str]) -> Sequence[object]:
    return (
        *(result.settings[name] for name in names),
        average_ms(result),
        f"{result.p50_ms:,.2f}",
        p99_ms(result),
        f"{result.batch_bytes:,.0f}",
        f"{result.batch_records:,.1f}",
        result.requests,
        f"{result.skew:.2f}",
        f"{result.gini:.2f}",
        result.pool_peak_bytes,
    )


def _cut(made: Sequence[Table]) -> list[Table]:
    return [
        each._replace(rows=each.rows[:MAX_ROWS], left_out=each.left_out + max(0, len(each.rows) - MAX_ROWS))
        for each in made
        if each.rows
    ]


def size(count: float) -> str:
    """25,953,200 → 26.0 MB"""
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:,.0f} B" if unit == "B" else f"{count:,.1f} {unit}"
        count /= 1000
    return f"{count:,.1f} TB"
