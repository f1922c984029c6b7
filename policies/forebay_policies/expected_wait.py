"""expected_wait: a partition is the likelier, the sooner a record that goes there will be acknowledged.

In: `on_acknowledged` (seconds from append to acknowledgement), what is queued and away, the time. Out: the partition
of each turn, P proportional to 1 / (expected wait)², and never less than `partitioner.min.share`.

KIP-794 weighs queues. A slow broker that keeps up has a short queue, so it gets nearly its share, and each record of
that share waits. Here waits count, not queues; the queue only says how much longer the wait has become since it was
last measured. So the choice reacts at once to what it caused itself, and does not swing.

Waits are smoothed, and forgotten: a partition that is shunned is not measured, and would be shunned for ever. As time
goes by it is credited with the wait that records meet on the whole, and tried again. Trying costs little, because
such a turn ends with its first run of records.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate
from math import exp
from typing import Final, NamedTuple

from forebay_policies.partitioner import Rng, TopicView
from forebay_policies.uniform_partitioner import UniformPartitioner, any_partition, shut

SMOOTHING: Final = 0.1
"""Weight of a measurement that follows the one before closely.

Waits are smoothed by their ratios, not their differences, since ratios are what counts here: 2, 2, 200 ms give
2 · 100^0.1 = 3.2 ms rather than 22. A pause of a broker's collector is no reason to shun it for long.
"""

FRESH_S: Final = 1.0
"""A measurement after a gap weighs more, 1 - e^(-gap / this): after 3 s the old ones weigh 5 % together."""

MEMORY_S: Final = 10.0
MEMORY_ROUNDS: Final = 6
"""Of an estimate that is not renewed, 1/e is left after so many seconds and so many choices a partition, whichever
takes longer. In seconds alone, a thousand partitions that are each measured twice a minute were never told apart.
"""

BACKED: Final = 0.1
"""After this part of MEMORY a slow measurement justifies only one run at a time: after 1 s."""

GRAIN_S: Final = 0.001
"""Shorter waits count as this. Whether 0.4 or 0.8 ms is the scheduler's doing, and no reason to skew the topic."""

LONGEST_TURN_S: Final = 0.25
"""A turn ends after so long, too. At 1 KB/s 16 KB are 16 s: too long to stay with a broker that has become slow."""

MAX_TRIALS: Final = 0.1
"""All partitions' least shares together. With the default of 0.5 % it matters from the twenty-first partition on."""

ABANDONED_S: Final = 1.0
"""A partition whose ready batch has waited so long is hardly ever chosen, if there is another. Without another in its
rack it is given up."""

CANDIDATES: Final = 64
"""Partitions among which a turn is decided. Of more, so many neighbours are drawn: a choice must not cost more."""

_NUMBERS: Final = 1 << 30


class _Measured:
    """A partition's smoothed wait, and when it was last renewed: at which time, and after how many choices."""

    __slots__ = ("at", "choices", "seconds")

    def __init__(self, seconds: float, at: float, choices: int) -> None:
        self.seconds = seconds
        self.at = at
        self.choices = choices


class _Estimate(NamedTuple):
    """A smoothed wait in seconds, of which e^-age is left."""

    wait: float
    age: float


