"""What `forebay explain` does: whether these settings let Forebay touch records of a client for a topic, and why.

With --url a running Forebay is asked, which knows its own settings, and what it has seen of the client.

In: settings, a client id (None: not asked about; empty: the client has none), a topic. Out: for each of both the
pattern that decides. What a batch itself brings (idempotent, transactional, keys) is not known here, and is said in
general.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any, Final, cast
from urllib.parse import urlencode

import msgspec

from forebay_policies.eligibility import INTERNAL_TOPICS, Reason
from forebay_proxy.commands.admin_endpoint import AdminEndpoint, AdminError
from forebay_proxy.config.settings import Patterns


class Decision(msgspec.Struct, frozen=True):
    """About a client id or a topic. `reason`: why its records stay untouched, as in metrics; None: they need not.

    `setting` and `pattern` decide; None where no pattern matches, or none is asked. Of `moves` it is the value.
    """

    what: str
    name: str
    reason: Reason | None
    setting: str | None
    pattern: str | None


def decisions(values: Mapping[str, object], client_id: str | None, topic: str) -> list[Decision]:
    """In the order in which Forebay asks: the client, the topic, and where not all moves, what is only observed.

    Kafka's own topics need no pattern. `values` of settings by name, the seven of patterns and `moves` at least.
    """
    found = []
    if client_id is not None:
        found.append(_decided("client id", client_id, values, "client.ids", Reason.CLIENT_EXCLUDED))
    if topic in INTERNAL_TOPICS:
        found.append(Decision("topic", topic, Reason.INTERNAL_TOPIC, None, None))
    else:
        found.append(_decided("topic", topic, values, "topics", Reason.TOPIC_EXCLUDED))
    observed = _observed(values, client_id, topic)
    return found if observed is None else [*found, observed]


def _observed(values: Mapping[str, object], client_id: str | None, topic: str) -> Decision | None:
    """What makes Forebay only observe, or move all the same although `moves` is observe; None: nothing does."""
    for what, name, setting in (("topic", topic, "topics.observe"), ("client id", client_id, "client.ids.observe")):
        pattern = _first_that_matches(name, cast(Patterns, values[setting])) if name is not None else None
        if name is not None and pattern is not None:
            return Decision(what, name, Reason.OBSERVED, setting, pattern)
    if values["moves"] == "on":
        return None
    moved = _first_that_matches(topic, cast(Patterns, values["topics.move"]))
    if moved is not None:
        return Decision("topic", topic, None, "topics.move", moved)
    return Decision("topic", topic, Reason.OBSERVED, "moves", "observe")


def _decided(what: str, name: str, values: Mapping[str, object], settings: str, reason: Reason) -> Decision:
    include, exclude = f"{settings}.include", f"{settings}.exclude"
    excluded = _first_that_matches(name, cast(Patterns, values[exclude]))
    if excluded is not None:
        return Decision(what, name, reason, exclude, excluded)
    included = _first_that_matches(name, cast(Patterns, values[include]))
    return Decision(what, name, None if included is not None else reason, include, included)


def _first_that_matches(name: str, patterns: Patterns) -> str | None:
    return next((pattern for pattern in patterns if fnmatchcase(name, pattern)), None)


_TOUCHED: Final = """\
Forebay may touch them: records without a key may go to another partition, keyed ones stay in theirs, and both are
merged with those of others. Idempotent and transactional batches pass untouched, as they always do."""
_UNTOUCHED: Final = "Forebay passes them untouched ({})."
_OBSERVED: Final = "Forebay passes them untouched (observed), and measures what it would do with them."


def asked(endpoint: AdminEndpoint, client_id: str | None, topic: str) -> dict[str, Any]:
    """What that Forebay says: its `text`, and `decisions`. Raises AdminError."""
    query = {"topic": topic} | ({"client_id": client_id} if client_id is not None else {})
    told: dict[str, Any] = endpoint.get(f"/api/v1/explain?{urlencode(query)}")
    if not isinstance(told, dict) or "text" not in told:
        raise AdminError(f"{endpoint.name} gives no explanation: is it Forebay?")
    return told


def as_text(found: Sequence[Decision]) -> str:
    """A line for each decision, and what follows."""
    lines = [_line(decision) for decision in found]
    reason = next((decision.reason for decision in found if decision.reason is not None), None)
    if reason is Reason.OBSERVED:
        return "\n".join([*lines, _OBSERVED])
    return "\n".join([*lines, _TOUCHED if reason is None else _UNTOUCHED.format(reason)])


def _line(decision: Decision) -> str:
    about = f"{decision.what} {decision.name or '(none)'}"
    if decision.setting is None:
        return f"{about}: one of Kafka's own"
    if decision.pattern is None:
        return f"{about}: {decision.setting} has no pattern that matches"
    return f"{about}: {decision.setting} {'is' if decision.setting == 'moves' else 'has'} {decision.pattern}"
