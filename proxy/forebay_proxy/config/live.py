"""Which settings a reload may change, and what it would change.

In: the settings in force, and those that the sources have now. Out: names of each kind, with old and new values of
those that may change. Certificates and secrets in files that are referred to are others' to watch (security.renewals).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

import msgspec

from forebay_proxy.config import kinds
from forebay_proxy.config.rereading import is_watched
from forebay_proxy.config.settings import Settings
from forebay_proxy.config.values import LISTENER_SETTINGS, SETTINGS, Setting, render

LIVE: Final = frozenset(name for name, setting in SETTINGS.items() if setting.changes == kinds.LIVE)
"""Those that change while Forebay runs; none of listeners."""


def with_live(now: Settings, new: Settings) -> Settings:
    """`now`, but for what is live of `new`."""
    live = {SETTINGS[name].attribute for name in LIVE}
    return msgspec.structs.replace(now, **{attribute: getattr(new, attribute) for attribute in live})


class Difference(NamedTuple):
    """What a reload would do. `changes`: name → "old → new"; `workers`: those of them that need other workers;
    `others`: names that cannot change now.
    """

    changes: dict[str, str]
    workers: list[str]
    others: list[str]


def difference(now: Settings, new: Settings) -> Difference:
    """Between what is in force and what the sources say."""
    found = Difference({}, [], [])
    for name, setting, before, after in _pairs(now, new):
        if _compared(name, now, before) == _compared(name, new, after):
            continue
        if setting.changes == kinds.START:
            found.others.append(name)
            continue
        found.changes[name] = f"{render(before)} → {render(after)}"
        if setting.changes == kinds.WORKERS:
            found.workers.append(name)
    return found


def _pairs(now: Settings, new: Settings) -> Iterator[tuple[str, Setting, object, object]]:
    for name, each in SETTINGS.items():
        yield name, each, getattr(now, each.attribute), getattr(new, each.attribute)
    for listener in sorted({*now.listener_name, *new.listener_name}):
        told = now.listener_name.get(listener), new.listener_name.get(listener)
        for name, each in LISTENER_SETTINGS.items():
            before, after = (getattr(it, each.attribute) if it is not None else each.default for it in told)
            yield f"listener.name.{listener}.{name}", each, before, after


def _compared(name: str, settings: Settings, value: object) -> object:
    """The value; where others watch the file that it stands in, what refers to that."""
    return settings.references.get(name, value) if is_watched(name) else value
