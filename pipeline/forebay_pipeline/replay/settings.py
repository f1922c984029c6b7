"""The settings that the simulation knows, and the grid to try.

In: texts as people write them, `linger.ms=5` or `linger.ms=-1,5`, and the proxy's TOML file. Out: Variants, the present
settings first. Raises CannotRun, naming the setting, the value and what is allowed.

Names, defaults and bounds are the proxy's. The simulation does not depend on its other settings, and ignores them.
"""

from __future__ import annotations

import itertools
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Final, NamedTuple, get_args

import msgspec
from msgspec import Meta

from forebay_pipeline.errors import CannotRun
from forebay_policies.builtin_partitioners import BUILT_IN

_INT_MAX: Final = 2**31 - 1
MAX_VARIANTS: Final = 1_000
"""A larger grid is a mistake: each variant replays all arrivals."""

DEFAULT_GRID: Final = "partitioner=adaptive,expected_wait,uniform linger.ms=-1,5"

_Bytes = Annotated[int, Meta(ge=1, le=_INT_MAX)]
_BatchBytes = Annotated[int, Meta(ge=512, le=_INT_MAX)]


def _dotted(attribute: str) -> str:
    return attribute.replace("_", ".")


class Simulated(msgspec.Struct, frozen=True, kw_only=True, rename=_dotted):
    """The proxy's settings that its policies depend on, with the proxy's defaults and bounds."""

    partitioner: Annotated[str, Meta(pattern="^(" + "|".join(BUILT_IN) + ")$")] = "adaptive"
    partitioner_adaptive_partitioning_enable: Annotated[bool, Meta()] = True
    partitioner_sticky_batch_size: Annotated[int, Meta(ge=0, le=_INT_MAX)] = 0
    partitioner_availability_timeout_ms: Annotated[int, Meta(ge=0, le=_INT_MAX)] = 0
    partitioner_min_share: Annotated[float, Meta(ge=0, le=1)] = 0.005
    linger_ms: Annotated[int, Meta(ge=-1, le=60_000)] = -1
    batch_initial_size: _BatchBytes = 4096
    batch_size: _BatchBytes = 16_384
    batch_max_size: _BatchBytes = 262_144
    buffer_memory: Annotated[int, Meta(ge=1, le=2**63 - 1)] = 33_554_432
    max_request_size: _Bytes = 1_048_576
    max_in_flight_requests_per_connection: _Bytes = 5


ALIASES: Final = {
    "enable.adaptive.partitioning": "partitioner.adaptive.partitioning.enable",
    "partition.availability.timeout.ms": "partitioner.availability.timeout.ms",
}
"""Other names that the proxy understands."""

OTHERS: Final = {"delivery.timeout.ms": 120_000, "request.timeout.ms": 30_000, "max.decompressed.bytes": 67_108_864}
"""The proxy's defaults of settings that are not simulated, and with which it refuses some that are."""

_FIELDS: Final = {field.encode_name: field for field in msgspec.structs.fields(Simulated)}
NAMES: Final = tuple(_FIELDS)

Texts = Mapping[str, str]
"""Name of a setting → its value as text."""


class Variant(NamedTuple):
    """One point of the grid; `named` are the settings given or tried anywhere, with their values here."""

    named: Texts
    settings: Simulated


def variants(present: Texts, grid: Mapping[str, Sequence[str]]) -> list[Variant]:
    """The present settings, then every combination of the grid's values on top of them, without repetition.

    Raises CannotRun if there are more than MAX_VARIANTS, or if the settings of one contradict each other.
    """
    axes = [[(name, value) for value in values] for name, values in grid.items()]
    names = sorted({*present, *grid}, key=NAMES.index)
    size = 1
    for axis in axes:
        size *= len(axis)
    if size > MAX_VARIANTS:
        raise CannotRun(f"The grid has {size:,} combinations; at most {MAX_VARIANTS:,} are replayed at once.")
    found: dict[Simulated, Variant] = {}
    for chosen in [(), *itertools.product(*axes)]:
        settings = _made({**present, **dict(chosen)})
        found.setdefault(settings, Variant({name: text_of(settings, name) for name in names}, settings))
    return list(found.values())


class Limits(NamedTuple):
    """The largest values that the proxy takes beside its settings that are not simulated."""

    linger_ms: int
    """delivery.timeout.ms without request.timeout.ms."""
    batch_max_size: int
    """max.decompressed.bytes."""


def read_limits(config: str | None) -> Limits:
    """As the proxy's TOML file `config` has them, or its defaults. Raises CannotRun as read_present does."""
    written = written_in(config) if config else {}
    patience, request, decompressed = (_whole(written, name, default) for name, default in OTHERS.items())
    return Limits(patience - request, decompressed)


def taken(found: Sequence[Variant], limits: Limits) -> list[Variant]:
    """The present settings, and those others that the proxy would take."""
    return [
        *found[:1],
        *(
            each
            for each in found[1:]
            if max(0, each.settings.linger_ms) <= limits.linger_ms
            and each.settings.batch_max_size <= limits.batch_max_size
        ),
    ]


