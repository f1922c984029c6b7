"""What a person should look at now, most urgent first.

In: the newest snapshot and clients, and what was counted lately. Out: problems, each with a kind that never changes its
meaning and a sentence. None: all is well, as far as Forebay can see. Where deploy/prometheus/forebay.rules.yaml has an
alert for it, the problem is as severe, and what is counted stands here for as many minutes as there.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any, Final

from forebay_policies import own_choices
from forebay_proxy.console.collector import ClientView
from forebay_proxy.console.lately import Lately
from forebay_proxy.metrics.registry import Key, Snapshot
from forebay_proxy.security.expiry import SOON_S

NAMED: Final = 5
"""Clients that a sentence names at most."""
LATELY_S: Final = 300
INCOMPLETE_S: Final = 900
"""For so long a row of the journal that was dropped stands here."""
DAY_S: Final = 86_400
LOG: Final = "the log says why"

Found = tuple[str, str, str]
"""(severity, kind, text)."""


def problems(
    now: Snapshot,
    clients: Collection[ClientView],
    unready: str | None,
    at: float,
    lately: Lately,
    config: Iterable[Mapping[str, Any]] = (),
    ailing: Iterable[str] = (),
) -> list[dict[str, Any]]:
    """`unready`: why no client can be served; `at`: seconds since 1970; `config`: rows, as api.Told has them;
    `ailing`: what is wrong with workers."""
    found = [
        *_service(now, unready),
        *(("warning", "workers", text) for text in ailing),
        *_errors(lately),
        *_clients(clients),
        *_secrets(now, at),
        *_overrides(config),
    ]
    found.sort(key=lambda problem: problem[0] != "critical")
    return [{"severity": severity, "kind": kind, "text": text} for severity, kind, text in found]


def _service(now: Snapshot, unready: str | None) -> Iterator[Found]:
    if unready is not None:
        yield "critical", "not_ready", f"takes no clients: {unready}"
    down = sorted(int(node) for (name, (node, *_)), up in _labelled(now) if name == "forebay_broker_up" and not up)
    if down:
        named = ", ".join(map(str, down[:20]))
        yield "warning", "broker_down", f"{_many(len(down), 'broker')} cannot be reached: {named}"
    if now.gauges.get(("forebay_brokers_without_port", ()), 0.0):
        text = f"clients are not told of a broker, since a listener has no port for it; {LOG}"
        yield "critical", "no_port", text
    if waiters := sum(level for (name, _), level in now.gauges.items() if name == "forebay_buffer_memory_waiters"):
        yield "warning", "memory", f"{_many(waiters, 'client')} {'waits' if waiters == 1 else 'wait'} for buffer.memory"
    if now.gauges.get(("forebay_config_last_reload_successful", ()), 1.0) == 0:
        yield "warning", "settings_refused", f"the settings were read again and refused; {LOG}"


def _errors(lately: Lately) -> Iterator[Found]:
    def errors(side: str, kind: str) -> float:
        return lately.grown(LATELY_S, "forebay_errors_total", side, kind)

    within = f"in the last {LATELY_S // 60} minutes"
    if refused := errors("upstream", "authentication"):
        yield "critical", "login_refused", f"brokers refused Forebay's login {_many(refused, 'time')} {within}; {LOG}"
    if refused := errors("upstream", "answered"):
        yield "critical", "records_refused", f"brokers refused {_many(refused, 'batch', 'batches')} {within}"
    if refused := errors("internal", "refused"):
        text = (
            f"{_many(refused, 'batch', 'batches')} {within} refused before being sent, as where a topic may not be seen"
        )
        yield "critical", "records_not_sent", text
    if expired := errors("internal", "expired"):
        text = f"{_many(expired, 'Produce request')} {within} not acknowledged in the client's time"
        yield "critical", "records_expired", text
    if unknown := errors("upstream", "outcome_unknown"):
        text = f"{_many(unknown, 'batch', 'batches')} {within} told as failed that may have been appended"
        yield "critical", "outcome_unknown", text
    if dropped := lately.grown(INCOMPLETE_S, "forebay_journal_rows_dropped_total"):
        text = (
            f"{_many(dropped, 'journal row')} dropped in the last {INCOMPLETE_S // 60} minutes: an audit of that time"
        )
        yield "warning", "journal_dropped", f"{text} is incomplete"


def _clients(clients: Collection[ClientView]) -> Iterator[Found]:
    if too_old := sum(view.too_old for view in clients):
        yield "warning", "too_old", f"{_many(too_old, 'client')} too old for Kafka 4"
    if picking := [view.seen.client_id or "?" for view in clients if own_choices.picked(view.seen.choices)]:
        named = ", ".join(sorted(picking)[:NAMED])
        text = f"{_many(len(picking), 'client')} {'seems' if len(picking) == 1 else 'seem'} to pick partitions: {named}"
        yield "warning", "picks_partitions", text


def _overrides(config: Iterable[Mapping[str, Any]]) -> Iterator[Found]:
    for row in config:
        if "expires_at" in row:
            until = datetime.fromtimestamp(row["expires_at"], UTC).strftime("%H:%M UTC on %d %B")
            below = f", instead of {row['instead_of']}" if row["instead_of"] else ""
            yield "warning", "override", f"{row['name']} is overridden until {until}{below}: {row['reason']}"


def _secrets(now: Snapshot, at: float) -> Iterator[Found]:
    for (name, (side, *_)), level in _labelled(now):
        if name == "forebay_security_last_reload_successful" and not level:
            yield "warning", "reload_failed", f"new certificates or secrets cannot be used ({side}); {LOG}"
        elif name == "forebay_certificate_expiry_timestamp_seconds" and math.isfinite(level) and level - at < SOON_S:
            severity = "critical" if level - at < DAY_S else "warning"
            if level <= at:
                yield severity, "certificate", f"a certificate ({side}) has expired"
            else:
                days = int((level - at) // DAY_S)
                yield severity, "certificate", f"a certificate ({side}) expires in {_many(days, 'day')}"


def _labelled(now: Snapshot) -> Iterator[tuple[Key, float]]:
    return ((key, level) for key, level in now.gauges.items() if key[1])


def _many(count: float, what: str, several: str = "") -> str:
    return f"{count:,.0f} {what if count == 1 else several or f'{what}s'}"
