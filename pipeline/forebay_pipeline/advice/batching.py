"""Rules about batches that are small or full: linger.ms, batch.size.

In: Facts. Out: a Change, or None where there is not enough evidence, or nothing to gain. A setting that a replay tried
several values of is left to it.
"""

from __future__ import annotations

from typing import Final

from forebay_pipeline.advice.change import Change, Effect
from forebay_pipeline.advice.facts import ENOUGH, LINGERS_MS, Facts

SMALL: Final = 4
"""Batches below a fourth of batch.size are small."""

OFTEN: Final = 50
"""Requests a second; fewer cost next to nothing."""

WORTH: Final = 0.2
"""The least that a longer linger must be worth."""


def linger(facts: Facts) -> Change | None:
    """Small batches, many requests: let batches wait a little.

    A batch that waits L ms more takes in what its queue gets meanwhile. Of 1,000 batches in 10 s of one queue,
    r = 0.1 a ms, each would be followed by r · L others within 5 ms, so that 1,000 / (1 + 0.5) = 667 are left, each of
    k = 1.5. The first of these waits L more, the others L / 2 on average: L (k + 1) / 2 k = 4.2 ms.
    """
    use, present = facts.batches, facts.present.number("linger.ms")
    size = facts.present.number("batch.size")
    rate = facts.requests_a_second
    if facts.simulated("linger.ms") or use.batches < ENOUGH or rate < OFTEN or use.bytes / use.batches >= size / SMALL:
        return None
    longest = facts.present.number("delivery.timeout.ms") - facts.present.number("request.timeout.ms")
    tried = [_with(facts, each) for each in LINGERS_MS if present < each <= longest and use.lingering.get(each)]
    if not tried:
        return None
    milliseconds, effect = max(tried, key=lambda one: one[1].worth)
    if effect.worth < WORTH:
        return None
    left = use.lingering[milliseconds]
    return Change(
        name="linger",
        title=f"Let batches wait {milliseconds} ms for more records",
        evidence=f"{use.batches:,} batches of {use.bytes / use.batches:,.0f} bytes and"
        f" {use.records / use.batches:,.1f} records on average, in {rate:,.0f} requests a second;"
        f" batch.size is {size:,.0f}.",
        effect=effect,
        how=f"From each queue's own rate, as if batches came evenly: {left:,.0f} batches would be left, and requests in"
        " proportion. In bursts more is merged. A record waits at most the whole linger.",
        settings={"linger.ms": milliseconds},
    )


def _with(facts: Facts, milliseconds: int) -> tuple[int, Effect]:
    use = facts.batches
    left = use.lingering[milliseconds]
    together = use.batches / left
    longer = milliseconds - max(0.0, facts.present.number("linger.ms"))  # -1: adaptive
    return milliseconds, Effect(
        ms=longer * (together + 1) / (2 * together),
        of_ms=use.average_ms,
        requests=-facts.requests_a_second * (1 - left / use.batches),
        of_requests=facts.requests_a_second,
    )


GROWS: Final = 4


def batch_size(facts: Facts) -> Change | None:
    """Most batches are full before their linger is over: let them be larger. Only where a fixed linger is known."""
    use, present = facts.batches, facts.present
    linger_ms, size = present.number("linger.ms"), int(present.number("batch.size"))
    larger = size * GROWS
    if (
        not present.known
        or linger_ms <= 0
        or facts.simulated("batch.size")
        or larger > present.number("batch.max.size")
    ):
        return None
    rate = facts.requests_a_second
    if use.batches < ENOUGH or rate < OFTEN or use.full < use.batches / 2:
        return None
    filled_ms = use.full_linger_us / use.full / 1000
    fits = min(GROWS, linger_ms / filled_ms) if filled_ms else GROWS
    share = use.full / use.batches
    effect = Effect(
        ms=share * max(0.0, min(linger_ms, filled_ms * fits) - filled_ms) / 2,
        of_ms=use.average_ms,
        requests=-rate * share * (1 - 1 / fits),
        of_requests=rate,
    )
    if effect.worth < WORTH:
        return None
    return Change(
        name="batch-size",
        title=f"Let batches grow to {larger:,} bytes",
        evidence=f"{100 * share:.0f} % of {use.batches:,} batches were full, at {size:,} bytes, after"
        f" {filled_ms:.1f} of {linger_ms:.0f} ms; {rate:,.0f} requests a second.",
        effect=effect,
        how="As if full batches filled up at the same rate until the linger is over, or they have four times the size;"
        " requests in proportion.",
        settings={"batch.size": larger},
    )
