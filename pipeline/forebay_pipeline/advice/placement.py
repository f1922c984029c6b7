"""Rules about where records go: slow brokers, partitions that run away, skew that racks cause.

In: Facts. Out: a Change, or None where there is not enough evidence, or nothing to gain.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import Final

from forebay_pipeline.advice.change import Change, Effect
from forebay_pipeline.advice.facts import ENOUGH, BrokerUse, Facts
from forebay_pipeline.partitions.runaway_windows import Episode
from forebay_pipeline.partitions.summary import TopicSkew

SLOW: Final = 3
"""Times the median of the others' times."""
SLOW_US: Final = 2000
"""And so much longer at least: what is fast enough is not worth less even partitions."""
FEW: Final = 100
"""Batches of a broker below which its times tell nothing."""

MORE_REQUESTS: Final = 0.32
"""`expected_wait` against `adaptive` in KIP-794's scenario: 18,950 requests against 14,359 (docs/performance.md, a)."""

WORTH: Final = 0.05


def slow_broker(facts: Facts) -> Change | None:
    """A few brokers are much slower than the others, and get records that could go elsewhere."""
    if facts.simulated("partitioner") or facts.present.text("partitioner") == "expected_wait":
        return None
    known = [broker for broker in facts.brokers if broker.batches >= FEW]
    slow = [broker for broker in known if _slow(broker, [other for other in known if other is not broker])]
    others = [broker for broker in known if broker not in slow]
    if facts.batches.batches < ENOUGH or not slow or len(others) <= len(slow):
        return None
    moved = sum(broker.movable_records for broker in slow)
    gained_us = moved * (_average_us(slow) - _average_us(others))
    effect = Effect(
        ms=-gained_us / 1000 / facts.batches.records,
        of_ms=facts.batches.average_ms,
        requests=MORE_REQUESTS * facts.requests_a_second,
        of_requests=facts.requests_a_second,
    )
    if effect.worth < WORTH:
        return None
    names = ", ".join(str(broker.leader) for broker in slow)
    one = len(slow) == 1
    return Change(
        name="slow-broker",
        title=f"Keep records without a key away from slow broker{'' if one else 's'} {names}",
        evidence=f"Broker{'' if one else 's'} {names} answered half of their batches within"
        f" {', '.join(f'{broker.upstream_us / 1000:,.1f}' for broker in slow)} ms, the others within"
        f" {median(broker.upstream_us for broker in others) / 1000:,.1f} ms, and got {moved:,} records that may go"
        " elsewhere.",
        effect=effect,
        how="As if these records had taken as long as the others. Requests as in KIP-794's scenario"
        " (docs/performance.md, a): batches to fewer partitions leave sooner. Partitions will be less even; look at the"
        " broker, too.",
        settings={"partitioner": "expected_wait"},
    )


def _slow(broker: BrokerUse, others: Sequence[BrokerUse]) -> bool:
    if not others:
        return False
    usual = median(other.upstream_us for other in others)
    return broker.upstream_us >= SLOW * usual and broker.upstream_us - usual >= SLOW_US


def _average_us(brokers: Sequence[BrokerUse]) -> float:
    records = sum(broker.records for broker in brokers)
    return sum(broker.latency_us for broker in brokers) / records if records else 0.0


def runaway(facts: Facts) -> Change | None:
    """Partitions that ran away in topics whose records may move: a sticky partitioner feeds what is slow."""
    if facts.simulated("partitioner") or facts.present.text("partitioner") != "sticky":
        return None
    found = [one for one in facts.summary.runaways if _movable(facts, one.topic)]
    if not found or facts.batches.batches < ENOUGH:
        return None
    gained_us = sum(_gained_us(facts, one) for one in found)
    worst = max(found, key=lambda one: one.times_fair)
    topics = len({one.topic for one in found})
    return Change(
        name="runaway",
        title="Let the partitioner see queues, so that no partition runs away",
        evidence=f"{len(found):,} runaway{'s' if len(found) > 1 else ''} in {topics:,}"
        f" topic{'s' if topics > 1 else ''}; at worst partition {worst.partition} of {worst.topic} got"
        f" {worst.times_fair:.1f} times its share while its records waited {worst.wait_us / 1000:,.1f} ms, those of"
        f" others {worst.others_wait_us / 1000:,.1f} ms.",
        effect=Effect(ms=-gained_us / 1000 / facts.batches.records, of_ms=facts.batches.average_ms, requests=0.0),
        how="As if the records of these partitions had waited as long as the others, for as long as it lasted.",
        settings={"partitioner": "adaptive"},
    )


def _gained_us(facts: Facts, episode: Episode) -> float:
    lasted_us = (episode.until_us or facts.summary.last_us) - episode.since_us
    part = min(1.0, max(0.0, lasted_us / 1e6 / facts.seconds))
    records = facts.topics[episode.topic].records * part * episode.share
    return records * max(0.0, episode.wait_us - episode.others_wait_us)


def rack_skew(facts: Facts) -> Change | None:
    """Partitions are uneven because records stay in their rack by all means."""
    present = facts.present
    allowed = present.number("partitioner.rack.max.skew")
    if present.text("partitioner.rack.aware") != "true" or allowed <= 0.5 or facts.batches.batches < ENOUGH:
        return None
    uneven = [one for one in facts.summary.topics if _movable(facts, one.topic) and one.max_to_mean >= 1.5]
    if not uneven:
        return None
    worst = max(uneven, key=lambda one: one.max_to_mean)
    return Change(
        name="rack-skew",
        title="Keep partitions more even than racks are",
        evidence=f"Partition {worst.largest} of {worst.topic} got {worst.max_to_mean:.1f} times its share of the bytes;"
        f" partitioner.rack.max.skew is {allowed:g}.",
        effect=Effect(others=(_less_full(worst), "More bytes will cross racks.")),
        how="From the setting's own bound: 20 % beyond the fair share.",
        settings={"partitioner.rack.max.skew": 0.2},
    )


def _less_full(topic: TopicSkew) -> str:
    return f"The fullest partition gets 1.2 times its share instead of {topic.max_to_mean:.1f}."


def _movable(facts: Facts, topic: str) -> bool:
    """Whether most of the topic's bytes may go to any partition."""
    use = facts.topics.get(topic)
    return use is not None and use.movable_bytes * 2 >= use.bytes
