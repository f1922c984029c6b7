"""One node's own Metadata answer. Client libraries ask whichever broker they like, which says nothing of this one."""

from __future__ import annotations

import socket

from forebay_codecs.metadata import Metadata, parse_metadata_response
from forebay_codecs.metadata_request import encode_metadata_request
from tests.kit.ports import LOOPBACK

_SECONDS = 20


def ask_metadata(port: int, *topics: str, version: int = 9) -> Metadata | None:
    """What the broker behind `port` knows, or None while it does not answer. No topics: brokers only."""
    request = encode_metadata_request(1, "the-test-itself", version, topics)
    try:
        with socket.create_connection((LOOPBACK, port), _SECONDS) as connection, connection.makefile("rb") as answers:
            connection.sendall(len(request).to_bytes(4, "big") + request)
            response = answers.read(int.from_bytes(answers.read(4), "big"))
    except OSError:
        return None
    return parse_metadata_response(response, version) if response else None
