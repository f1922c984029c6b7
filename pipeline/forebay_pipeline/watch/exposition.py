"""What is watched, as a file in Prometheus's text format, for node_exporter's textfile collector.

The file is replaced as a whole after each batch. Counters count from the start of the job; latencies are those of a
topic's last minute. A topic without a minute for an hour is left out, so there are no more series than topics of an
hour.
"""

from __future__ import annotations

import datetime
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from forebay_pipeline.storage import Storage
from forebay_pipeline.watch.verdict import Finding, Minute

_FORGOTTEN: Final = datetime.timedelta(hours=1)
_COUNTED: Final[Mapping[str, str]] = {
    "acknowledged": "Records that were acknowledged to clients.",
    "unacknowledged": "Records whose clients were told an error.",
    "not_followed": "Records of which it is not known what clients were told, or where they are.",
    "lost": "Acknowledged records at offsets that the topic did not have a moment later.",
    "expired": "Acknowledged records that were deleted before they were looked for.",
}

Totals = Mapping[str, tuple[str, int]]
"""Of the job itself: a metric's name → what it is, and its value. It is a counter if its name ends in `_total`."""


@dataclass
class _Topic:
    last: Minute
    records: Counter[str] = field(default_factory=Counter)
    findings: Counter[Finding] = field(default_factory=Counter)
    unchecked: int = 0

    @property
    def at(self) -> datetime.datetime:
        """When its last minute began."""
        return datetime.datetime.fromisoformat(self.last.minute)


class TextFile:
    """Writes to `path`, wherever Spark reaches it, with `totals` of that moment. Raises CannotRun."""

    def __init__(self, storage: Storage, path: str, totals: Callable[[], Totals]) -> None:
        self._storage = storage
        self._path = path
        self._totals = totals
        self._topics: dict[tuple[str, str, str], _Topic] = {}

    def tell(self, batch: int, minutes: Sequence[Minute]) -> None:
        """Count the minutes of a batch, which are in the order of time, and write the file anew."""
        for minute in minutes:
            self._count(minute)
        newest = max((topic.at for topic in self._topics.values()), default=None)
        if newest is not None:
            self._topics = {key: topic for key, topic in self._topics.items() if newest - topic.at < _FORGOTTEN}
        self._storage.write(self._path, "".join(f"{line}\n" for line in self._lines()).encode())

    def _count(self, minute: Minute) -> None:
        topic = self._topics.setdefault((minute.cluster_id, minute.topic, minute.topic_id), _Topic(minute))
        topic.last = minute
        topic.unchecked += minute.lost is None
        topic.records.update({name: getattr(minute, name) or 0 for name in _COUNTED})
        topic.findings.update(minute.findings)

    def _lines(self) -> Iterator[str]:
        topics = sorted(self._topics.items())
        for name, text in _COUNTED.items():
            yield from _family(f"{name}_records_total", "counter", text)
            for key, topic in topics:
                yield f"forebay_watch_{name}_records_total{_labels(key)} {topic.records[name]}"
        yield from _family("findings_total", "counter", "Minutes with a finding, by what it is.")
        for key, topic in topics:
            for finding in Finding:
                yield f"forebay_watch_findings_total{_labels(key, finding)} {topic.findings[finding]}"
        yield from _family("unchecked_total", "counter", "A topic's minutes that were not checked for loss.")
        for key, topic in topics:
            yield f"forebay_watch_unchecked_total{_labels(key)} {topic.unchecked}"
        for share in ("p50", "p99"):
            name = f"latency_{share}_seconds"
            yield from _family(name, "gauge", f"Latency ({share}) in a topic's last minute, from request to answer.")
            for key, topic in topics:
                value = getattr(topic.last, f"{share}_ms")
                if value is not None:
                    yield f"forebay_watch_{name}{_labels(key)} {value / 1000:.6f}"
        for name, (text, value) in self._totals().items():
            yield from _family(name, "counter" if name.endswith("_total") else "gauge", text)
            yield f"forebay_watch_{name} {value}"


def _family(name: str, kind: str, text: str) -> Iterator[str]:
    yield f"# HELP forebay_watch_{name} {text}"
    yield f"# TYPE forebay_watch_{name} {kind}"


def _labels(key: tuple[str, str, str], finding: str | None = None) -> str:
    labels = dict(zip(("cluster_id", "topic", "topic_id"), key, strict=True))
    if finding is not None:
        labels["finding"] = finding
    return "{" + ",".join(f'{name}="{_escaped(value)}"' for name, value in labels.items()) + "}"


def _escaped(value: str) -> str:
    return value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
