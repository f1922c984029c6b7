"""Tokens: whose they are, and all the ways in which they are not."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import re
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from jwt.algorithms import get_default_algorithms

from forebay_proxy.security.client_exchanges import LoginRefused
from forebay_proxy.security.jwk_set import JwkSet
from forebay_proxy.security.jwt_validator import MAX_TOKEN, Expected, JwtValidator
from tests.kit.event_loop import in_loop
from tests.kit.issuer import AUDIENCE, ISSUER, Issuer, jwk_of, new_key, pem_of

SKEW_S = 30
EXPECTED = Expected(ISSUER, (AUDIENCE, "other-kafka"), clock_skew_s=SKEW_S)


@pytest.fixture(scope="module")
def issuer() -> Iterator[Issuer]:
    with Issuer() as issuer:
        yield issuer


def validator(issuer: Issuer, expected: Expected = EXPECTED) -> JwtValidator:
    return JwtValidator(JwkSet(issuer.jwks_url, 3600), expected)


def unsigned(header: dict[str, Any], claims: dict[str, Any], sign: Callable[[bytes], bytes] = lambda _: b"") -> str:
    encoded = [base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=") for part in (header, claims)]
    said = b".".join(encoded)
    return (said + b"." + base64.urlsafe_b64encode(sign(said)).rstrip(b"=")).decode()


async def refused(issuer: Issuer, token: str, expected: Expected = EXPECTED) -> str:
    with pytest.raises(LoginRefused) as error:
        await validator(issuer, expected).validate(token)
    assert "canary" not in str(error.value)
    return str(error.value)


@pytest.mark.parametrize("algorithm", ["RS256", "RS512", "PS256", "ES256", "ES384", "ES512", "EdDSA"])
@in_loop
async def test_a_token_of_the_issuer_is_its_users(algorithm: str) -> None:
    with Issuer() as issuer:
        issuer.rotate(algorithm)
        exp = int(time.time()) + 60
        valid = await validator(issuer).validate(issuer.token("alice", exp=exp, aud=["x", "other-kafka"]))
        assert valid == ("alice", float(exp))


@in_loop
async def test_another_claim_may_be_the_user(issuer: Issuer) -> None:
    expected = Expected(ISSUER, (AUDIENCE,), "preferred_username", SKEW_S)
    token = issuer.token("alice", preferred_username=" al ")
    assert (await validator(issuer, expected).validate(token)).user == "al"
    no_sub = issuer.token("alice", sub=7, preferred_username="al")
    assert (await validator(issuer, expected).validate(no_sub)).user == "al"
    assert "MissingRequiredClaim" in await refused(issuer, issuer.token("alice"), expected)


@pytest.mark.parametrize(
    ("claims", "why"),
    [
        ({"aud": "canary"}, "InvalidAudience"),
        ({"aud": []}, "MissingRequiredClaim"),
        ({"aud": None}, "MissingRequiredClaim"),
        ({"aud": {AUDIENCE: 1}}, "InvalidAudience"),
        ({"iss": "https://canary"}, "InvalidIssuer"),
        ({"iss": f"{ISSUER}/"}, "InvalidIssuer"),
        ({"iss": [ISSUER]}, "Invalid"),
        ({"iss": None}, "MissingRequiredClaim"),
        ({"sub": None}, "MissingRequiredClaim"),
        ({"sub": ""}, "is no name"),
        ({"sub": " \t"}, "is no name"),
        ({"sub": 7}, "is no name"),
        ({"sub": ["alice"]}, "is no name"),
        ({"sub": "alice\ud800"}, "is no name"),
        ({"exp": None}, "MissingRequiredClaim"),
        ({"iat": None}, "MissingRequiredClaim"),
        ({"exp": "canary"}, "Decode"),
        ({"exp": str(2**33)}, "is no number"),
        ({"exp": float("nan")}, "Decode|ValueError|Overflow"),
        ({"exp": float("inf")}, "Decode|ValueError|Overflow"),
    ],
)
@in_loop
async def test_a_token_that_says_something_else_is_refused(issuer: Issuer, claims: dict[str, Any], why: str) -> None:
    assert re.search(why, await refused(issuer, issuer.token("alice", **claims)))


@in_loop
async def test_time_counts_but_for_the_skew_of_clocks(issuer: Issuer) -> None:
    now, check = int(time.time()), validator(issuer)
    for claim, at in (("exp", now - SKEW_S + 5), ("nbf", now + SKEW_S - 5), ("iat", now + 86_400)):
        await check.validate(issuer.token("alice", None, **{claim: at}))
    assert "ExpiredSignature" in await refused(issuer, issuer.token("alice", exp=now - SKEW_S - 1))
    assert "ImmatureSignature" in await refused(issuer, issuer.token("alice", nbf=now + SKEW_S + 30))


@in_loop
async def test_a_token_without_a_signature_is_refused(issuer: Issuer) -> None:
    for algorithm in ("none", "None", "NONE", ""):
        token = unsigned({"alg": algorithm, "kid": "1"}, issuer.claims("alice"))
        assert "no key of the issuer" in await refused(issuer, token)


@in_loop
async def test_a_token_signed_with_the_public_key_as_a_secret_is_refused(issuer: Issuer) -> None:
    """Who checks signatures by the algorithm that the token names would take it."""
    for secret in (pem_of(issuer.key), json.dumps(issuer.keys[0]).encode()):
        for algorithm in ("HS256", "ES256"):
            header = {"alg": algorithm, "kid": "1"}
            sign = lambda said, secret=secret: hmac.digest(secret, said, hashlib.sha256)  # noqa: E731
            await refused(issuer, unsigned(header, issuer.claims("alice"), sign))


@in_loop
async def test_a_key_that_the_token_brings_along_is_not_looked_at(issuer: Issuer) -> None:
    """jwk has the key, jku and x5u say where it is; it is not one of the issuer's."""
    with Issuer() as other:
        brought = {"jwk": jwk_of(other.key, "ES256"), "jku": other.jwks_url, "x5u": other.jwks_url}
        token = other.token("alice", {**brought, "kid": "1"})
        assert "InvalidSignature" in await refused(issuer, token)
        token = other.token("alice", {**brought, "kid": "unknown"})
        assert "no key of the issuer" in await refused(issuer, token)
        assert other.jwks_asked == 0


