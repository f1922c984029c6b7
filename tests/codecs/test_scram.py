"""SCRAM against someone else's server, and against servers that lie."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scramp import ScramMechanism

from forebay_codecs.errors import Malformed
from forebay_codecs.scram import HASHES, ScramClient, salt_password

MECHANISMS = list(HASHES)
# scramp applies SASLprep, which Kafka does not; to these characters it does nothing.
UNCHANGED = st.text("abcXYZ019 =,!\"#$%&'()*+-./:;<>?@[]^_`{|}~é", min_size=1, max_size=20).filter(
    lambda text: text == text.strip()
)


def login(mechanism: str, username: str, password: str, known: str, iterations: int = 4096) -> None:
    """As `username` with `password`, at a server that knows the password as `known`."""
    oracle = ScramMechanism(mechanism)
    asked: list[str] = []

    def of(name: str) -> object:
        asked.append(name)
        return oracle.make_auth_info(known, iterations, salt=b"salt" * 4)

    server = oracle.make_server(of)
    client = ScramClient(mechanism, username, "nonce0123456789")
    server.set_client_first(client.first().decode())
    challenge = client.challenge(server.get_server_first().encode())
    assert (challenge.salt, challenge.iterations) == (b"salt" * 4, iterations)
    server.set_client_final(client.final(salt_password(mechanism, password, challenge)).decode())
    client.verify(server.get_server_final().encode())
    assert asked == [username]


@pytest.mark.parametrize("mechanism", MECHANISMS)
@given(username=UNCHANGED, password=UNCHANGED)
@settings(max_examples=10, deadline=None)
def test_an_independent_server_takes_it_and_is_verified(mechanism: str, username: str, password: str) -> None:
    login(mechanism, username, password, password)


def test_the_example_of_rfc_7677() -> None:
    client = ScramClient("SCRAM-SHA-256", "user", "rOprNGfwEbeRWgbNEkqO")
    assert client.first() == b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
    server_first = b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
    salted = salt_password("SCRAM-SHA-256", "pencil", client.challenge(server_first))
    assert client.final(salted) == (
        b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
    )
    client.verify(b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=")


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_a_wrong_password_is_refused_by_the_server(mechanism: str) -> None:
    with pytest.raises(Exception, match=r"(?i)proof"):
        login(mechanism, "user", "wrong", "right")


@pytest.mark.parametrize(
    ("server_first", "why"),
    [
        (b"", "not nonce, salt and iterations"),
        (b"m=ext,r=nonceX,s=c2FsdA==,i=4096", "not nonce, salt and iterations"),
        (b"r=nonce,s=c2FsdA==,i=4096", "does not continue ours"),
        (b"r=other,s=c2FsdA==,i=4096", "does not continue ours"),
        (b"r=nonceX,s=c2Fs!dA=,i=4096", "not in base64"),
        (b"r=nonceX,s=c2FsdA==,i=4095", "asks for 4095 iterations"),
        (b"r=nonceX,s=c2FsdA==,i=16385", "asks for 16385 iterations"),
        (b"r=nonceX,s=c2FsdA==,i=-1", "are no number"),
        (b"r=nonceX,s=c2FsdA==,i=99999999999999999999", "are no number"),
        ("r=nonceX,s=c2FsdA==,i=४०९६".encode(), "are no number"),
        (b"\xff", "not UTF-8"),
    ],
)
def test_a_challenge_that_must_not_be_is_refused(server_first: bytes, why: str) -> None:
    with pytest.raises(Malformed, match=why):
        ScramClient("SCRAM-SHA-256", "user", "nonce").challenge(server_first)


@pytest.mark.parametrize(
    ("server_final", "why"),
    [
        (b"v=AAAA", "signature is wrong"),
        (b"v=?", "not in base64"),
        (b"", "has no signature"),
        (b"e=other-error", "refuses: other-error"),
    ],
)
def test_a_server_that_does_not_know_the_password_is_found_out(server_final: bytes, why: str) -> None:
    client = ScramClient("SCRAM-SHA-512", "user", "nonce")
    challenge = client.challenge(b"r=nonceX,s=c2FsdA==,i=4096")
    client.final(salt_password("SCRAM-SHA-512", "password", challenge))
    with pytest.raises(Malformed, match=why):
        client.verify(server_final)


def test_nothing_is_verified_before_anything_was_proved() -> None:
    with pytest.raises(Malformed, match="no signature"):
        ScramClient("SCRAM-SHA-512", "user", "nonce").verify(b"v=")


def test_a_delegation_token_is_told_from_a_user() -> None:
    assert ScramClient("SCRAM-SHA-256", "id", "nonce", by_token=True).first() == b"n,,n=id,r=nonce,tokenauth=true"
