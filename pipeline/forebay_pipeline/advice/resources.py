"""Rules about memory and about what crosses racks.

In: Facts. Out: a Change, or None where there is not enough evidence, or nothing to gain.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from forebay_pipeline.advice.change import Change, Effect
from forebay_pipeline.advice.facts import ENOUGH, Facts
from forebay_pipeline.partitions.summary import RackUse
from forebay_pipeline.partitions.tables import GB, MONTH_S

WAITED: Final = 0.01
"""Of the workers' seconds."""
WAITED_S: Final = 10
LARGEST_MEMORY: Final = 1 << 34

CROSSED: Final = 0.2
"""Of the bytes of which it is known."""
MOVABLE: Final = 0.1
"""Of what crossed."""
LEAST_KEPT: Final = 0.4
"""Of what may move, the part that stays in its rack if all clients are in one of three (docs/partitioners.md)."""


def memory(facts: Facts) -> Change | None:
    """Clients wait for memory: give each worker twice as much."""
    workers, waited = facts.summary.workers, facts.summary.seconds_waited
    seconds = sum(worker.seconds_waited for worker in workers)
    if facts.batches.batches < ENOUGH or facts.simulated("buffer.memory"):
        return None
    if waited is None or waited < WAITED or seconds < WAITED_S:
        return None
    pool = max(worker.pool_bytes for worker in workers)
    if 2 * pool > LARGEST_MEMORY:
        return None
    return Change(
        name="memory",
        title=f"Give each worker {2 * pool / (1 << 20):,.0f} MiB for records",
        evidence=f"In {seconds:,} of {sum(worker.seconds for worker in workers):,} seconds of the workers a client"
        f" waited for memory, {sum(worker.pool_waits for worker in workers):,} times together; at most"
        f" {max(worker.most_queued_bytes for worker in workers):,} bytes waited for brokers.",
        effect=Effect(
            blocked=-waited,
            requests=0.0,
            others=(f"{pool / (1 << 20):,.0f} MiB more memory at most for each worker of each host.",),
        ),
        how="At best: as if twice the memory were always enough. How long each waited is not in the journal; where one"
        " broker is slow, its queue grows with the memory.",
        settings={"buffer.memory": 2 * pool},
    )


def racks(facts: Facts) -> Change | None:
    """Much crosses racks that need not. All stays where Forebay does not tell its clients' racks apart."""
    use = facts.summary.racks
    if use is None or facts.present.text("partitioner.rack.aware") == "true":
        return None
    if facts.batches.batches < ENOUGH or not facts.batches.bytes:
        return None
    known = use.same_bytes + use.other_bytes
    movable, touched = facts.batches.movable_bytes / facts.batches.bytes, facts.clients.touched
    # Untouched batches crossed, too, and never move. Merged bytes, uncompressed, bound it where no ledger tells.
    most, one_rack = min(movable * touched * use.other_bytes, facts.batches.movable_bytes), facts.present.one_rack
    if known < GB or use.other_bytes < CROSSED * known or most < MOVABLE * use.other_bytes:
        return None
    return Change(
        name="racks",
        title="Keep records without a key in their client's rack",
        evidence=f"{use.other_bytes / GB:,.1f} of {known / GB:,.1f} GB went to a leader in another rack;"
        f" {100 * movable:.0f} % of all merged bytes have no key.",
        effect=Effect(crossing=-most / known, requests=0.0, others=tuple(_others(facts, most, use))),
        how=("As if all that may move stayed." if one_rack else _AT_BEST)
        + (" Batches that passed untouched stay where they are, and count as large as others." if touched < 1 else "")
        + (f" {_ALL_LOCAL}" if one_rack is None else "")
        + " Copies to followers are not counted.",
        settings={"partitioner.rack.aware": True},
    )


_AT_BEST: Final = (
    "At best, where clients and leaders are spread alike over the racks: all that may move stays. With all clients in"
    " one of three racks it is two fifths of that."
)
_ALL_LOCAL: Final = (
    "Where client.rack alone says where clients are, all of it stays there, whatever partitioner.rack.max.skew is:"
    " partitions with leaders in other racks get none of it."
)


def _others(facts: Facts, saved_bytes: float, use: RackUse) -> Iterator[str]:
    one_rack, price = facts.present.one_rack, facts.price_per_gb
    if price is not None:
        month = saved_bytes / GB * price * MONTH_S / max(1.0, use.seconds)
        least = "" if one_rack else f"{LEAST_KEPT * month:,.2f} to "
        yield f"{least}{month:,.2f} less in 30 days like that, at {price:g} a GB."
    if one_rack:
        yield _ALL_LOCAL
