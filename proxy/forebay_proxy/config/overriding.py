"""Overrides: live settings that somebody has changed by hand, for a while, above everything that the sources say.

In: a name and a value as somebody writes them. Out: an Override, or ValueError with one line that says what is wrong;
and settings with overrides laid over them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from forebay_proxy.config.live import LIVE
from forebay_proxy.config.settings import ALIASES, Settings
from forebay_proxy.config.sources import close_names
from forebay_proxy.config.values import SETTINGS, render


class Override(msgspec.Struct, frozen=True):
    """`value` is of the setting's type; `expires_at` in seconds since 1970.

    `adds`: it comes to a list's other values, and does not replace them.
    """

    name: str
    value: object
    reason: str
    expires_at: float
    adds: bool = False

    @property
    def written(self) -> str:
        """The value as it is written."""
        return render(self.value)


def parsed(name: str, written: object) -> tuple[str, object]:
    """The proper name, and the value. Raises ValueError, also for what is not live."""
    name = ALIASES.get(name, name)
    if name not in SETTINGS:
        near = close_names(name, 1)
        raise ValueError(f"{name}: unknown setting" + (f"; did you mean {near[0]}?" if near else ""))
    if name not in LIVE:
        raise ValueError(f"{name} cannot be overridden: only live settings can")
    setting = SETTINGS[name]
    try:
        return name, setting.parse(written)
    except ValueError:
        raise ValueError(f"{name} = {render(written)}: must be {setting.allowed}") from None


def overlaid_values(values: Mapping[str, object], overrides: Iterable[Override]) -> dict[str, object]:
    """What is overridden, by name; `values` below it. What adds comes last."""
    found: dict[str, object] = {}
    for each in sorted(overrides, key=lambda override: override.adds):
        below = found.get(each.name, values[each.name])
        if each.adds:
            assert isinstance(below, tuple)
            assert isinstance(each.value, tuple)
            found[each.name] = tuple(dict.fromkeys((*below, *each.value)))
        else:
            found[each.name] = each.value
    return found


def overlaid(settings: Settings, overrides: Iterable[Override]) -> Settings:
    """`settings`, with what is overridden. What stands in a file is not read again over an override."""
    values = overlaid_values({name: getattr(settings, SETTINGS[name].attribute) for name in LIVE}, overrides)
    if not values:
        return settings
    references = {name: text for name, text in settings.references.items() if name not in values}
    attributes = {SETTINGS[name].attribute: value for name, value in values.items()}
    return msgspec.structs.replace(settings, references=references, **attributes)