class ExpectedWaitPartitioner(UniformPartitioner):
    """Prefers partitions whose records are acknowledged soon, and measures all of them now and then.

    With `batch_size` 16 KB and `min_share` 0.5 %:

        partition              0        1        2
        smoothed wait       20 ms     2 ms     2 ms
        queued and away         0        0    16 KB
        expected wait       20 ms     2 ms     4 ms     2 · (1 + 16 / 16)
        (2 ms / wait)²       0.01     1.00     0.25
        share               0.8 %   79.4 %   19.8 %
        chosen in           1.3 %   78.7 %   20.0 %     0.5 % + (100 % - 3 · 0.5 %) · share

    The least share is drawn first, from all partitions alike. A batch that has already waited longer for its broker
    than expected is the better estimate, so a broker that does not answer at all is shunned, too.
    """

    __slots__ = ("_availability_timeout_s", "_batch_size", "_measured", "_min_share", "_now", "_until")

    def __init__(
        self, rng: Rng, sticky_batch_size: int, batch_size: int, availability_timeout_s: float, min_share: float
    ) -> None:
        super().__init__(rng, sticky_batch_size)
        self._batch_size = max(1, batch_size)
        self._availability_timeout_s = availability_timeout_s
        self._min_share = min_share
        self._measured: dict[int, _Measured] = {}
        self._now = 0.0
        self._until = 0.0

    def partition(self, topic: TopicView, size: int, now: float) -> int:
        """The partition of the current turn, or of a new one if that is over by bytes or by time."""
        self._now = now
        if now >= self._until:
            self._left = min(self._left, 0)
        return super().partition(topic, size, now)

    def on_acknowledged(self, partition: int, seconds: float) -> None:
        """Smooth a measured wait into the partition's estimate."""
        # `_now` is when something was last placed: as good as now, since estimates age only where something is.
        now, seconds = self._now, max(GRAIN_S, seconds)
        known = self._measured.get(partition)
        if known is None:
            self._measured[partition] = _Measured(seconds, now, self.switches)
            return
        weight = max(SMOOTHING, 1 - exp((known.at - now) / FRESH_S))
        known.seconds *= (seconds / known.seconds) ** weight
        known.at, known.choices = now, self.switches

    def _next(self, topic: TopicView, now: float) -> int:
        self._until = now + LONGEST_TURN_S
        available = topic.available
        if not available:
            return any_partition(topic, self._rng)
        loads = topic.loads()
        if closed := shut(topic, loads, self._availability_timeout_s, now):
            available = [partition for partition in available if partition not in closed]
        count = len(available)
        trials = min(MAX_TRIALS, self._min_share * count)
        number = self._rng.randrange(_NUMBERS) / _NUMBERS
        if number < trials:
            self._left = -self._turn
            return available[int(number / trials * count)]
        candidates = self._candidates(available)
        estimates = [self._estimate(partition, count, now) for partition in candidates]
        usual = _usual(estimates)
        cumulative = list(
            accumulate(
                (usual / self._expected(topic, partition, estimate, usual, loads.get(partition, 0), now)) ** 2
                for partition, estimate in zip(candidates, estimates, strict=True)
            )
        )
        place = bisect_right(cumulative, (number - trials) / (1 - trials) * cumulative[-1])
        place = min(place, len(candidates) - 1)  # should rounding have led beyond the last
        if not _backed(estimates[place], usual):
            self._left = -self._turn
        return candidates[place]

    def _candidates(self, available: Sequence[int]) -> Sequence[int]:
        count = len(available)
        if count <= CANDIDATES:
            return available
        first = self._rng.randrange(count)
        return [*available[first : first + CANDIDATES], *available[: max(0, first + CANDIDATES - count)]]

    def _estimate(self, partition: int, count: int, now: float) -> _Estimate | None:
        known = self._measured.get(partition)
        if known is None:
            return None
        rounds = (self.switches - known.choices) / count
        return _Estimate(known.seconds, min((now - known.at) / MEMORY_S, rounds / MEMORY_ROUNDS))

    def _expected(
        self, topic: TopicView, partition: int, estimate: _Estimate | None, usual: float, load: int, now: float
    ) -> float:
        wait = usual * (estimate.wait / usual) ** exp(-estimate.age) if estimate is not None else usual
        if load:
            wait *= 1 + load / self._batch_size
            since = topic.ready_since(partition)
            if since is not None:
                wait = max(wait, now - since)
        return wait


def _usual(estimates: Sequence[_Estimate | None]) -> float:
    """The wait that a record meets, if partitions are chosen with P proportional to 1 / wait².

    20, 2 and 2 ms: (1/20 + 1/2 + 1/2) / (1/400 + 1/4 + 1/4) = 2.09 ms. Few slow ones do not raise it, and where most
    are slow it is that of the few that are not.
    """
    once = sum(1 / estimate.wait for estimate in estimates if estimate is not None)
    twice = sum(1 / estimate.wait**2 for estimate in estimates if estimate is not None)
    return once / twice if once else GRAIN_S


def _backed(estimate: _Estimate | None, usual: float) -> bool:
    """Whether a turn may be whole: not where nothing is known, or only that it was slow some time ago."""
    return estimate is not None and (estimate.age <= BACKED or estimate.wait <= 2 * usual)
