"""One node's own Metadata answer. Client libraries ask whichever broker they like, which says nothing of this one."""

from __future__ import annotations

from forebay_codecs.metadata import Metadata, parse_metadata_response
from forebay_codecs.metadata_request import encode_metadata_request
from tests.kit.one_request import ask


def ask_metadata(port: int, *topics: str, version: int = 9) -> Metadata | None:
    """What the broker behind `port` knows, or None while it does not answer. No topics: brokers only."""
    request = encode_metadata_request(1, "the-test-itself", version, topics)
    try:
        response = ask(port, request)
    except OSError:
        return None
    return parse_metadata_response(response, version) if response else None
