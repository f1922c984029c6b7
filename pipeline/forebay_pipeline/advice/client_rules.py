"""Rules about clients: those to be left alone, those that could be merged and are not, those too old for Kafka 4.

In: Facts, of a journal with a ledger or with what was only observed. Out: a Change, or None where there is not enough
evidence, or nothing to gain.

What merging makes of batches that are untouched now is taken to be what it makes of the others: if a batch to a broker
has 4 client batches merged in it, three of four untouched requests would be saved.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Sequence
from typing import Final

from forebay_pipeline.advice.change import Change, Effect
from forebay_pipeline.advice.facts import ENOUGH, OBSERVED, TOUCHED, ClientUse, Facts
from forebay_pipeline.advice.toml import exactly
from forebay_policies.own_choices import CHOOSE_PARTITIONS_THEMSELVES

NAMED: Final = 5
"""Clients, or topics, to be named in a sentence."""
MOST_PATTERNS: Final = 50
"""To be written in a setting."""
SHARE: Final = 0.1
"""Of all client batches: what is less does not matter."""
SAVED: Final = 0.2
"""Of the requests."""
INT_MAX: Final = 2**31 - 1


def pick_partitions(facts: Facts) -> Change | None:
    """Clients seem to pick partitions themselves, and their records may move."""
    found = [one for one in facts.clients.clients if one.picked and exactly(one.client_id)]
    if not found:
        return None
    worst, found, further = found[0], found[:MOST_PATTERNS], found[MOST_PATTERNS:]
    topic = worst.picked[0]
    present = facts.present.patterns("client.ids.exclude")
    patterns = dict.fromkeys([*present, *(exactly(one.client_id) for one in found)])
    more = sum(one.merged for one in found) / facts.clients.seconds * _saved(facts) if facts.merge_ratio else None
    return Change(
        name="pick-partitions",
        title="Leave alone clients that seem to pick partitions themselves",
        evidence=f"{_named(found)}: {worst.client_id} sent its records without a key to {topic.used} of"
        f" {topic.partitions} partitions of {topic.topic} only; chance explains that less than once in a million."
        + _further(further, "client"),
        effect=Effect(
            requests=more,
            of_requests=facts.requests_a_second,
            others=("Their records stay where they put them. Ask whoever runs them first.",),
        ),
        how="Requests as if what these clients send were not merged any more.",
        settings={"client.ids.exclude": tuple(patterns)},
        protects=True,
    )


def too_old(facts: Facts) -> Change | None:
    """Clients whose Produce versions Kafka 4 does not take."""
    found = [one for one in facts.clients.clients if one.too_old]
    if not found:
        return None
    records = sum(one.records for one in found)
    versions = sorted({version for one in found for version in one.versions if version < 3})
    return Change(
        name="too-old",
        title="Before brokers go to Kafka 4: keep old clients behind Forebay, or upgrade them",
        evidence=f"{_named(found)} speak{'s' if len(found) == 1 else ''} Produce"
        f" {', '.join(f'v{version}' for version in versions)}, which Kafka 4 refuses (KIP-896).",
        effect=Effect(others=(f"{records:,} records of this time would have been refused without Forebay.",)),
        how="Counted. Nothing is to be set: Forebay converts what they send.",
        settings={},
    )


def idempotent(facts: Facts) -> Change | None:
    """Much passes untouched because clients are idempotent, many of them by default."""
    effect = _if_merged(facts, "idempotent")
    if effect is None:
        return None
    found = [one for one in facts.clients.clients if one.reasons.get("idempotent")]
    return Change(
        name="idempotent",
        title="Ask whether these clients need enable.idempotence",
        evidence=f"{facts.clients.batches('idempotent'):,} of {facts.clients.total:,} client batches passed untouched"
        f" because their producers are idempotent: {_named(found)}.",
        effect=effect,
        how=_HOW + " Set enable.idempotence=false in the client, and leave acks=all. It may then write a record twice"
        " when an answer is lost: one that must not keeps idempotence.",
        settings={},
    )


_HOW: Final = "As if these batches were merged like the others; records with a key gain less."


def excluded_topics(facts: Facts) -> Change | None:
    """Much passes untouched because of topics.exclude: observe it first."""
    effect = _if_merged(facts, "topic_excluded")
    topics = [one.topic for one in facts.clients.reasons if one.reason == "topic_excluded" and one.topic]
    if effect is None:
        return None
    return _observed_instead(facts, "topics", topics, (), effect)


def excluded_clients(facts: Facts) -> Change | None:
    """Much passes untouched because of client.ids.exclude, beyond its default: observe it first."""
    effect = _if_merged(facts, "client_excluded")
    clients = [one.client_id for one in facts.clients.clients if one.reasons.get("client_excluded")]
    if effect is None:
        return None
    return _observed_instead(facts, "client.ids", clients, CHOOSE_PARTITIONS_THEMSELVES, effect)


def _observed_instead(
    facts: Facts, what: str, names: Sequence[str], kept: Sequence[str], effect: Effect
) -> Change | None:
    """Only where it is known which patterns exclude them."""
    patterns = facts.present.patterns(f"{what}.exclude")
    guilty = [
        pattern for pattern in patterns if pattern not in kept and any(_matches(name, [pattern]) for name in names)
    ]
    if not facts.present.known or not guilty:
        return None
    observed = dict.fromkeys([*facts.present.patterns(f"{what}.observe"), *guilty])
    return Change(
        name=f"excluded-{what.replace('.', '-')}",
        title=f"Observe what {what}.exclude leaves out, to see what merging would save",
        evidence=f"{-(effect.requests or 0):,.0f} of {effect.of_requests:,.0f} requests a second could be saved of what"
        f" {', '.join(guilty[:NAMED])} leave{'s' if len(guilty) == 1 else ''} out: {_first(names)}.",
        effect=effect,
        how=_HOW + " Nothing of that is saved while it is only observed.",
        settings={
            f"{what}.exclude": tuple(pattern for pattern in patterns if pattern not in guilty),
            f"{what}.observe": tuple(observed),
        },
    )


def observed(facts: Facts) -> Change | None:
    """Topics that were only observed, whose batches would become few: let them move. topics.observe is over that."""
    if facts.present.known and facts.present.text("moves") != "observe":
        return None
    picked = {picked.topic for one in facts.clients.clients for picked in one.picked}
    found = [one for one in facts.clients.reasons if one.reason == OBSERVED and one.topic not in ("", *picked)]
    found = [one for one in found if not _matches(one.topic, facts.present.patterns("topics.observe"))]
    found = [one for one in found if one.opens <= (1 - SAVED) * one.batches]
    found, further = found[:MOST_PATTERNS], found[MOST_PATTERNS:]
    batches, opens = sum(one.batches for one in found), sum(one.opens for one in found)
    if batches < ENOUGH:
        return None
    seconds = facts.clients.seconds
    ms, of_ms = _replayed(facts)
    topics = dict.fromkeys([*facts.present.patterns("topics.move"), *(one.topic for one in found)])
    return Change(
        name="observed",
        title=f"Let {len(found):,} observed topic{'s' if len(found) > 1 else ''} move",
        evidence=f"{batches:,} client batches were only observed; merged they would have been {opens:,}:"
        f" {_first([one.topic for one in found])}.{_further(further, 'topic')}",
        effect=Effect(
            ms=ms,
            of_ms=of_ms,
            requests=-(batches - opens) / seconds,
            of_requests=facts.requests_a_second + facts.clients.batches(OBSERVED) / seconds,
        ),
        how="As Forebay counted it while it only observed, one request for each batch."
        + ("" if ms is None else " The latency is that of the replay.")
        + ("" if facts.present.known else ' This takes "moves" = "observe" for granted.'),
        settings={"topics.move": tuple(topics)},
    )


def _matches(name: str, patterns: Sequence[str]) -> bool:
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)


def _replayed(facts: Facts) -> tuple[float | None, float]:
    replay = facts.replay
    if replay is None or replay.unmerged is None or not replay.only_observed:
        return None, 0.0
    before = replay.unmerged.average_ms
    return replay.results[replay.present].average_ms - before, before


def too_large(facts: Facts) -> Change | None:
    """Batches pass untouched because they are too large when decompressed."""
    present = int(facts.present.number("max.decompressed.bytes"))
    effect = _if_merged(facts, "too_large", share=0.01)
    if effect is None or present > INT_MAX // 2:
        return None
    return Change(
        name="too-large",
        title=f"Decompress up to {2 * present / (1 << 20):,.0f} MiB of a request",
        evidence=f"{facts.clients.batches('too_large'):,} of {facts.clients.total:,} client batches passed untouched"
        f" because their requests have more than {present / (1 << 20):,.0f} MiB when decompressed.",
        effect=effect,
        how=_HOW + " At best: if twice as much is enough.",
        settings={"max.decompressed.bytes": 2 * present},
    )


def _if_merged(facts: Facts, reason: str, share: float = SHARE) -> Effect | None:
    """What is saved if batches with that reason were merged; None if that is too little, or nobody knows."""
    batches = facts.clients.batches(reason)
    if facts.merge_ratio is None or batches < max(ENOUGH / 10, share * facts.clients.total):
        return None
    untouched = facts.clients.total - facts.clients.batches(*TOUCHED)
    of = facts.requests_a_second + untouched / facts.clients.seconds
    effect = Effect(requests=-batches / facts.clients.seconds * _saved(facts), of_requests=of)
    return effect if effect.worth >= share * SAVED else None


def _saved(facts: Facts) -> float:
    """The part of client batches that merging saves."""
    ratio = facts.merge_ratio
    return max(0.0, 1 - 1 / ratio) if ratio else 0.0


def _named(clients: Sequence[ClientUse]) -> str:
    """1 client (till-7), 3 clients (a, b, c), 12 clients (a, b, c, d, e …)"""
    names = _first([one.client_id or "without an id" for one in clients])
    return f"{len(clients):,} client{'' if len(clients) == 1 else 's'} ({names})"


def _further(left_out: Sequence[object], what: str) -> str:
    """That so many have no place in the setting yet."""
    if not left_out:
        return ""
    count = len(left_out)
    return f" And {count:,} more {what}{'' if count == 1 else 's'}: ask for advice again once these are set."


def _first(names: Sequence[str]) -> str:
    return ", ".join(names[:NAMED]) + (" …" if len(names) > NAMED else "")
