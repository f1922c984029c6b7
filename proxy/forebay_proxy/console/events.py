"""What has changed lately, as lines that a person reads: brokers that went and came, workers that died, and so on.

In: one snapshot after the other. Out: the last MOST events, newest first. Nothing here depends on who looks.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Final, Literal

import msgspec

from forebay_proxy.metrics.registry import Snapshot

MOST: Final = 500

Severity = Literal["info", "warning", "critical"]


class Event(msgspec.Struct, frozen=True):
    """`at` in seconds since 1970, the last of `times` in a row; `kind` never changes its meaning, `text` may."""

    at: int
    severity: Severity
    kind: str
    text: str
    times: int = 1


class Events:
    """Remembers MOST of them; the same again and again is one."""

    def __init__(self) -> None:
        self._events: deque[Event] = deque(maxlen=MOST)

    def newest_first(self) -> list[Event]:
        """All that are remembered."""
        return list(reversed(self._events))

    def add(self, at: int, severity: Severity, kind: str, text: str) -> None:
        """Something happened."""
        event = Event(at, severity, kind, text)
        if self._events and msgspec.structs.replace(self._events[-1], at=at, times=1) == event:
            event = msgspec.structs.replace(event, times=self._events.pop().times + 1)
        self._events.append(event)

    def compare(self, before: Snapshot, after: Snapshot, at: int) -> None:
        """Note what is different between two moments."""
        for severity, kind, text in _differences(before, after):
            self.add(at, severity, kind, text)


def _differences(before: Snapshot, after: Snapshot) -> Iterator[tuple[Severity, str, str]]:
    for (name, labels), level in after.gauges.items():
        was = before.gauges.get((name, labels))
        if name == "forebay_broker_up":
            node = labels[0]
            if was is None:
                yield "info", "broker_new", f"broker {node} is known"
            elif level < was:
                yield "warning", "broker_down", f"broker {node} cannot be reached"
            elif level > was:
                yield "info", "broker_up", f"broker {node} can be reached again"
        elif name == "forebay_ready" and was is not None and was != level:
            yield ("info", "ready", "takes clients") if level else ("critical", "not_ready", "takes no clients")
        elif name == "forebay_config_generation" and was is not None and level > was:
            yield "info", "settings", "other settings are in force"
        elif name == "forebay_security_last_reload_successful" and was is not None and level < was:
            yield "warning", "reload_failed", f"new certificates or secrets cannot be used ({labels[0]})"
    for name, labels in before.gauges.keys() - after.gauges.keys():
        if name == "forebay_broker_up":
            yield "info", "broker_gone", f"broker {labels[0]} is not part of the cluster any more"
    for name, severity, kind, text in _COUNTED:
        more = _total(after, name) - _total(before, name)
        if more > 0:
            yield severity, kind, text.format(f"{more:,.0f}")


_COUNTED: Final[tuple[tuple[str, Severity, str, str], ...]] = (
    ("forebay_worker_restarts_total", "warning", "worker_restarted", "workers that died or did not start: {}"),
    ("forebay_journal_rows_dropped_total", "warning", "journal_dropped", "{} journal rows were dropped"),
)


def _total(snapshot: Snapshot, name: str) -> float:
    return sum(count for (own, _), count in snapshot.counters.items() if own == name)
