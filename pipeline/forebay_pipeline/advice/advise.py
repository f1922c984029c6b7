"""All rules together: what to change, the best first.

In: Facts. Out: at most change.MOST Changes. A rule without enough evidence says nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from forebay_pipeline.advice import batching, client_rules, placement, resources
from forebay_pipeline.advice.change import Change, ranked
from forebay_pipeline.advice.facts import Facts
from forebay_pipeline.advice.replayed import replayed

RULES: Final[tuple[Callable[[Facts], Change | None], ...]] = (
    replayed,
    batching.linger,
    batching.batch_size,
    placement.slow_broker,
    placement.runaway,
    placement.rack_skew,
    resources.memory,
    resources.racks,
    client_rules.pick_partitions,
    client_rules.too_old,
    client_rules.idempotent,
    client_rules.excluded_topics,
    client_rules.excluded_clients,
    client_rules.observed,
    client_rules.too_large,
)


def advise(facts: Facts) -> list[Change]:
    """What to change, the most worthwhile first."""
    return ranked(change for rule in RULES if (change := rule(facts)) is not None)
