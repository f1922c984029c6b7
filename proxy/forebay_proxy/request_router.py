"""Which way a request frame goes, told from its first eight bytes.

In: api_key and api_version. Out: a Route, and the API it is. Nothing is decoded here.
"""

from __future__ import annotations

import enum

from forebay_codecs import produce_request
from forebay_codecs.apis import API_VERSIONS, APIS, METADATA, PRODUCE, Api


class Route(enum.Enum):
    OPAQUE = "opaque"
    """Cut through on the client's own upstream connection."""
    PRODUCE = "produce"
    """Gathered for the produce path."""
    OLD_PRODUCE = "old produce"
    """Produce v0–v2: gathered to see its acks, then forwarded as it came. Brokers of Kafka 4 refuse it."""
    METADATA = "metadata"
    """Gathered and answered from the cache."""
    API_VERSIONS = "api versions"
    """Answered here."""
    REFUSED = "refused"
    """Not offered in ApiVersions: its response could name a broker unread. The connection is closed."""


def route(api_key: int, api_version: int) -> tuple[Route, Api | None]:
    api = APIS.get(api_key)
    if api is None:
        return Route.REFUSED, None
    if api_key == API_VERSIONS:
        return Route.API_VERSIONS, api
    if not api.supports(api_version):
        return Route.REFUSED, api
    if api_key == PRODUCE:
        return (Route.PRODUCE if api_version >= produce_request.MIN_VERSION else Route.OLD_PRODUCE), api
    return (Route.METADATA if api_key == METADATA else Route.OPAQUE), api
