"""What the command line knows of a Forebay that it starts, for who looks at it: its settings, and what they say."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from forebay_proxy.commands import explain
from forebay_proxy.commands.config import all_facts
from forebay_proxy.config.sources import Loaded
from forebay_proxy.console.api import Told

SHOWN: Final = ("name", "value", "default", "origin", "description", "unit")


def told_of(loaded: Loaded) -> Told:
    """Settings without secrets; what `forebay explain` says by them."""
    config = [{name: facts[name] for name in SHOWN} for facts in all_facts(loaded) if "<name>" not in facts["name"]]

    def explained(client_id: str | None, topic: str) -> dict[str, Any]:
        found = explain.decisions(loaded.values, client_id, topic)
        return {"decisions": msgspec.to_builtins(found), "text": explain.as_text(found)}

    return Told(config, explained)
