"""scram_server.py against our client's side and against scramp's: who knows the password gets in, and nobody else."""

from __future__ import annotations

import hashlib
import hmac

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scramp import ScramClient as OtherClient

from forebay_codecs.errors import Malformed
from forebay_codecs.scram import HASHES, Challenge, ScramClient, salt_password
from forebay_codecs.scram_credential import ScramCredential, credential_of
from forebay_codecs.scram_server import MAX_MESSAGE, SALT_SIZE, ScramServer, phantom

MECHANISMS = pytest.mark.parametrize("mechanism", HASHES)
CHALLENGE = Challenge(b"salt" * 6, 4096)


def kept(mechanism: str, password: str) -> ScramCredential:
    return credential_of(mechanism, salt_password(mechanism, password, CHALLENGE), CHALLENGE)


@MECHANISMS
def test_another_ones_client_gets_in_and_believes_the_server(mechanism: str) -> None:
    client = OtherClient([mechanism], "alice", "secret")
    server = ScramServer(mechanism)
    assert server.first(client.get_client_first().encode()) == "alice"
    client.set_server_first(server.challenge(kept(mechanism, "secret"), "server-nonce").decode())
    answer, client_key = server.final(client.get_client_final().encode())
    client.set_server_final(answer.decode())
    salted = salt_password(mechanism, "secret", CHALLENGE)
    assert client_key == hmac.digest(salted, b"Client Key", HASHES[mechanism])


@pytest.mark.parametrize("password", ["secret", "ſecret=,", "pässwörd"])
@pytest.mark.parametrize("user", ["alice", "a=b,c", "ünal"])
def test_our_own_client_does_too_with_names_of_any_kind(user: str, password: str) -> None:
    mechanism = "SCRAM-SHA-256"
    client, server = ScramClient(mechanism, user, "nonce"), ScramServer(mechanism)
    assert server.first(client.first()) == user
    client.challenge(server.challenge(kept(mechanism, password), "more"))
    answer, client_key = server.final(client.final(salt_password(mechanism, password, CHALLENGE)))
    client.verify(answer)
    assert hashlib.sha256(client_key).digest() == kept(mechanism, password).stored_key


@MECHANISMS
def test_a_wrong_password_does_not(mechanism: str) -> None:
    client, server = ScramClient(mechanism, "alice", "nonce"), ScramServer(mechanism)
    server.first(client.first())
    client.challenge(server.challenge(kept(mechanism, "secret"), "more"))
    with pytest.raises(Malformed, match="wrong proof"):
        server.final(client.final(salt_password(mechanism, "other", CHALLENGE)))


@MECHANISMS
def test_a_phantom_is_asked_for_the_same_proof_each_time_and_nobody_has_it(mechanism: str) -> None:
    one, other = (phantom(mechanism, "nobody", b"key", 4096) for _ in range(2))
    assert one == other
    assert (len(one.salt), one.iterations, len(one.stored_key)) == (
        SALT_SIZE,
        4096,
        len(kept(mechanism, "").stored_key),
    )
    assert phantom(mechanism, "somebody", b"key", 4096).salt != one.salt
    assert phantom(mechanism, "nobody", b"other", 4096).salt != one.salt
    client, server = ScramClient(mechanism, "nobody", "nonce"), ScramServer(mechanism)
    server.first(client.first())
    challenge = client.challenge(server.challenge(one, "more"))
    with pytest.raises(Malformed, match="wrong proof"):
        server.final(client.final(salt_password(mechanism, "", challenge)))


TAKEN = {
    "n,,n=alice,r=abc": "alice",
    "n,a=alice,n=alice,r=abc": "alice",
    "n,a=a=3Db,n=a=3Db,r=abc": "a=b",
    "n,,n=alice,r=abc,tokenauth=false": "alice",
    "n,,n=alice,r=abc,more=less": "alice",
    "n,,m=some,n=alice,r=abc": "alice",
}


@pytest.mark.parametrize(("message", "user"), TAKEN.items())
def test_first_messages_that_kafka_takes(message: str, user: str) -> None:
    assert ScramServer("SCRAM-SHA-256").first(message.encode()) == user


REFUSED = [
    b"",
    b"n,,",
    b"alice",
    b"y,,n=alice,r=abc",
    b"p=tls-unique,,n=alice,r=abc",
    b"n,a=bob,n=alice,r=abc",
    b"n,,n=,r=abc",
    b"n,,n=al=ice,r=abc",
    b"n,,n=alice,r=",
    b"n,,n=alice,r=a b",
    b"n,,n=alice",
    b"n,,n=alice,r=abc,",
    b"n,,n=alice,r=abc,tokenauth=true",
    b"n,,n=\xff,r=abc",
    b"n,,n=" + b"a" * MAX_MESSAGE + b",r=abc",
]


@pytest.mark.parametrize("message", REFUSED)
def test_first_messages_that_are_refused(message: bytes) -> None:
    with pytest.raises(Malformed):
        ScramServer("SCRAM-SHA-256").first(message)


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"c=biws,r=noncemore",
        b"c=biws,r=nonce,p=AAAA",
        b"c=biws,r=noncemore,p=AAAA",
        b"c=biws,r=noncemore,p=A",
        b"c=biws,r=noncemore,p=" + b"A" * 43 + b"=",
        b"c=biws,r=noncemore,p=\xff",
    ],
)
def test_final_messages_that_are_refused(message: bytes) -> None:
    server = ScramServer("SCRAM-SHA-256")
    server.first(b"n,,n=alice,r=nonce")
    server.challenge(kept("SCRAM-SHA-256", "secret"), "more")
    with pytest.raises(Malformed):
        server.final(message)


@given(first=st.binary(max_size=100), final=st.binary(max_size=100))
def test_nothing_gets_in_by_chance(first: bytes, final: bytes) -> None:
    server = ScramServer("SCRAM-SHA-512")
    try:
        server.first(first)
    except Malformed:
        server.first(b"n,,n=alice,r=nonce")
    server.challenge(kept("SCRAM-SHA-512", "secret"), "more")
    with pytest.raises(Malformed):
        server.final(final)
