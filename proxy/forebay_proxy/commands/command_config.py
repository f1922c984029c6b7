"""How `forebay clients` reaches Forebay: what --command-config says, for its listeners and its admin endpoint.

In: a file of Kafka's clients (security.client_properties), in which admin.bearer.token may stand, too. Out: how to
connect. Nobody logs in: PLAINTEXT and SSL listeners say where the endpoint is without it, SASL listeners do not say it.
So a SASL_SSL file does as SSL would, and sasl.… in it is not even read. What is wrong raises StartError.
"""

from __future__ import annotations

import os
import ssl
from collections.abc import Mapping
from dataclasses import dataclass

from forebay_proxy.config.secret import Secret
from forebay_proxy.security import client_properties
from forebay_proxy.security.tls import brokers_context


@dataclass(frozen=True)
class CommandConfig:
    """`context`: for the bootstrap servers, None: they are spoken to without TLS. `https`: for the admin endpoint."""

    context: ssl.SSLContext | None
    https: ssl.SSLContext
    token: Secret


def read(path: str | None, environ: Mapping[str, str] = os.environ) -> CommandConfig:
    """What the file says; without one, plain connections. Raises StartError."""
    settings = client_properties.NOTHING
    if path is not None:
        settings = client_properties.read(path, (*client_properties.TLS, "admin.bearer.token"), environ)
    https = brokers_context(settings)
    return CommandConfig(https if settings.uses_tls else None, https, settings.admin_bearer_token)
