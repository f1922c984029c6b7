"""Which protocol a client speaks, from its first bytes, where it is not the one that its listener expects.

In: the first bytes of a connection, or of a frame that cannot be one. Out: words for the log.
"""

from __future__ import annotations

from typing import Final

HANDSHAKE: Final = 0x16
"""The first byte of a TLS connection: a record of the handshake. The second is 3, its major version."""

_HTTP: Final = (b"GET", b"PUT", b"POS", b"HEA", b"OPT", b"CON", b"DEL", b"PAT")
_PROXY: Final = (b"PROXY", b"\r\n\r\n\0\r\nQUIT\n")


def instead_of_kafka(start: bytes) -> str | None:
    """What speaks on a PLAINTEXT port, from the first four bytes; None: nothing that is known."""
    if start[:2] == bytes((HANDSHAKE, 3)):
        return "TLS: the client must use security.protocol=PLAINTEXT, or a listener with SSL"
    if start[:3] in _HTTP:
        return "HTTP"
    return None


def named(start: bytes) -> dict[str, str]:
    """`spoke`, for the log, where it is known what speaks on a PLAINTEXT port."""
    other = instead_of_kafka(start)
    return {"spoke": other} if other is not None else {}


def instead_of_tls(start: bytes) -> str | None:
    """What speaks on a port with TLS, from the first bytes, at least one; None: it may be TLS."""
    if start[0] == HANDSHAKE:
        return None
    if start[:3] in _HTTP:
        return "HTTP without TLS"
    if any(start.startswith(each) for each in _PROXY):
        return "the PROXY protocol"
    if start[0] == 0:  # a size below 16 MiB
        return "Kafka without TLS: the client must use security.protocol=SSL, or a PLAINTEXT listener"
    return "neither TLS nor Kafka"
