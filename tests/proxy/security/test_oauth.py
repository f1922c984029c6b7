"""Tokens by client credentials: asked for once, given out while they are fresh, and what goes wrong is told."""

from __future__ import annotations

import asyncio
import ssl
from pathlib import Path
from typing import Any

import pytest

from forebay_proxy.config.secret import Secret
from forebay_proxy.errors import StartError
from forebay_proxy.security.authenticator import AuthenticationFailed, Authenticator
from forebay_proxy.security.oauth import ClientCredentials, TokenSource
from tests.kit.app import settings
from tests.kit.certificates import Authority, server_context
from tests.kit.event_loop import in_loop
from tests.kit.ports import LOOPBACK, free_port
from tests.kit.token_endpoint import CLIENT_ID, CLIENT_SECRET, TokenEndpoint
from tests.proxy.security.test_authenticator import VERSION, FakeServer

MODULE = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"


def source(url: str, secret: str = CLIENT_SECRET, scope: str = "") -> TokenSource:
    return TokenSource(ClientCredentials(url, CLIENT_ID, Secret(secret), scope))


@in_loop
async def test_all_who_want_a_token_share_one_until_it_is_no_longer_fresh() -> None:
    async with TokenEndpoint() as endpoint:
        tokens = source(endpoint.url, scope="kafka")
        found = await asyncio.gather(*(tokens.token() for _ in range(5)))
        assert {token.reveal() for token in found} == {"token-1"}
        assert endpoint.asked == [{"grant_type": "client_credentials", "scope": "kafka"}]
        tokens.forget()
        assert (await tokens.token()).reveal() == "token-2"


@in_loop
async def test_a_token_of_unknown_life_is_used_once() -> None:
    async with TokenEndpoint() as endpoint:
        endpoint.expires_in = None
        tokens = source(endpoint.url)
        assert [(await tokens.token()).reveal() for _ in range(2)] == ["token-1", "token-2"]


@pytest.mark.parametrize(("told", "asked"), [("3599", 1), ("soon", 2), ("inf", 2), ("", 2)])
@in_loop
async def test_a_life_that_is_told_as_text_is_read_if_it_is_a_number(told: str, asked: int) -> None:
    async with TokenEndpoint() as endpoint:
        endpoint.expires_in = told
        tokens = source(endpoint.url)
        for _ in range(2):
            await tokens.token()
        assert len(endpoint.asked) == asked


@in_loop
async def test_what_goes_wrong_is_one_line_without_a_secret() -> None:
    async with TokenEndpoint() as endpoint:
        for tokens, changed, why in (
            (source(endpoint.url, "canary-wrong"), {}, "answered 401"),
            (source(endpoint.url), {"status": 503}, "answered 503"),
            (source(endpoint.url), {"status": 200, "body": b'{"access_token": 5, "canary": 1}'}, "without a token"),
            (source(endpoint.url), {"body": b'{"access_token": "\xff"}'}, "without a token"),
            (source(endpoint.url), {"body": b'{"access_token": ' + b"[" * 100_000}, "without a token"),
            (source(f"http://{LOOPBACK}:{free_port()}/token"), {}, "cannot be asked"),
            (source(f"http://{'a' * 64}.test/token"), {}, "cannot be asked"),
        ):
            for name, value in changed.items():
                setattr(endpoint, name, value)
            with pytest.raises(ConnectionError, match=why) as error:
                await tokens.token()
            assert "canary" not in str(error.value)
            assert "\n" not in str(error.value)


@in_loop
async def test_where_the_endpoint_points_to_nobody_is_told_the_secret() -> None:
    async with TokenEndpoint() as endpoint, TokenEndpoint() as other:
        endpoint.status, endpoint.location = 307, other.url
        with pytest.raises(ConnectionError, match="answered 307"):
            await source(endpoint.url).token()
        assert other.asked == []


