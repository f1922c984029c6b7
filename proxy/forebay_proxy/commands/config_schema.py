"""What `forebay config --format schema` prints: a JSON Schema of a settings' file, for editors that complete and check.

It asks for values as TOML has them: numbers, lists, tables. Forebay also takes all of them as text, which an editor
would be told is a mistake; `${file:…}`, `${dir:…}` and `${env:…}` may stand for any value. What depends on several
settings, `forebay config --config FILE` checks.
"""

from __future__ import annotations

import re
from typing import Any, Final, Literal, get_args, get_origin

from forebay_policies.builtin_partitioners import BUILT_IN
from forebay_proxy.config.kinds import MAX_PORT, NetworkRacks, NodeIds, NodePorts, ProtocolMap, SecurityProtocol
from forebay_proxy.config.listeners import PREFIX
from forebay_proxy.config.settings import ALIASES
from forebay_proxy.config.values import LISTENER_SETTINGS, SETTINGS, Setting

DIALECT: Final = "http://json-schema.org/draft-07/schema#"
"""The one that editors know for TOML."""

_REFERENCE: Final = {"type": "string", "pattern": r"\$\{(file|dir|env):[^}]*\}"}

_MAPS: Final[list[tuple[object, dict[str, Any]]]] = [
    (NodePorts, {"type": "integer", "minimum": 1, "maximum": MAX_PORT}),
    (NetworkRacks, {"type": "string", "minLength": 1}),
    (ProtocolMap, {"enum": list(get_args(SecurityProtocol))}),
]


def schema() -> dict[str, Any]:
    """Of every setting, those of listeners and other names for settings included."""
    known = {name: _described(setting) for name, setting in SETTINGS.items()}
    known |= {alias: known[name] for alias, name in ALIASES.items()}
    return {
        "$schema": DIALECT,
        "title": "Forebay",
        "type": "object",
        "properties": known,
        "patternProperties": {
            rf"^{re.escape(PREFIX)}[A-Za-z0-9_-]+\.{re.escape(name)}$": _described(setting)
            for name, setting in LISTENER_SETTINGS.items()
        },
        "additionalProperties": False,
    }


def _described(setting: Setting) -> dict[str, Any]:
    told: dict[str, Any] = {
        "description": setting.description,
        "anyOf": [_value(setting), _REFERENCE],
        "x-changes": setting.changes,  # no keyword of JSON Schema: what does not know it skips it
    }
    if not setting.required and isinstance(setting.default, bool | int | float | str):
        told["default"] = setting.default
    return told


def _value(setting: Setting) -> dict[str, Any]:
    if setting.name == "partitioner":
        return {"type": "string", "examples": list(BUILT_IN)}  # or one that is installed
    if get_origin(setting.kind) is Literal:
        return {"enum": list(get_args(setting.kind))}
    if setting.is_map:
        of = next(of for kind, of in _MAPS if kind == setting.kind)
        return {"type": "object", "additionalProperties": of}
    if setting.kind == NodeIds:
        return {"type": ["array", "string"], "items": {"type": "integer", "minimum": 0}}
    if get_origin(setting.kind) is tuple:
        return {"type": ["array", "string"], "items": {"type": "string"}}
    if setting.kind is bool:
        return {"type": "boolean"}
    if setting.kind is int:
        least, greatest = setting.bounds or (None, None)
        return {"type": "integer"} | ({} if least is None else {"minimum": least, "maximum": greatest})
    if setting.kind is float:
        return {"type": "number", "minimum": 0, "maximum": 1}
    return {"type": "string"} | ({"pattern": setting.pattern} if setting.pattern else {})
