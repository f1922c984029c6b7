"""Settings of security that are set and do nothing, since connections are made without TLS or without a login. No I/O.

Kafka's clients and brokers ignore such settings without a word, and who has set one may believe that it protects
something. So it is told; it is not refused, since stores and logins may be in place before the protocol changes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

import msgspec

from forebay_proxy.config.settings import Settings
from forebay_proxy.config.values import LISTENER_SETTINGS, SETTINGS, Setting


class WithoutEffect(NamedTuple):
    """The full names of settings that differ from their defaults, and why that changes nothing."""

    names: tuple[str, ...]
    why: str


def without_effect(settings: Settings) -> Iterator[WithoutEffect]:
    """One for the TLS of connections to brokers, one for the login there, and one for the TLS of each listener."""
    protocol = settings.security_protocol
    if not settings.uses_tls and (names := _set(settings, SETTINGS, "ssl.")):
        yield WithoutEffect(names, f"security.protocol is {protocol}, and connections to brokers are not encrypted")
    if not settings.uses_sasl and (names := _set(settings, SETTINGS, "sasl.")):
        yield WithoutEffect(names, f"security.protocol is {protocol}, and Forebay does not log in at brokers")
    for listener in settings.client_listeners:
        if not listener.uses_tls and (names := _set(listener.told, LISTENER_SETTINGS, "ssl.")):
            why = f"the security protocol of {listener.name} is {listener.protocol}, and its clients are not encrypted"
            yield WithoutEffect(tuple(map(listener.setting, names)), why)


def _set(told: msgspec.Struct, known: Mapping[str, Setting], prefix: str) -> tuple[str, ...]:
    return tuple(
        name
        for name, each in known.items()
        if name.startswith(prefix) and getattr(told, each.attribute) != each.default
    )