def _whole(written: Mapping[str, object], name: str, default: int) -> int:
    value = written.get(name, default)
    try:
        return int(str(value))
    except ValueError as error:
        raise CannotRun(f"{name}={value}: must be a whole number.") from error


def text_of(settings: Simulated, name: str) -> str:
    """The value of a setting as people write it."""
    value = getattr(settings, _FIELDS[name].name)
    return str(value).lower() if isinstance(value, bool) else str(value)


def toml_value(settings: Simulated, name: str) -> str:
    """The value of a setting as TOML."""
    text = text_of(settings, name)
    return f'"{text}"' if isinstance(getattr(settings, _FIELDS[name].name), str) else text


def read_grid(written: Iterable[str]) -> dict[str, list[str]]:
    """Name → values, from `partitioner=adaptive,uniform linger.ms=-1,5` in one text or several.

    Raises CannotRun for an unknown setting, one that is given twice, or a value out of bounds.
    """
    grid: dict[str, list[str]] = {}
    for word in itertools.chain.from_iterable(text.split() for text in written):
        name, values = _assignment(word, "NAME=VALUE,VALUE…")
        if name in grid:
            raise CannotRun(f"{name} is in the grid twice.")
        grid[name] = [_checked(name, value) for value in values.split(",")]
    return grid


def read_present(config: str | None, assignments: Iterable[str]) -> dict[str, str]:
    """Name → value, from the proxy's TOML file `config`, overridden by `name=value` texts.

    Raises CannotRun if the file cannot be read, or as read_grid does.
    """
    present = dict(_of_file(config)) if config else {}
    for word in assignments:
        name, value = _assignment(word, "NAME=VALUE")
        present[name] = _checked(name, value)
    return present


def _assignment(word: str, form: str) -> tuple[str, str]:
    name, separator, values = word.partition("=")
    if not separator:
        raise CannotRun(f"{word!r} must be {form}.")
    return _known(name.strip()), values.strip()


def _known(name: str) -> str:
    name = ALIASES.get(name, name)
    if name not in _FIELDS:
        raise CannotRun(f"{name} is not a setting that can be replayed; those are {', '.join(NAMES)}.")
    return name


def written_in(path: str) -> dict[str, object]:
    """Name → value of all settings in the proxy's TOML file. Raises CannotRun if it cannot be read."""
    try:
        table = tomllib.loads(Path(path).read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise CannotRun(f"Cannot read {path}: {error.strerror}.") from error
    except ValueError as error:  # TOMLDecodeError, not UTF-8, or a number of more digits than Python reads
        raise CannotRun(f"{path} is not TOML: {error}.") from error
    return {ALIASES.get(name, name): value for name, value in _flattened(table, "")}


def _of_file(path: str) -> Iterator[tuple[str, str]]:
    for name, value in written_in(path).items():
        if name in _FIELDS:
            yield name, _checked(name, str(value).lower() if isinstance(value, bool) else str(value))


def _flattened(table: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, object]]:
    for key, value in table.items():
        if isinstance(value, dict):
            yield from _flattened(value, f"{prefix}{key}.")
        else:
            yield prefix + key, value


def _checked(name: str, value: str) -> str:
    try:
        msgspec.convert(value.strip(), _FIELDS[name].type, strict=False)
    except msgspec.ValidationError as error:
        raise CannotRun(f"{name}={value}: must be {_allowed(name)}.") from error
    return value.strip()


def _allowed(name: str) -> str:
    if name == "partitioner":
        return "one of " + ", ".join(BUILT_IN)
    kind, meta = get_args(_FIELDS[name].type)
    if kind is bool:
        return "true or false"
    return f"a {'whole ' if kind is int else ''}number from {meta.ge} to {meta.le}"


def _made(texts: Texts) -> Simulated:
    """Settings from values that are valid by themselves. Raises CannotRun if two of them contradict each other."""
    settings = msgspec.convert(dict(texts), Simulated, strict=False)
    chunk = settings.batch_initial_size
    for smaller, larger in (
        ("batch.initial.size", "batch.size"),
        ("batch.size", "batch.max.size"),
        ("batch.max.size", "max.request.size"),
        ("batch.max.size", "buffer.memory"),
    ):
        least, found = _number(settings, smaller), _number(settings, larger)
        if found < least:
            raise CannotRun(f"{larger}={found} with {smaller}={least}: {larger} must be at least {smaller}.")
    for name in ("batch.size", "batch.max.size"):
        if (size := _number(settings, name)) > chunk and size % chunk:
            raise CannotRun(f"{name}={size}: must be a multiple of batch.initial.size, {chunk}.")
    return settings


def _number(settings: Simulated, name: str) -> int:
    value = getattr(settings, _FIELDS[name].name)
    assert isinstance(value, int)
    return value