def bearer(endpoint: TokenEndpoint, **options: str) -> Authenticator:
    """`options` of the login line: underscores stand for dots."""
    written = "".join(f" {name.replace('_', '.')}='{value}'" for name, value in options.items())
    told: dict[str, Any] = {
        "sasl_jaas_config": Secret(f"{MODULE} required{written};"),
        "sasl_oauthbearer_token_endpoint_url": endpoint.url,
        "sasl_oauthbearer_client_credentials_client_id": CLIENT_ID,
        "sasl_oauthbearer_client_credentials_client_secret": Secret(CLIENT_SECRET),
    }
    return Authenticator(settings((), 1, sasl_mechanism="OAUTHBEARER", **told))


@in_loop
async def test_a_broker_takes_the_token() -> None:
    async with TokenEndpoint() as endpoint:
        server = FakeServer(lambda message: b"")
        assert await bearer(endpoint).authenticate(server.call, VERSION) > 0
        assert server.heard == [b"n,,\x01auth=Bearer token-1\x01\x01"]


@in_loop
async def test_a_token_that_is_refused_is_not_presented_again() -> None:
    """The error is told first, with error code 0; the refusal itself follows our answer to it."""
    async with TokenEndpoint() as endpoint:

        def answer(message: bytes) -> bytes:
            if message == b"\x01":
                raise PermissionError("invalid_token")
            return b"" if b"token-2" in message else b'{"status":"invalid_token"}'

        server, known = FakeServer(answer), bearer(endpoint)
        with pytest.raises(AuthenticationFailed, match="invalid_token"):
            await known.authenticate(server.call, VERSION)
        assert server.heard[-1] == b"\x01"
        await known.authenticate(server.call, VERSION)


@in_loop
async def test_a_token_that_cannot_be_had_says_nothing_of_the_broker() -> None:
    async with TokenEndpoint() as endpoint:
        endpoint.status = 503
        server = FakeServer(lambda message: b"")
        with pytest.raises(AuthenticationFailed, match="answered 503"):
            await bearer(endpoint).authenticate(server.call, VERSION)
        assert server.heard == []


@in_loop
async def test_an_endpoint_with_a_certificate_of_ones_own_is_trusted_by_an_option_of_the_login_line(
    tmp_path: Path,
) -> None:
    authority = Authority(tmp_path)
    (tmp_path / "other").mkdir()
    server = FakeServer(lambda message: b"")
    for host, trusted, why in (
        (LOOPBACK, authority.pem, ""),
        (LOOPBACK, None, "TLS: the certificate is not accepted: "),
        (LOOPBACK, Authority(tmp_path / "other").pem, "TLS: the certificate is not accepted: "),
        ("other.example", authority.pem, "TLS: the certificate is not accepted: IP address mismatch"),
    ):
        context = server_context(authority.issue("endpoint", host))
        options = {"ssl_truststore_location": str(trusted)} if trusted is not None else {}
        async with TokenEndpoint(context) as endpoint:
            known = bearer(endpoint, **options, ssl_endpoint_identification_algorithm="")
            if not why:
                assert await known.authenticate(server.call, VERSION) > 0
                assert len(server.heard) == 1
                continue
            with pytest.raises(AuthenticationFailed, match=f"^the token endpoint https://.* cannot be asked: {why}"):
                await known.authenticate(server.call, VERSION)
            assert endpoint.asked == []


@in_loop
async def test_what_is_wrong_with_its_certificates_is_said_with_the_option(tmp_path: Path) -> None:
    endpoint = TokenEndpoint(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER))
    for options, why in (
        ({"ssl_truststore_location": str(tmp_path / "none.pem")}, "ssl.truststore.location: .* cannot be read"),
        ({"ssl_truststore_certificates": ""}, "ssl.truststore.certificates is empty"),
        ({"ssl_enabled_protocols": "SSLv3"}, "ssl.enabled.protocols must be TLSv1.2"),
        ({"ssl_cipher_suites": "NULL"}, "ssl.cipher.suites: NULL is no cipher suite"),
    ):
        with pytest.raises(StartError, match=f"^sasl.jaas.config: its option {why}"):
            bearer(endpoint, **options)
