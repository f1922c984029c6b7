"""Answers a client's ApiVersions request: what its broker and Forebay both understand, in the client's version.

In: the request's version and correlation id. Out: the response's frame, perhaps later. A version that is unknown is
answered at once with UNSUPPORTED_VERSION in v0, as brokers do, and the client asks again in a version it is told.

Where its broker does not answer, a client that would misread that is told what another one did: directly it would not
have been connected, and that its connection ends in this very moment tells it that the broker is older than 0.10.
librdkafka before 1.0 (PHP, Node.js) then sends records without headers and times for twenty minutes, kafka-python for
good. Others take it for an outage, and come again after longer and longer pauses, which an answer would end.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from forebay_codecs import api_versions
from forebay_codecs.api_keys import API_VERSIONS
from forebay_codecs.apis import APIS
from forebay_proxy.clients.gateway import Gateway

_API = APIS[API_VERSIONS]
_OLDEST: Final = 0
_GUESSES: Final = "kafka-python"
"""Asks in newer versions, too (2.1 to 2.3), and guesses all the same."""
STAND_IN_S: Final = 0.4
"""Seconds after which they are told what another broker did: kafka-python waits for two, kafka-node for half of one."""


def misreads(version: int, software: str | None) -> bool:
    """Whether who asks in that version, and calls itself so, takes the end of its connection for an answer."""
    return version == _OLDEST or software == _GUESSES


def answer_api_versions(
    gateway: Gateway,
    node_id: int | None,
    version: int,
    correlation_id: int,
    admin: str | None,
    answer: Callable[[bytes | None], None],
    *,
    misread: bool,
) -> None:
    """Call `answer` with the frame, once; None: no broker answers, nor, where that would be `misread`, has one ever.
    `admin`: where the admin endpoint listens, for a client that is to know; None: it is not told."""
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

    if misread:
        _ask_any(gateway, node_id, version, ready)
    else:
        gateway.api_versions(node_id, version, ready)


def _ask_any(gateway: Gateway, node_id: int | None, version: int, ready: Callable[[bytes | None], None]) -> None:
    """`ready` gets the broker's answer or, where there is none in STAND_IN_S, the last of any. None: there is none."""
    waits = True

    def once(response: bytes | None) -> None:
        nonlocal waits
        if waits:
            waits = False
            timer.cancel()
            ready(response)

    def late() -> None:
        last = gateway.last_api_versions(version)
        if last is not None:
            once(last)
        else:
            gateway.api_versions(gateway.another_node(node_id), version, told_by_any)

    def told_by_any(response: bytes | None) -> None:
        if response is not None:  # else its own may still answer
            once(response)

    def told(response: bytes | None) -> None:
        response = response if response is not None else gateway.last_api_versions(version)
        if response is not None or node_id is None:
            once(response)
        else:
            gateway.api_versions(None, version, once)

    timer = asyncio.get_running_loop().call_later(STAND_IN_S, late)
    gateway.api_versions(node_id, version, told)


def _framed(response: bytes) -> bytes:
    return len(response).to_bytes(4, "big") + response
