"""Numbers as people read them, as the page writes them: three digits that count, and a unit. None is "–"."""

from __future__ import annotations

from typing import Final

NONE: Final = "–"
_STEPS: Final = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))
_ALMOST: Final = 0.9995
"""999.5 k is written as 1.00 M."""


def count(value: float | None) -> str:
    """41,300 → "41.3 k"; whole numbers below a thousand stay whole."""
    return NONE if value is None else _scaled(value, "")


def size(value: float | None) -> str:
    """1,234,567 bytes → "1.23 MB"."""
    return NONE if value is None else _scaled(round(value), "B")


def time(value: float | None) -> str:
    """0.0031 seconds → "3.10 ms"."""
    if value is None:
        return NONE
    if value == 0:
        return "0 ms"
    if value < 1e-3:
        return f"{_digits(value * 1e6)} µs"
    return f"{_digits(value * 1e3)} ms" if value < 1 else f"{_digits(value)} s"


def percent(value: float | None) -> str:
    """0.254 → "25.4 %"."""
    return NONE if value is None else f"{_digits(value * 100)} %"


def many(value: int, what: str) -> str:
    """2 → "2 clients"."""
    return f"{value:,} {what}{'' if value == 1 else 's'}"


def _scaled(value: float, unit: str) -> str:
    for step, name in _STEPS:
        if abs(value) >= step * _ALMOST:
            return f"{_digits(value / step)} {name}{unit}"
    text = str(int(value)) if value == int(value) else _digits(value)
    return f"{text} {unit}".rstrip()


def _digits(value: float) -> str:
    if abs(value) >= 100 or value == 0:
        return f"{value:.0f}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"