@in_loop
async def test_a_token_that_was_changed_is_refused(issuer: Issuer) -> None:
    header, _, signature = issuer.token("alice").split(".")
    claims = base64.urlsafe_b64encode(json.dumps(issuer.claims("bob")).encode()).rstrip(b"=").decode()
    assert "InvalidSignature" in await refused(issuer, f"{header}.{claims}.{signature}")


@in_loop
async def test_a_key_is_used_with_its_own_algorithms_only() -> None:
    with Issuer() as issuer:
        issuer.rotate("RS256")
        issuer.keys[-1]["alg"] = "RS512"
        assert "no key of the issuer" in await refused(issuer, issuer.token("alice"))
        issuer.key = new_key("RS256")
        issuer.keys = [jwk_of(issuer.key, "RS256", kid="2")]
        signs = get_default_algorithms()["RS256"]
        header = {"alg": "PS256", "kid": "2"}
        token = unsigned(header, issuer.claims("alice"), lambda said: signs.sign(said, issuer.key))
        assert "InvalidSignature" in await refused(issuer, token)


@pytest.mark.parametrize(
    "token",
    [
        "",
        "canary",
        "a.b",
        "a.b.c",
        "..",
        "é.b.c",
        base64.urlsafe_b64encode(b"[" * 60_000).decode() + ".b.c",
        base64.urlsafe_b64encode(b'{"alg":' * 9_000).decode() + ".b.c",
        unsigned({"alg": ["ES256"]}, {}),
        unsigned({"alg": "ES256", "kid": 7}, {}),
        unsigned({"alg": "ES256", "kid": "1", "crit": ["canary"], "canary": 1}, {}),
        unsigned({"alg": "ES256", "kid": "1", "b64": False, "crit": ["b64"]}, {}),
    ],
)
@in_loop
async def test_what_is_no_token_is_refused(issuer: Issuer, token: str) -> None:
    await refused(issuer, token)


@in_loop
async def test_a_token_that_is_too_large_is_not_looked_at(issuer: Issuer) -> None:
    token = issuer.token("alice", groups="g" * MAX_TOKEN)
    asked = issuer.jwks_asked
    assert "is larger than 131072 bytes" in await refused(issuer, token)
    assert issuer.jwks_asked == asked
    assert (await validator(issuer).validate(issuer.token("alice", groups="g" * 90_000))).user == "alice"


@in_loop
async def test_a_token_of_a_new_key_is_taken_as_soon_as_the_key_is_told() -> None:
    with Issuer() as issuer:
        now = 0.0
        check = JwtValidator(JwkSet(issuer.jwks_url, 3600, now=lambda: now), EXPECTED)
        await check.validate(issuer.token("alice"))
        issuer.rotate()
        with pytest.raises(LoginRefused, match="no key of the issuer"):
            await check.validate(issuer.token("alice"))
        now += 10
        await check.validate(issuer.token("alice"))
