"""Which way a request frame goes, told from its first eight bytes.

In: api_key and api_version. Out: a Route, and the API it is. Nothing is decoded here.
"""

from __future__ import annotations

import enum
from typing import Final

from forebay_codecs.api_keys import API_VERSIONS, METADATA, PRODUCE, SASL_AUTHENTICATE, SASL_HANDSHAKE
from forebay_codecs.apis import APIS, Api
from forebay_codecs.producers_only import LOOKED_AT


class Route(enum.Enum):
    """What is done with a request frame: always exactly one of these."""

    OPAQUE = "opaque"
    """Cut through on the client's own upstream connection."""
    PRODUCE = "produce"
    """Gathered for the produce path."""
    METADATA = "metadata"
    """Gathered and answered from the cache."""
    API_VERSIONS = "api versions"
    """Answered here."""
    CHECKED = "checked"
    """Gathered where only producers are served, and refused unless it is a producer's (codecs.producers_only)."""
    LOGIN = "login"
    """Gathered where clients that log in themselves are to be recognised, and passed on as it came."""
    TOKEN = "token"
    """The same, for a SASL token without a header."""
    LOGIN_HERE = "login here"
    """Of a login that is terminated here (terminated_login)."""
    REFUSED = "refused"
    """Not offered in ApiVersions: its response could name a broker unread. The connection is closed."""


LOGINS: Final = (SASL_HANDSHAKE, SASL_AUTHENTICATE)
"""Keys of the requests that a client logs in with."""
_VERSIONS: Final = 32
"""More than any API has."""
_GATHERED: Final = {PRODUCE: Route.PRODUCE, METADATA: Route.METADATA}


def route(api_key: int, api_version: int) -> tuple[Route, Api | None]:
    """(route, API) of a request; (REFUSED, None) if the key is unknown."""
    known = _KNOWN.get(api_key << 16 | api_version)
    return known if known is not None else _found(api_key, api_version)


def _found(api_key: int, api_version: int) -> tuple[Route, Api | None]:
    api = APIS.get(api_key)
    if api is None:
        return Route.REFUSED, None
    if api_key == API_VERSIONS:
        return Route.API_VERSIONS, api
    if not api.supports(api_version):
        return Route.REFUSED, api
    return _GATHERED.get(api_key, Route.OPAQUE), api


def route_of_producer(api_key: int, api_version: int) -> tuple[Route, Api | None]:
    """The same where only producers are served. A login is refused: it would be good for one broker of many."""
    found, api = route(api_key, api_version)
    if found is not Route.OPAQUE:
        return found, api
    if api_key in LOGINS:
        return Route.REFUSED, api
    return (Route.CHECKED if api_key in LOOKED_AT else found), api


_KNOWN: Final = {key << 16 | version: _found(key, version) for key in APIS for version in range(_VERSIONS)}
"""The same by key and version: what nearly every request has."""
