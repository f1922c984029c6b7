"""The settings with which the proxy ran, as far as advice depends on them.

In: the proxy's TOML file, if it was given. Out: a value for each setting, the proxy's default where the file has none.
What came from the environment or the command line is not known. Raises CannotRun if the file cannot be read, or has no
number where one belongs.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Final, NamedTuple, TypeVar

from forebay_pipeline.errors import CannotRun
from forebay_pipeline.replay.settings import OTHERS, Simulated, written_in
from forebay_policies.own_choices import CHOOSE_PARTITIONS_THEMSELVES

T = TypeVar("T", bool, int, float, str)

_SIMULATED: Final = Simulated()
DEFAULTS: Final[Mapping[str, object]] = {
    "partitioner": _SIMULATED.partitioner,
    "linger.ms": _SIMULATED.linger_ms,
    "batch.size": _SIMULATED.batch_size,
    "batch.max.size": _SIMULATED.batch_max_size,
    **OTHERS,
    "partitioner.rack.aware": False,
    "partitioner.rack.max.skew": 0.2,
    "moves": "on",
    "topics.exclude": (),
    "topics.move": (),
    "topics.observe": (),
    "client.ids.exclude": CHOOSE_PARTITIONS_THEMSELVES,
    "client.ids.observe": (),
}
"""The proxy's."""


class Present(NamedTuple):
    """`written`: name → value in the file; None if no file was given."""

    written: Mapping[str, object] | None = None

    @property
    def known(self) -> bool:
        """Whether the proxy's file was given."""
        return self.written is not None

    def number(self, name: str) -> float:
        """A number."""
        value = self._of(name)
        return float(value) if isinstance(value, int | float | str) else 0.0

    def text(self, name: str) -> str:
        """A text, or a truth as `true` and `false`."""
        value = self._of(name)
        return str(value).lower() if isinstance(value, bool) else str(value)

    def patterns(self, name: str) -> tuple[str, ...]:
        """A list of patterns."""
        value = self._of(name)
        if isinstance(value, str):
            return tuple(part.strip() for part in value.split(",") if part.strip())
        return tuple(map(str, value)) if isinstance(value, list | tuple) else ()

    @property
    def one_rack(self) -> bool | None:
        """Whether all clients are in one rack, that of client.rack alone; None: nobody knows."""
        names = [name for name, value in (self.written or {}).items() if value]
        of_listeners = any(name.startswith("listener.name.") and name.endswith(".client.rack") for name in names)
        if of_listeners or any(f"{name}.".startswith("client.racks.") for name in names):
            return False
        return True if "client.rack" in names else None

    def _of(self, name: str) -> object:
        default = DEFAULTS[name]
        return default if self.written is None else self.written.get(name, default)


def read(path: str | None) -> Present:
    """The settings in the proxy's file; nothing is known without one."""
    if path is None:
        return Present()
    present = Present(written_in(path))
    for name, default in DEFAULTS.items():
        if isinstance(default, int | float) and not isinstance(default, bool):
            _check_number(present, path, name)
    return present


def _check_number(present: Present, path: str, name: str) -> None:
    try:
        number = present.number(name)
    except ValueError:
        number = math.nan
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise CannotRun(f"{path}: {name}={present.text(name)} is not a number.")
