"""What a client connection writes becomes records of TLS: as few as may be, in order, with a farewell at the end."""

from __future__ import annotations

import asyncio
import ssl
from pathlib import Path
from typing import Any, cast

import pytest

from forebay_proxy.clients.tls_session import TlsSession
from forebay_proxy.clients.tls_transport import SMALL, TlsTransport
from tests.kit.event_loop import in_loop, turns
from tests.proxy.clients.test_tls_session import Pair


class Beneath:
    """A transport that remembers what it was told."""

    def __init__(self) -> None:
        self.did: list[str] = []
        self.written: list[bytes] = []
        self.closing = False

    def write(self, data: bytes) -> None:
        self.did.append("write")
        self.written.append(data)

    def is_closing(self) -> bool:
        return self.closing

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return {"peername": ("10.0.0.1", 1)}.get(name, default)

    def __getattr__(self, name: str) -> Any:
        return lambda: self.did.append(name)


@pytest.fixture
def pair(tmp_path: Path) -> Pair:
    (tmp_path / "other").mkdir()
    pair = Pair(tmp_path)
    pair.shake_hands()
    return pair


def over(session: TlsSession) -> tuple[TlsTransport, Beneath]:
    beneath = Beneath()
    return TlsTransport(cast(asyncio.Transport, beneath), session, lambda: False), beneath


def records(ciphertext: bytes) -> int:
    count = 0
    while ciphertext:
        ciphertext = ciphertext[5 + int.from_bytes(ciphertext[3:5], "big") :]
        count += 1
    return count


@pytest.mark.parametrize(
    ("sizes", "expected"),
    [
        ([1] * 50, 1),
        ([SMALL - 1, SMALL - 1], 1),
        ([10, 10, SMALL, 10, 10], 3),
        ([SMALL, SMALL], 2),
        ([40_000], 3),
        ([], 0),
    ],
)
def test_small_pieces_share_a_record_and_large_ones_are_not_copied(pair: Pair, sizes: list[int], expected: int) -> None:
    transport, beneath = over(pair.session)
    pieces = [bytes([number % 251]) * size for number, size in enumerate(sizes)]
    transport.writelines(pieces)
    assert records(b"".join(beneath.written)) == expected
    assert len(beneath.written) == bool(sizes)  # one system call
    for ciphertext in beneath.written:
        pair.to_client.write(ciphertext)
    sent = b"".join(pieces)
    assert (pair.read(len(sent)) if sent else b"") == sent


def test_closing_says_farewell_once_and_nothing_is_written_after_it(pair: Pair) -> None:
    transport, beneath = over(pair.session)
    transport.write(b"bye")
    transport.close()
    assert beneath.did == ["write", "write", "close"]
    beneath.closing = True
    transport.close()
    transport.write(b"more")
    assert transport.is_closing()
    assert beneath.did == ["write", "write", "close"]
    for ciphertext in beneath.written:
        pair.to_client.write(ciphertext)
    assert pair.client.read(10) == b"bye"
    assert pair.client.read(10) == b""


def test_all_else_is_done_by_the_transport_beneath(pair: Pair) -> None:
    transport, beneath = over(pair.session)
    transport.pause_reading()
    transport.resume_reading()
    transport.abort()
    assert beneath.did == ["pause_reading", "resume_reading", "abort"]
    assert transport.get_extra_info("peername") == ("10.0.0.1", 1)
    assert transport.get_extra_info("nothing", 5) == 5


@in_loop
async def test_after_the_clients_farewell_it_closes_once_it_would_be_read_for_good(pair: Pair) -> None:
    transport, beneath = over(pair.session)
    transport.pause_reading()
    transport.over()
    transport.resume_reading()
    transport.pause_reading()
    await turns()
    assert beneath.did == ["pause_reading", "pause_reading"]
    transport.resume_reading()
    await turns()
    assert beneath.did[2:] == ["write", "close"]


def test_a_session_that_has_failed_takes_nothing_more(pair: Pair) -> None:
    with pytest.raises(ssl.SSLError):
        pair.session.receive(b"\x17\x03\x03\x00\x20" + bytes(32))  # a record that nobody has enciphered
    transport, beneath = over(pair.session)
    transport.write(b"x")
    assert beneath.did == ["abort"]
