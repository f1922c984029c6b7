"""What `forebay config` prints: all settings as a list, a table or JSON, or one setting in full.

In: Loaded settings (they may lack the required ones). Out: text without a trailing newline; lists and explanations have
no line longer than `width` columns.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Collection, Iterator
from typing import Any, Final, cast

import msgspec
from rich import box
from rich.table import Table
from rich.text import Text

from forebay_proxy.commands.text_output import json_text, table_text, wrapped
from forebay_proxy.config.kinds import LIVE, START, WORKERS, ListenerAddresses
from forebay_proxy.config.listeners import PREFIX
from forebay_proxy.config.reference import LISTENER_REFERENCES, LISTENER_TOPIC, REFERENCES, TOPICS, Reference
from forebay_proxy.config.secret import Secret
from forebay_proxy.config.settings import ALIASES
from forebay_proxy.config.sources import DEFAULT_ORIGIN, Loaded, allowed
from forebay_proxy.config.values import ADDRESSES, LISTENER_SETTINGS, SETTINGS, Setting, find, of_listener, render

WIDE: Final = 140
"""Columns from which a table is easier to read than a list."""

FLAGS: Final = ("bootstrap.servers", "listen", "advertised.host", "admin", "workers")
"""Settings with a command-line option of their own; all others are set with --set."""

_CHANGES: Final = {
    LIVE: "live: take effect on SIGHUP or forebay reload, and may be overridden",
    WORKERS: (
        "workers: take effect on SIGHUP or forebay reload, which replaces the workers; with one worker, on a restart"
    ),
    START: "start: take effect when Forebay is started",
}

ANY_LISTENER: Final = "<name>"
"""In place of a listener's name: the setting as each listener may have it."""

REQUIRED: Final = "(required)"
EMPTY: Final = "(empty)"


def flag(name: str) -> str:
    """The command-line option of a setting in FLAGS."""
    return "--" + name.replace(".", "-")


def as_json(loaded: Loaded, name: str | None = None) -> str:
    """An array with one object per setting or, with a `name`, that setting's object.

    {name, required, default, value, origin, allowed, description, details, unit, kafka, variable, changes}; `default`
    is null if the setting is required, `value` if it is not set; `changes` take effect `live`, with new `workers` or at
    the next `start`.
    """
    return json_text(_facts(loaded, _setting(name)) if name else all_facts(loaded))


def all_facts(loaded: Loaded) -> list[dict[str, Any]]:
    """One object per setting, as JSON has them; of secrets, whether there is one."""
    return [_facts(loaded, each) for _, settings in _topics(loaded) for each in settings]


def _topics(loaded: Loaded) -> Iterator[tuple[str, list[Setting]]]:
    """Heading → settings; at the end those of each listener, or what they would be called."""
    for topic, names in TOPICS.items():
        yield topic, [SETTINGS[name] for name in names]
    listeners = _listeners(loaded) or [ANY_LISTENER]
    yield LISTENER_TOPIC, [of_listener(each, setting) for each in listeners for setting in LISTENER_SETTINGS.values()]


def _listeners(loaded: Loaded) -> list[str]:
    addresses = cast(ListenerAddresses, loaded.values.get("listeners", ()))
    return [address.name.lower() for address in addresses]


def known(name: str) -> Setting | None:
    """The setting of that full name; what each listener may have is known by its own name, too (`upstream.identity`),
    and as `listener.name.<name>.upstream.identity`."""
    if (setting := find(name)) is not None:
        return setting
    of_each = LISTENER_SETTINGS.get(name.removeprefix(f"{PREFIX}{ANY_LISTENER}."))
    return None if of_each is None else of_listener(ANY_LISTENER, of_each)


def _setting(name: str) -> Setting:
    setting = known(name)
    assert setting is not None, name
    return setting


def _reference(name: str) -> Reference:
    if name in REFERENCES:
        return REFERENCES[name]
    return next(told for end, told in LISTENER_REFERENCES.items() if name.endswith("." + end))


def _facts(loaded: Loaded, setting: Setting) -> dict[str, Any]:
    reference = _reference(setting.name)
    return {
        "name": setting.name,
        "required": setting.required,
        "default": None if setting.required else _plain(setting.default),
        "value": _plain(loaded.values.get(setting.name)),
        "origin": _origin(loaded, setting),
        "allowed": setting.allowed,
        "description": setting.description,
        "details": reference.details,
        "unit": setting.unit,
        "kafka": reference.kafka,
        "variable": setting.variable,
        "changes": setting.changes,
    }


def as_list(loaded: Loaded, width: int) -> str:
    """By topic, at least two lines per setting: its value, with origin and default if they differ; what it does."""
    lines = [wrapped("Settings and their values. `forebay config NAME` explains one in full.", width)]
    for topic, settings in _topics(loaded):
        lines += ["", topic]
        for setting in settings:
            lines.append(wrapped(f"{setting.name} {_current(loaded, setting)}", width, "  ", "      "))
            lines.append(wrapped(setting.description, width, "      "))
    return "\n".join(lines)


