"""Answers a client's ApiVersions request: what its broker and Forebay both understand, in the client's version.

In: the request's version and correlation id. Out: the response's frame, perhaps later. A version that is unknown is
answered at once with UNSUPPORTED_VERSION in v0, as brokers do, and the client asks again in a version it is told.
"""

from __future__ import annotations

from collections.abc import Callable

from forebay_codecs import api_versions
from forebay_codecs.apis import API_VERSIONS, APIS
from forebay_proxy.clients.gateway import Gateway

_API = APIS[API_VERSIONS]


def answer_api_versions(
    gateway: Gateway,
    node_id: int | None,
    version: int,
    correlation_id: int,
    admin: str | None,
    answer: Callable[[bytes | None], None],
) -> None:
    """Call `answer` with the frame, once; None: no broker answers. `admin`: where the admin endpoint listens, for a
    client that is to know; None: it is not told."""
    if not _API.supports(version):
        answer(_framed(api_versions.unsupported_version_response(correlation_id)))
        return

    def ready(response: bytes | None) -> None:
        if response is not None and (gateway.hidden or gateway.at_most):
            response = api_versions.rewrite_api_versions(response, version, gateway.hidden, gateway.at_most)
        if response is not None and admin is not None:
            response = api_versions.with_admin(response, admin)
        own = correlation_id.to_bytes(4, "big", signed=True)
        answer(_framed(own + response[4:]) if response is not None else None)

    gateway.api_versions(node_id, version, ready)


def _framed(response: bytes) -> bytes:
    return len(response).to_bytes(4, "big") + response
