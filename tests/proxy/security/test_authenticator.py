"""Logging in, against a broker whose every answer the test decides; scramp is the server of SCRAM."""

from __future__ import annotations

import hashlib
import hmac
import re
from base64 import b64decode, b64encode
from collections.abc import Callable
from typing import Any

import pytest
from scramp import ScramException, ScramMechanism

from forebay_codecs.primitives import Reader, Writer
from forebay_codecs.scram import HASHES, Challenge, salt_password
from forebay_codecs.scram_credential import credential_of
from forebay_proxy.config.secret import Secret
from forebay_proxy.security.authenticator import AuthenticationFailed, Authenticator, NotKnownYet
from forebay_proxy.security.logins import DelegatedLogin, PasswordLogin, ScramKeyLogin, Token
from tests.kit.app import settings
from tests.kit.event_loop import in_loop
from tests.kit.sasl import PASSWORD, USER, login_line

VERSION = 2
LIFETIME_S = 3_600.0


def authenticator(mechanism: str, password: str = PASSWORD, **changed: Any) -> Authenticator:
    told = {"sasl_jaas_config": Secret(login_line(mechanism, password)), **changed}
    return Authenticator(settings((), 1, sasl_mechanism=mechanism, **told))


class FakeServer:
    """`answer` is given each message of the mechanism, and returns the next; what it raises is the refusal."""

    def __init__(self, answer: Callable[[bytes], bytes], offered: tuple[str, ...] = ()) -> None:
        self._answer = answer
        self._offered = offered
        self.heard: list[bytes] = []

    async def call(self, build: Callable[[int], bytes]) -> bytes:
        reader = Reader(build(7))
        api_key = reader.i16()
        reader.i16()
        reader.i32()
        assert reader.client_id() == "forebay"
        writer = Writer()
        writer.i32(7)
        if api_key == 17:
            wanted = reader.string(False)
            has = self._offered or (wanted,)
            writer.i16(0 if wanted in has else 33)
            writer.array(len(has), False)
            for name in has:
                writer.string(name, False)
            return writer.getvalue()
        reader.skip_tags()
        found = reader.nullable_bytes(True)
        assert found is not None
        self.heard.append(reader.data[found[0] : found[1]])
        writer.tags()
        try:
            data, error, message = self._answer(self.heard[-1]), 0, None
        except (ScramException, PermissionError) as refusal:
            data, error, message = b"", 58, str(refusal)
        writer.i16(error)
        writer.nullable_string(message, True)
        writer.uvarint(len(data) + 1)
        writer.raw(data)
        writer.i64(int(LIFETIME_S * 1000))
        writer.tags()
        return writer.getvalue()


def scram_server(mechanism: str, known: str = PASSWORD) -> FakeServer:
    oracle = ScramMechanism(mechanism)
    server = oracle.make_server(lambda name: oracle.make_auth_info(known, 4096, salt=b"salt" * 4))

    def answer(message: bytes) -> bytes:
        if message.startswith(b"n,,"):
            server.set_client_first(message.decode())
            return str(server.get_server_first()).encode()
        server.set_client_final(message.decode())
        return str(server.get_server_final()).encode()

    return FakeServer(answer)


@in_loop
async def test_scram_is_proved_by_both_sides() -> None:
    for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512"):
        known = authenticator(mechanism)
        nonces = set()
        for _ in range(2):
            server = scram_server(mechanism)
            assert await known.authenticate(server.call, VERSION) == LIFETIME_S
            nonces.add(server.heard[0])
        assert len(nonces) == 2


def key_login(mechanism: str, salt: bytes = b"salt" * 4) -> ScramKeyLogin:
    """As a login of the user here would have revealed it."""
    challenge = Challenge(salt, 4096)
    salted = salt_password(mechanism, PASSWORD, challenge)
    client_key = hmac.digest(salted, b"Client Key", HASHES[mechanism])
    return ScramKeyLogin(mechanism, USER, Secret(client_key.hex()), credential_of(mechanism, salted, challenge))


@in_loop
async def test_scram_without_a_password_where_the_broker_keeps_the_same_of_the_user() -> None:
    for mechanism in HASHES:
        login = key_login(mechanism)
        known = Authenticator(settings((), 1), login)
        assert (known.mechanism, known.username, known.identity) == (mechanism, USER, login.identity)
        server = scram_server(mechanism)
        assert await known.authenticate(server.call, VERSION) == LIFETIME_S
        assert login.client_key.reveal() not in repr(login)


@in_loop
async def test_and_where_it_keeps_something_else_that_is_told() -> None:
    other = Authenticator(settings((), 1), key_login("SCRAM-SHA-512", b"other" * 4))
    with pytest.raises(AuthenticationFailed, match="forebay users add"):
        await other.authenticate(scram_server("SCRAM-SHA-512").call, VERSION)


