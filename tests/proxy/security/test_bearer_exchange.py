"""Logins by OAUTHBEARER, message by message."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from forebay_codecs.errors import Malformed
from forebay_codecs.sasl import BEARER_REFUSED, bearer
from forebay_proxy.security.bearer_exchange import INVALID_TOKEN, BearerExchange
from forebay_proxy.security.client_exchanges import LoginRefused, Proved, Said
from forebay_proxy.security.jwk_set import JwkSet
from forebay_proxy.security.jwt_validator import Expected, JwtValidator
from tests.kit.event_loop import in_loop
from tests.kit.issuer import AUDIENCE, ISSUER, Issuer


@pytest.fixture(scope="module")
def issuer() -> Iterator[Issuer]:
    with Issuer() as issuer:
        yield issuer


def exchange(issuer: Issuer) -> BearerExchange:
    return BearerExchange(JwtValidator(JwkSet(issuer.jwks_url, 3600), Expected(ISSUER, (AUDIENCE,))))


@in_loop
async def test_a_valid_token_is_answered_with_nothing(issuer: Issuer) -> None:
    claims = issuer.claims("alice")
    said = await exchange(issuer).step(bearer(issuer.token("alice", exp=claims["exp"]), [("traceid", "7")]))
    assert said == Said(b"", Proved("alice", "OAUTHBEARER", float(str(claims["exp"]))))


@in_loop
async def test_another_one_with_an_error_and_then_it_is_over(issuer: Issuer) -> None:
    begun = exchange(issuer)
    assert await begun.step(bearer(issuer.token("alice", aud="other"))) == Said(INVALID_TOKEN)
    for said in (BEARER_REFUSED, bearer(issuer.token("alice"))):
        with pytest.raises(LoginRefused, match="InvalidAudience"):
            await begun.step(said)


@in_loop
async def test_nobody_is_somebody_else(issuer: Issuer) -> None:
    token = issuer.token("alice")
    said = await exchange(issuer).step(f"n,a=alice,\x01auth=Bearer {token}\x01\x01".encode())
    assert said.proved is not None
    with pytest.raises(LoginRefused, match="somebody else"):
        await exchange(issuer).step(f"n,a=bob,\x01auth=Bearer {token}\x01\x01".encode())


@in_loop
async def test_what_is_no_login_is_malformed(issuer: Issuer) -> None:
    for token in (b"", BEARER_REFUSED, b"\0alice\0secret"):
        with pytest.raises(Malformed):
            await exchange(issuer).step(token)
