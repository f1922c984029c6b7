"""Settings whose values stand in files, read again: passwords, keys and tokens that change while Forebay runs.

In: settings as they were loaded, and the prefix of those that are meant: `ssl.`, `sasl.`, `listener.name.external.`.
Out: settings with the values that their references have now, or the files that they and their stores stand in. What
cannot be used raises StartError, one line for a person that names the setting and the file and none of its contents.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

import msgspec

from forebay_proxy.config import identity_map, jaas, providers
from forebay_proxy.config.secret import Secret
from forebay_proxy.config.security import security_conflicts
from forebay_proxy.config.settings import Settings, conflicts
from forebay_proxy.config.values import SETTINGS, find, listener_setting
from forebay_proxy.errors import StartError

# Prefixes of what is made anew when its files change (security.renewals); from TLS on they are of listeners.
UPSTREAM: Final = ("ssl.", "sasl.")
ADMIN: Final = ("admin.ssl.", "admin.bearer.", "admin.change.")
TLS: Final = ("ssl.enabled.", "ssl.cipher.", "ssl.client.", "ssl.keystore.", "ssl.key.", "ssl.truststore.")
LOGINS: Final = ("plain.", "scram.", "oauthbearer.")
IDENTITIES: Final = ("upstream.identities.",)

_IDENTITIES: Final = "upstream.identities.location"
_SCRAM: Final = "scram.credentials.location"
_ISSUER: Final = "oauthbearer.sasl.jaas.config"


def reread(settings: Settings, prefixes: tuple[str, ...], environ: Mapping[str, str]) -> Settings:
    """`settings`, with what is watched under one of the prefixes resolved again. Raises StartError."""
    own: dict[str, object] = {}
    of_listeners: dict[str, dict[str, object]] = {}
    for name, text in settings.references.items():
        if not (name.startswith(prefixes) and is_watched(name)):
            continue
        value = _value(name, text, environ)
        if (found := listener_setting(name)) is not None:
            of_listeners.setdefault(found[0], {})[found[1].attribute] = value
        else:
            own[SETTINGS[name].attribute] = value
    if not own and not of_listeners:
        return settings
    told = dict(settings.listener_name)
    for listener, values in of_listeners.items():
        told[listener] = msgspec.structs.replace(told[listener], **values)
    changed = msgspec.structs.replace(settings, listener_name=told, **own)
    for conflict in (*conflicts(changed), *security_conflicts(changed)):
        raise StartError(f"{conflict[0]}: {conflict[1]}")
    return changed


def is_watched(name: str) -> bool:
    """Whether what its reference leads to is made anew as soon as that changes."""
    if (found := listener_setting(name)) is not None:
        return found[1].name.startswith((*TLS, *LOGINS, *IDENTITIES))
    return name.startswith((*UPSTREAM, *ADMIN))


def _value(name: str, text: str, environ: Mapping[str, str]) -> object:
    setting = find(name)
    assert setting is not None
    try:
        value = setting.resolve(text, environ)
    except ValueError as error:
        raise StartError(f"{name}: {error}") from None
    try:
        return setting.parse(value)
    except ValueError:
        raise StartError(f"{name}: {text} must be {setting.allowed}") from None


def files(settings: Settings, prefixes: tuple[str, ...]) -> tuple[str, ...]:
    """Every file that a setting under one of the prefixes names or refers to, each once."""
    found = [path for name, path in _locations(settings) if path and name.startswith(prefixes)]
    for name, text in settings.references.items():
        if name.startswith(prefixes):
            found += providers.files(text)
    return tuple(dict.fromkeys(found))


def _locations(settings: Settings) -> Iterator[tuple[str, str]]:
    """(setting, path) of every store; the path may be empty."""
    for name, each in SETTINGS.items():
        if name.endswith(".location"):
            yield name, getattr(settings, each.attribute)
    for listener in settings.client_listeners:
        for setting in ("ssl.keystore.location", "ssl.truststore.location", _IDENTITIES, _SCRAM):
            yield listener.setting(setting), getattr(listener.told, setting.replace(".", "_"))
        for path in identity_map.referenced(listener.told.upstream_identities_location):
            yield listener.setting(_IDENTITIES), path
        for path in _of_endpoint(listener.told.oauthbearer_sasl_jaas_config):
            yield listener.setting(_ISSUER), path
    if settings.uses_sasl:
        for path in _of_endpoint(settings.sasl_jaas_config):
            yield "sasl.jaas.config", path


def _of_endpoint(line: Secret) -> Iterator[str]:
    """Stores for TLS with a token's or an issuer's endpoint, by what stands in `sasl.jaas.config`."""
    for name, option in jaas.parse(line).options.items() if line else ():
        if name.startswith("ssl.") and name.endswith(".location"):
            yield option.reveal()
