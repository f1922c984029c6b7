"""What the first bytes of a connection tell of a client that came to the wrong port."""

from __future__ import annotations

import pytest

from forebay_proxy.clients.wrong_protocol import instead_of_kafka, instead_of_tls, named

CLIENT_HELLO = bytes.fromhex("160301020001")
KAFKA = bytes.fromhex("0000002a00120003")


@pytest.mark.parametrize(
    ("start", "spoken"),
    [
        (CLIENT_HELLO[:4], "TLS"),
        (b"GET ", "HTTP"),
        (b"POST", "HTTP"),
        (b"\xff\xff\xff\xff", None),
        (b"\x00\x00\x00\x02", None),
        (b"\x16", None),
        (b"", None),
    ],
)
def test_on_a_port_without_tls(start: bytes, spoken: str | None) -> None:
    found = instead_of_kafka(start)
    assert found == spoken or (spoken is not None and found is not None and found.startswith(spoken))
    assert named(start) == ({"spoke": found} if found else {})


@pytest.mark.parametrize(
    ("start", "spoken"),
    [
        (KAFKA, "Kafka without TLS"),
        (KAFKA[:1], "Kafka without TLS"),
        (b"GET / HTTP/1.1\r\n", "HTTP without TLS"),
        (b"PROXY TCP4 10.0.0.1", "the PROXY protocol"),
        (b"\r\n\r\n\0\r\nQUIT\n!", "the PROXY protocol"),
        (b"SSH-2.0-OpenSSH", "neither TLS nor Kafka"),
    ],
)
def test_on_a_port_with_tls(start: bytes, spoken: str) -> None:
    found = instead_of_tls(start)
    assert found is not None
    assert found.startswith(spoken)


def test_tls_on_a_port_with_tls_is_right() -> None:
    assert all(instead_of_tls(CLIENT_HELLO[:length]) is None for length in range(1, len(CLIENT_HELLO)))
