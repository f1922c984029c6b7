"""What `forebay config` shows, one line or one object a setting: name, default, value, allowed, description."""

from __future__ import annotations

from typing import Final

from rich import box
from rich.table import Table
from rich.text import Text

from forebay_proxy.commands.text_output import json_text, table_text
from forebay_proxy.config.settings import HostPort
from forebay_proxy.config.sources import Loaded
from forebay_proxy.config.values import SETTINGS, Setting, render

REQUIRED: Final = "(required)"
EMPTY: Final = "(empty)"


def as_json(loaded: Loaded) -> str:
    """An array of {name, default, value, origin, allowed, description}; a required setting's default is null."""
    rows = [
        {
            "name": name,
            "required": setting.required,
            "default": None if setting.required else _plain(setting.default),
            "value": _plain(loaded.values.get(name)),
            "origin": loaded.origins[name],
            "allowed": setting.allowed,
            "description": setting.description,
        }
        for name, setting in SETTINGS.items()
    ]
    return json_text(rows)


def as_table(loaded: Loaded, width: int | None) -> str:
    """A line a setting; `now` stands where it differs from the default, with where it comes from.

    With a width, that of a terminal, long values are folded into it.
    """
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for column in ("setting", "default", "now", "allowed", "what for"):
        table.add_column(column, no_wrap=column == "setting", overflow="fold")
    for name, setting in SETTINGS.items():
        cells = (name, _default(setting), _now(loaded, setting), setting.brief, setting.description)
        table.add_row(*map(Text, cells))
    return table_text(table, width)


def _default(setting: Setting) -> str:
    return REQUIRED if setting.required else render(setting.default) or EMPTY


def _now(loaded: Loaded, setting: Setting) -> str:
    value = loaded.values.get(setting.name, setting.default)
    if value == setting.default:
        return ""
    return f"{render(value) or EMPTY} ({loaded.origins[setting.name]})"


def _plain(value: object) -> object:
    """What JSON has a form for: addresses as host:port, as they are written."""
    if isinstance(value, HostPort):
        return str(value)
    if isinstance(value, tuple):
        return [_plain(element) for element in value]
    return value
