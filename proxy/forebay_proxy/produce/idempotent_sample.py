"""How much of what is left untouched could move if its clients were not idempotent: an estimate, from a sample.

In: the batches of Produce requests that go on as they came. Out: the number of records without a key in those that
nothing but their producer id keeps from being moved, added to the metric and to the client's own count.

Only opening a batch tells. So one in EVERY is opened, at random, and counts for all of them: of 5,000 batches with ten
such records each, about 50 are opened, and 50 × 10 × 100 = 50,000 are counted. What cannot be opened counts for none.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import Final

from forebay_codecs.record_batch import BadBatch, open_batch
from forebay_policies.eligibility import Reason
from forebay_proxy.metrics.registry import MetricRegistry
from forebay_proxy.produce.classifier import InspectedBatch
from forebay_proxy.produce.client import Client

EVERY: Final = 100
MAX_DECOMPRESSED: Final = 4 * 1024 * 1024
"""Of one batch: a sample is not worth more."""


class IdempotentSample:
    """Every batch is as likely to be opened as any other, and nothing of it is changed. `has_choice`: of a topic."""

    def __init__(self, has_choice: Callable[[str], bool], stats: MetricRegistry, rng: Random) -> None:
        self._has_choice = has_choice
        self._records = stats.counter("forebay_idempotent_null_key_records_total")
        self._rng = rng
        self._skip = self._gap()

    def _gap(self) -> int:
        """Batches before the next that is opened: EVERY − 1 on average, and in no rhythm that a client could have."""
        return self._rng.randrange(2 * EVERY - 1)

    def passed(self, client: Client, frame: bytes, inspected: Sequence[InspectedBatch]) -> None:
        """All of a request's batches go on untouched."""
        for entry in inspected:
            if entry.reason is not Reason.IDEMPOTENT:
                continue
            if self._skip:
                self._skip -= 1
                continue
            self._skip = self._gap()
            if entry.header is None or not self._has_choice(entry.topic):
                continue
            try:
                found = open_batch(frame, entry.header, MAX_DECOMPRESSED).null_keys
            except BadBatch:
                continue
            self._records.value += found * EVERY
            client.idempotent_null_keys(found * EVERY)
