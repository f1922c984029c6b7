"""What a client sends first by OAUTHBEARER (RFC 7628, 3.1), as a broker reads it.

    n,,^Aauth=Bearer TOKEN^Atraceid=7^A^A           ^A is a byte of value 1
    n,a=alice,^Aauth=Bearer TOKEN^A^A

In: its bytes. Out: token, the user that it names (authzid), and extensions (KIP-342). What Kafka does not take raises
Malformed. Of a name that stands twice the last value counts, as in Kafka.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from forebay_codecs.errors import Malformed

_WHOLE: Final = re.compile(
    r"n,(?:a=(?P<authzid>(?:[\x01-\x2b\x2d-\x3c\x3e-\x7f]|=2C|=3D)+))?,\x01"
    r"(?P<pairs>(?:[A-Za-z]+=[\x20-\x7e\t\r\n]+\x01)*)\x01"
)
_AUTH: Final = re.compile(r"(?P<scheme>\w+) +(?P<token>[-_~+/.A-Za-z0-9]+=*)", re.ASCII)


class InitialResponse(NamedTuple):
    """`authzid`: whom the client wants to be; empty: whom the token is for."""

    token: str
    authzid: str
    extensions: dict[str, str]

    def __repr__(self) -> str:
        return f"InitialResponse(authzid={self.authzid!r}, …)"


def parse_initial(message: bytes) -> InitialResponse:
    """Raises Malformed."""
    try:
        whole = _WHOLE.fullmatch(message.decode())
    except UnicodeDecodeError:
        whole = None
    if whole is None:
        raise Malformed("no first message of OAUTHBEARER")
    pairs = dict(pair.split("=", 1) for pair in whole["pairs"].split("\x01") if pair)
    auth = _AUTH.fullmatch(pairs.pop("auth", ""))
    if auth is None or auth["scheme"].lower() != "bearer":
        raise Malformed("a first message of OAUTHBEARER without a token")
    return InitialResponse(auth["token"], whole["authzid"] or "", pairs)