@in_loop
async def test_a_password_that_a_client_has_not_presented_itself() -> None:
    login = PasswordLogin("SCRAM-SHA-512", USER, Secret(PASSWORD))
    assert await Authenticator(settings((), 1), login).authenticate(scram_server("SCRAM-SHA-512").call, VERSION)


def token_server(mechanism: str, known: str = PASSWORD) -> FakeServer:
    """A broker that looks at the proof and not at the name; scramp knows no extensions."""
    name = HASHES[mechanism]
    salt, said = b"salt" * 4, []

    def answer(message: bytes) -> bytes:
        if message.startswith(b"n,,"):
            said.append(message[3:].decode())
            nonce = re.search("r=([^,]*)", said[0])
            assert nonce is not None
            said.append(f"r={nonce[1]}broker,s={b64encode(salt).decode()},i=4096")
            return said[1].encode()
        without, _, proof = message.decode().rpartition(",p=")
        salted = hashlib.pbkdf2_hmac(name, known.encode(), salt, 4096)
        signed = ",".join([*said, without]).encode()
        client_key = hmac.digest(salted, b"Client Key", name)
        signature = hmac.digest(hashlib.new(name, client_key).digest(), signed, name)
        if bytes(a ^ b for a, b in zip(client_key, signature, strict=True)) != b64decode(proof):
            raise PermissionError("the proof is wrong")
        own = hmac.digest(hmac.digest(salted, b"Server Key", name), signed, name)
        return b"v=" + b64encode(own)

    return FakeServer(answer)


class OneToken:
    """Of alice only; `is_new`: brokers may not have heard of it."""

    def __init__(self, password: str = PASSWORD, *, is_new: bool = False) -> None:
        self._token = Token("its-id", Secret(password))
        self._is_new = is_new

    async def of(self, owner: str) -> Token:
        if owner != "alice":
            raise ConnectionError(f"no delegation token for User:{owner}")
        return self._token

    def refused(self, owner: str) -> bool:
        return self._is_new

    def end(self, owner: str) -> None:
        """Nothing is kept."""


@in_loop
async def test_a_token_is_presented_under_its_own_name() -> None:
    server = token_server("SCRAM-SHA-256")
    it = Authenticator(settings((), 1), DelegatedLogin("SCRAM-SHA-256", "alice", OneToken()))
    assert await it.authenticate(server.call, VERSION) == LIFETIME_S
    first = server.heard[0].decode()
    assert first.startswith("n,,n=its-id,r=")
    assert first.endswith(",tokenauth=true")
    assert it.username == "alice"


@in_loop
async def test_a_token_that_is_new_may_only_not_be_known_yet() -> None:
    for is_new, kind in ((True, NotKnownYet), (False, AuthenticationFailed)):
        login = DelegatedLogin("SCRAM-SHA-512", "alice", OneToken("wrong", is_new=is_new))
        with pytest.raises(AuthenticationFailed, match=r"(?i)proof") as error:
            await Authenticator(settings((), 1), login).authenticate(token_server("SCRAM-SHA-512").call, VERSION)
        assert error.type is kind


@in_loop
async def test_that_there_is_no_token_is_told_before_the_broker_is_asked_anything() -> None:
    server = scram_server("SCRAM-SHA-512")
    it = Authenticator(settings((), 1), DelegatedLogin("SCRAM-SHA-512", "bob", OneToken()))
    with pytest.raises(AuthenticationFailed, match="no delegation token for User:bob"):
        await it.authenticate(server.call, VERSION)
    assert server.heard == []


@in_loop
async def test_a_refusal_is_the_brokers_words() -> None:
    with pytest.raises(AuthenticationFailed, match=r"(?i)proof"):
        await authenticator("SCRAM-SHA-512", "wrong").authenticate(scram_server("SCRAM-SHA-512").call, VERSION)


@in_loop
async def test_a_broker_that_does_not_know_the_password_is_no_broker_of_ours() -> None:
    real = scram_server("SCRAM-SHA-512")

    class Impostor(FakeServer):
        def __init__(self) -> None:
            super().__init__(lambda message: real._answer(message) if message.startswith(b"n,,") else b"v=AAAA")

    with pytest.raises(AuthenticationFailed, match="signature is wrong"):
        await authenticator("SCRAM-SHA-512").authenticate(Impostor().call, VERSION)


@in_loop
async def test_a_mechanism_that_the_broker_lacks_is_told_with_those_it_has() -> None:
    server = FakeServer(lambda message: b"", ("GSSAPI", "PLAIN"))
    with pytest.raises(AuthenticationFailed, match="does not offer SCRAM-SHA-256; it has GSSAPI, PLAIN"):
        await authenticator("SCRAM-SHA-256").authenticate(server.call, VERSION)
    assert server.heard == []


@in_loop
async def test_plain() -> None:
    server = FakeServer(lambda message: b"")
    assert await authenticator("PLAIN").authenticate(server.call, VERSION) == LIFETIME_S
    assert server.heard == [f"\0{USER}\0{PASSWORD}".encode()]