def _current(loaded: Loaded, setting: Setting) -> str:
    default = _default(setting)
    if not _differs(loaded, setting):
        return REQUIRED if setting.required else f"= {default}"
    origin = _origin(loaded, setting)
    return f"= {_value(loaded, setting)} ({origin if setting.required else f'{origin}; default {default}'})"


def as_table(loaded: Loaded, width: int | None) -> str:
    """One row a setting, by topic; `now` has a value that differs from the default, and its origin.

    Long values are folded into `width` columns; None: each row is one line, whatever its length.
    """
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for column in ("setting", "default", "now", "allowed", "what it does"):
        table.add_column(column, no_wrap=column == "setting", overflow="fold")
    for topic, settings in _topics(loaded):
        table.add_row(Text(topic))
        for setting in settings:
            cells = (setting.name, _default(setting), _now(loaded, setting), setting.brief, setting.description)
            table.add_row(*map(Text, cells))
        table.add_section()
    return table_text(table, width)


def explanation(loaded: Loaded, name: str, width: int, partitioners: Collection[str]) -> str:
    """Everything about one setting. `partitioners` are the names of those that are installed."""
    setting, reference = _setting(name), _reference(name)
    example = setting.parse(reference.example) if reference.example and not setting.is_secret else setting.default
    if setting.is_secret:
        example = reference.example  # a reference: secrets themselves are neither shown nor taken on a command line
    written = render(example)
    rows = {
        "Value": allowed(setting, partitioners),
        "Default": _default(setting) if not setting.required else "none: it is required",
        "Now": "; ".join(_now_of_each(loaded, setting)) or _now_in_full(loaded, setting),
        "Kafka": reference.kafka,
        "Changes": _CHANGES[setting.changes],
        "Command line": f"{flag(name)} {shlex.quote(written)}"
        if name in FLAGS
        else f"--set {shlex.quote(f'{name}={written}')}",
        "Environment": f"{setting.variable}={shlex.quote(written)}",
        "In the file": f'"{name}" = {toml_value(example)}',
    }
    if aliases := [alias for alias, meant in ALIASES.items() if meant == name]:
        rows["Also named"] = ", ".join(aliases)
    indent = " " * (max(map(len, rows)) + 2)
    return "\n".join(
        [
            name,
            "",
            wrapped(f"{setting.description} {reference.details}", width),
            "",
            *(wrapped(text, width, f"{label:<{len(indent)}}", indent) for label, text in rows.items()),
        ]
    )


def _now_of_each(loaded: Loaded, setting: Setting) -> Iterator[str]:
    """The values that listeners have of what each may have."""
    if ANY_LISTENER in setting.name:
        for listener in _listeners(loaded):
            own = _setting(setting.name.replace(ANY_LISTENER, listener))
            yield f"{listener}: {_now_in_full(loaded, own)}"


def _now_in_full(loaded: Loaded, setting: Setting) -> str:
    if setting.name not in loaded.values and setting.required:
        return "not set"
    origin = _origin(loaded, setting)
    return "the default" if origin == DEFAULT_ORIGIN else f"{_value(loaded, setting)}, from {origin}"


def _origin(loaded: Loaded, setting: Setting) -> str:
    return loaded.origins.get(setting.name, DEFAULT_ORIGIN)


def _differs(loaded: Loaded, setting: Setting) -> bool:
    return loaded.values.get(setting.name, setting.default) != setting.default


def _default(setting: Setting) -> str:
    return REQUIRED if setting.required else _shown(setting, setting.default)


def _value(loaded: Loaded, setting: Setting) -> str:
    return _shown(setting, loaded.values[setting.name])


def _shown(setting: Setting, value: object) -> str:
    """As on the command line, with blanks in lists, so that long ones can be wrapped."""
    text = render(value)
    return (text.replace(",", ", ") if setting.is_list or setting.is_map else text) or EMPTY


def _now(loaded: Loaded, setting: Setting) -> str:
    return f"{_value(loaded, setting)} ({_origin(loaded, setting)})" if _differs(loaded, setting) else ""


_BARE_KEY: Final = re.compile("[A-Za-z0-9_-]+")


def _toml_key(key: str) -> str:
    return key if _BARE_KEY.fullmatch(key) else f'"{key}"'


def toml_value(value: object) -> str:
    """A setting's value as written in a TOML file."""
    if isinstance(value, bool):
        return render(value)
    if isinstance(value, int | float):
        return str(value)
    if isinstance(value, tuple) and not isinstance(value, ADDRESSES):
        return "[" + ", ".join(map(toml_value, value)) + "]"
    if isinstance(value, dict):
        return (
            "{ " + ", ".join(f"{_toml_key(str(key))} = {toml_value(element)}" for key, element in value.items()) + " }"
        )
    # A JSON string is a basic string of TOML.
    return msgspec.json.encode(render(value)).decode()


def _plain(value: object) -> object:
    """What JSON has a form for: addresses as host:port, as they are written; of secrets, whether there is one."""
    if isinstance(value, ADDRESSES):
        return str(value)
    if isinstance(value, Secret):
        return render(value)
    if isinstance(value, tuple):
        return [_plain(element) for element in value]
    return value
