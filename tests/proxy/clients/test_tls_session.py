"""TLS without I/O, against the other side of Python's own: whole, in any pieces, and what breaks it."""

from __future__ import annotations

import os
import ssl
from pathlib import Path

import pytest

from forebay_proxy.clients.tls_session import MAX_READ, TlsSession, is_farewell
from forebay_proxy.security.tls import TlsSettings, server_context
from tests.kit.certificates import Authority
from tests.kit.ports import LOOPBACK

VERSIONS = ("TLSv1.2", "TLSv1.3")


class Pair:
    """A session, and a client that is connected to it by hand."""

    def __init__(self, folder: Path, version: str = "TLSv1.3", client_auth: str = "none", known: bool = True) -> None:
        authority = Authority(folder)
        keystore = str(authority.issue("server", LOOPBACK))
        told = TlsSettings((version,), truststore_location=str(authority.pem), keystore_location=keystore)
        self.session = TlsSession(server_context(told, client_auth))
        stranger = Authority(folder / "other") if not known else authority
        context = authority.client_context(None if known else stranger.issue("client", subject="till"))
        self.to_client, self.to_server = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.client = context.wrap_bio(self.to_client, self.to_server, server_hostname=LOOPBACK)

    def shake_hands(self, piece: int = MAX_READ) -> None:
        while True:
            try:
                self.client.do_handshake()
            except ssl.SSLWantReadError:
                pass
            if not self.to_server.pending:
                assert self.session.established
                return
            assert self.give(piece) == b""

    def give(self, piece: int = MAX_READ) -> bytes:
        """What the client has written, in pieces; the plaintext. What the session says goes to the client."""
        plaintext = b""
        while self.to_server.pending:
            plaintext += self.session.receive(self.to_server.read(piece))
            self.to_client.write(self.session.outgoing())
        return plaintext

    def read(self, size: int) -> bytes:
        self.to_client.write(self.session.outgoing())
        found = b""
        while len(found) < size:
            found += self.client.read(size - len(found))
        return found


@pytest.fixture(autouse=True)
def other_folder(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("piece", [1, 7, 1000, MAX_READ])
def test_every_byte_comes_out_once_in_whatever_pieces_it_went_in(tmp_path: Path, version: str, piece: int) -> None:
    pair = Pair(tmp_path, version)
    pair.shake_hands(piece)
    sent = os.urandom(40_000 if piece == 1 else 300_000)
    for start in range(0, len(sent), 23_456):
        pair.client.write(sent[start : start + 23_456])
    assert pair.give(piece) == sent
    for start in range(0, len(sent), 100_000):
        pair.session.send(sent[start : start + 100_000])
    assert pair.read(len(sent)) == sent


@pytest.mark.parametrize("version", VERSIONS)
def test_the_most_that_may_be_read_at_once_comes_out_with_the_record_begun_before(tmp_path: Path, version: str) -> None:
    pair = Pair(tmp_path, version)
    pair.shake_hands()
    sent = os.urandom(10 * 16_384)
    pair.client.write(sent)
    first = pair.session.receive(pair.to_server.read(16_384))
    assert not first  # all but the last bytes of a record
    assert first + pair.give(MAX_READ) == sent


@pytest.mark.parametrize("version", VERSIONS)
def test_a_farewell_is_heard_after_what_was_said_before_it(tmp_path: Path, version: str) -> None:
    pair = Pair(tmp_path, version)
    pair.shake_hands()
    pair.client.write(b"last words")
    with pytest.raises(ssl.SSLWantReadError):
        pair.client.unwrap()
    assert not pair.session.over
    assert pair.give() == b"last words"
    assert pair.session.over


@pytest.mark.parametrize("version", VERSIONS)
def test_our_farewell_does_not_wait_for_an_answer(tmp_path: Path, version: str) -> None:
    pair = Pair(tmp_path, version)
    pair.shake_hands()
    pair.session.send(b"bye")
    pair.session.say_farewell()
    assert pair.read(3) == b"bye"
    assert pair.client.read(1) == b""


@pytest.mark.parametrize("version", VERSIONS)
def test_an_alert_alone_is_told_from_a_request(tmp_path: Path, version: str) -> None:
    pair = Pair(tmp_path, version)
    pair.shake_hands()
    pair.client.write(bytes(14))  # as short as a request can be
    request = pair.to_server.read()
    with pytest.raises(ssl.SSLWantReadError):
        pair.client.unwrap()
    farewell = pair.to_server.read()
    assert is_farewell(farewell[:5], len(farewell))
    assert not is_farewell(request[:5], len(request))
    assert not is_farewell(farewell[:5], len(farewell) * 2)
    assert not is_farewell(farewell[:4], len(farewell))
    assert not is_farewell(b"", 0)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("client_auth", ["requested", "required"])
def test_a_client_certificate_of_a_stranger_is_refused_and_the_client_is_told(
    tmp_path: Path, version: str, client_auth: str
) -> None:
    pair = Pair(tmp_path, version, client_auth, known=False)
    with pytest.raises(ssl.SSLCertVerificationError):
        pair.shake_hands()
    pair.to_client.write(pair.session.outgoing())
    with pytest.raises(ssl.SSLError, match="ALERT"):
        pair.client.do_handshake() if version == "TLSv1.2" else pair.client.read(1)


def test_no_tickets_are_given(tmp_path: Path) -> None:
    pair = Pair(tmp_path)
    pair.shake_hands()
    pair.session.send(b"!")
    pair.read(1)
    assert pair.client.session is None or not pair.client.session.has_ticket


def test_what_is_no_tls_any_more_is_an_error(tmp_path: Path) -> None:
    pair = Pair(tmp_path)
    pair.shake_hands()
    with pytest.raises(ssl.SSLError):
        pair.session.receive(b"\x00\x00\x00\x0e" + bytes(14))


@pytest.mark.parametrize("version", VERSIONS)
def test_what_the_client_has_shown_is_told(tmp_path: Path, version: str) -> None:
    pair = Pair(tmp_path, version, "requested")
    pair.shake_hands()
    assert pair.session.certificate is None
    authority = Authority(tmp_path / "other")
    keystore = authority.issue("server", LOOPBACK)
    told = TlsSettings((version,), truststore_location=str(authority.pem), keystore_location=str(keystore))
    pair.session = TlsSession(server_context(told, "required"))
    shown = authority.issue("client", subject="till")
    pair.to_client, pair.to_server = ssl.MemoryBIO(), ssl.MemoryBIO()
    context = authority.client_context(shown)
    pair.client = context.wrap_bio(pair.to_client, pair.to_server, server_hostname=LOOPBACK)
    pair.shake_hands()
    assert pair.session.certificate is not None
    assert b"till" in pair.session.certificate
