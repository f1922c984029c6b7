"""What the command line knows of a Forebay that it starts, for who looks at it: its settings, and what they say."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain
from typing import Any, Final

import msgspec

from forebay_proxy.commands import explain
from forebay_proxy.commands.config import all_facts
from forebay_proxy.config.overriding import Override, overlaid_values
from forebay_proxy.config.sources import Loaded
from forebay_proxy.config.values import render
from forebay_proxy.console.api import Told

SHOWN: Final = ("name", "value", "default", "origin", "description", "unit", "changes")
OVERRIDE: Final = "override"


def told_of(loaded: Loaded, overrides: Iterable[Override] = ()) -> Told:
    """Settings without secrets, `overrides` with their reason and expiry; what `forebay explain` says by them."""
    over: dict[str, list[Override]] = {}
    for each in overrides:
        over.setdefault(each.name, []).append(each)
    values = {**loaded.values, **overlaid_values(loaded.values, chain.from_iterable(over.values()))}
    in_force = replace(loaded, values=values, origins={**loaded.origins, **dict.fromkeys(over, OVERRIDE)})
    config = [
        _row(facts, over.get(facts["name"], ()), loaded.values)
        for facts in all_facts(in_force)
        if "<name>" not in facts["name"]
    ]

    def explained(client_id: str | None, topic: str) -> dict[str, Any]:
        found = explain.decisions(values, client_id, topic)
        return {"decisions": msgspec.to_builtins(found), "text": explain.as_text(found)}

    return Told(config, explained, partial(told_of, loaded))


def _row(facts: dict[str, Any], overrides: Sequence[Override], below: Mapping[str, object]) -> dict[str, Any]:
    """With the end of the first that ends, the reasons of all, and what is not in force meanwhile."""
    row = {name: facts[name] for name in SHOWN}
    if overrides:
        row["reason"] = "; ".join(each.reason for each in overrides)
        row["expires_at"] = min(each.expires_at for each in overrides)
        row["instead_of"] = "" if all(each.adds for each in overrides) else render(below[facts["name"]])
    return row
