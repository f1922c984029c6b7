"""An issuer's keys: asked for seldom, kept where it does not answer, and none that could sign."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from forebay_proxy.security import jwk_set
from forebay_proxy.security.http_answer import MAX_ANSWER
from forebay_proxy.security.jwk_set import ASK_AGAIN_S, MAX_KEYS, JwkSet
from tests.kit.certificates import Authority, server_context
from tests.kit.event_loop import in_loop, until
from tests.kit.issuer import Issuer, jwk_of, new_key
from tests.kit.ports import LOOPBACK, free_port

REFRESH_S = 3600.0
ES = "ES256"


class Clock:
    def __init__(self) -> None:
        self.now = 1_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def issuer() -> Iterator[Issuer]:
    with Issuer() as issuer:
        yield issuer


@in_loop
async def test_keys_are_asked_for_once_by_all_who_wait(issuer: Issuer) -> None:
    keys = JwkSet(issuer.jwks_url, REFRESH_S)
    found = await asyncio.gather(*(keys.key("1", ES) for _ in range(10)))
    assert {key.key_id for key in found if key is not None} == {"1"}
    assert None not in found
    assert issuer.jwks_asked == 1


@in_loop
async def test_an_unknown_id_has_them_asked_for_again_at_most_every_ten_seconds(issuer: Issuer) -> None:
    clock = Clock()
    keys = JwkSet(issuer.jwks_url, REFRESH_S, now=clock)
    assert await keys.key("1", ES)
    issuer.rotate()
    for _ in range(100):
        assert await keys.key("2", ES) is None
    clock.now += ASK_AGAIN_S - 0.1
    assert await keys.key("invented", ES) is None
    assert issuer.jwks_asked == 1
    clock.now += 0.1
    assert await keys.key("2", ES)
    assert await keys.key("1", ES), "the old one is still told"
    assert await keys.key("invented", ES) is None
    assert issuer.jwks_asked == 2


@in_loop
async def test_a_key_that_is_told_no_more_is_forgotten_with_the_next_look(issuer: Issuer) -> None:
    clock = Clock()
    keys = JwkSet(issuer.jwks_url, REFRESH_S, now=clock)
    assert await keys.key("1", ES)
    issuer.rotate(keep=False)
    clock.now += REFRESH_S
    assert await keys.key("1", ES), "nobody waits while others are asked for"
    await until(lambda: keys._find("2", ES) is not None)
    assert await keys.key("1", ES) is None


@in_loop
async def test_an_outage_leaves_what_is_known(issuer: Issuer) -> None:
    clock = Clock()
    keys = JwkSet(issuer.jwks_url, REFRESH_S, now=clock)
    issuer.status = 500
    assert await keys.key("1", ES) is None
    issuer.status = 200
    assert await keys.key("1", ES) is None, "not at once again"
    clock.now += ASK_AGAIN_S
    assert await keys.key("1", ES)
    issuer.status = 503
    for _ in range(3):
        clock.now += REFRESH_S
        asked = issuer.jwks_asked
        assert await keys.key("1", ES)
        await until(lambda asked=asked: issuer.jwks_asked > asked and keys._asking is None)  # type: ignore[misc]


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (200, b""),
        (200, b"{}"),
        (200, b'{"keys": [1]}'),
        (200, b'{"keys": ' + b"[" * 100_000),
        (200, b'{"keys": [{"kid": "\xff"}]}'),
        (200, b" " * (MAX_ANSWER + 1)),
        (200, json.dumps({"keys": [{}] * (MAX_KEYS + 1)}).encode()),
        (404, b"canary"),
    ],
)
@in_loop
async def test_what_is_no_set_of_keys_is_none(
    issuer: Issuer, status: int, body: bytes, capsys: pytest.CaptureFixture[str]
) -> None:
    keys = JwkSet(issuer.jwks_url, REFRESH_S)
    issuer.status, issuer.body = status, body
    assert await keys.key("1", ES) is None
    told = capsys.readouterr().out
    assert "does not tell its keys" in told
    assert issuer.jwks_url in told
    assert "canary" not in told


@in_loop
async def test_keys_of_where_the_endpoint_points_to_are_not_taken(issuer: Issuer) -> None:
    with Issuer() as other:
        issuer.status, issuer.location = 302, other.jwks_url
        assert await JwkSet(issuer.jwks_url, REFRESH_S).key("1", ES) is None
        assert (issuer.jwks_asked, other.jwks_asked) == (1, 0)


@in_loop
async def test_an_endpoint_that_is_not_there_or_silent_is_told(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert await JwkSet(f"http://{LOOPBACK}:{free_port()}/", REFRESH_S).key("1", ES) is None
    assert "cannot be asked" in capsys.readouterr().out
    monkeypatch.setattr(jwk_set, "TIMEOUT_S", 0.05)
    silent = await asyncio.start_server(lambda *_: asyncio.sleep(0), LOOPBACK, 0)
    async with silent:
        port = silent.sockets[0].getsockname()[1]
        assert await JwkSet(f"http://{LOOPBACK}:{port}/", REFRESH_S).key("1", ES) is None
    assert "did not answer within" in capsys.readouterr().out


@in_loop
async def test_only_keys_that_check_and_cannot_sign_are_taken(issuer: Issuer) -> None:
    weak, strong, curve = new_key("RS256", 1024), new_key("RS256"), new_key("ES384")
    issuer.keys = [
        {"kty": "oct", "kid": "secret", "k": "c2VjcmV0", "alg": "HS256"},
        {"kty": "oct", "kid": "lies", "k": "c2VjcmV0", "alg": "RS256"},
        {"kty": "RSA", "kid": "broken", "n": "!", "e": "AQAB"},
        {"kty": "EC", "kid": "off the curve", "crv": "P-256", "x": "AAAA", "y": "AAAA"},
        {"kty": "EC", "kid": "of no curve", "crv": ["P-256"]},
        {},
        jwk_of(weak, "RS256", kid="weak"),
        jwk_of(strong, "RS256", kid="for encryption", use="enc"),
        jwk_of(strong, "RS256", kid="HMAC with it", alg="HS256"),
        jwk_of(strong, "RS256", kid="any"),
        jwk_of(strong, "RS256", kid="one", alg="PS384"),
        jwk_of(curve, "ES384", kid="curve"),
    ]
    keys = JwkSet(issuer.jwks_url, REFRESH_S)
    await keys.key("any", "RS256")
    assert {key.key_id: sorted(key.algorithms) for key in keys._keys} == {
        "any": ["PS256", "PS384", "PS512", "RS256", "RS384", "RS512"],
        "one": ["PS384"],
        "curve": ["ES384"],
    }
    for algorithm in ("none", "HS256", "ES256", ""):
        assert await keys.key("any", algorithm) is None
        assert await keys.key("curve", algorithm) is None


@in_loop
async def test_without_an_id_the_only_key_counts(issuer: Issuer) -> None:
    keys = JwkSet(issuer.jwks_url, 0.0, now=(clock := Clock()))
    found = await keys.key(None, ES)
    assert found is not None
    issuer.rotate()
    clock.now += ASK_AGAIN_S
    await keys.key("2", ES)
    assert await keys.key(None, ES) is None, "either could be meant"


@in_loop
async def test_over_tls_the_endpoint_must_prove_itself(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    authority = Authority(tmp_path)
    server = server_context(authority.issue("issuer", LOOPBACK))
    with Issuer(tls=server) as issuer:
        assert await JwkSet(issuer.jwks_url, REFRESH_S).key("1", ES) is None
        assert "the certificate is not accepted" in capsys.readouterr().out
        assert await JwkSet(issuer.jwks_url, REFRESH_S, authority.client_context()).key("1", ES)
