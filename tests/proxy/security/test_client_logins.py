"""Who may log in at a listener, and that it can change while others log in."""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec
import pytest

from forebay_codecs.sasl import bearer, plain
from forebay_codecs.scram import Challenge, ScramClient
from forebay_codecs.scram_credential import ScramCredential
from forebay_proxy.config.kinds import ListenerAddress
from forebay_proxy.config.listeners import ListenerSettings
from forebay_proxy.config.secret import Secret
from forebay_proxy.config.settings import HostPort, Settings
from forebay_proxy.errors import StartError
from forebay_proxy.security.client_exchanges import Exchange, LoginRefused, PlainExchange
from forebay_proxy.security.client_logins import ClientLogins
from forebay_proxy.security.credentials_file import changing
from tests.kit.certificates import Authority, server_context
from tests.kit.event_loop import in_loop
from tests.kit.issuer import AUDIENCE, ISSUER, Issuer
from tests.kit.ports import LOOPBACK
from tests.kit.sasl import MODULES, quoted


def told(**users: str) -> Settings:
    line = " ".join(f"user_{user}={quoted(password)}" for user, password in users.items())
    return Settings(
        bootstrap_servers=(HostPort("b", 9092),),
        listeners=(ListenerAddress("SASL_SSL", "h", 19092),),
        listener_name={
            "sasl_ssl": ListenerSettings(
                client_authentication="terminate",
                upstream_identity="service",
                sasl_enabled_mechanisms=("PLAIN",),
                plain_sasl_jaas_config=Secret(f"{MODULES['PLAIN']} required {line};"),
            )
        },
    )


def logs_in(exchange: Exchange | None, user: str, password: str) -> bool:
    assert exchange is not None
    try:
        return asyncio.run(exchange.step(plain(user, password))).proved is not None
    except LoginRefused:
        return False


def test_mechanisms_that_are_not_there_begin_nothing() -> None:
    settings = told(alice="hers")
    logins = ClientLogins(settings, settings.client_listeners[0])
    assert logins.mechanisms == ("PLAIN",)
    assert logs_in(logins.begin("PLAIN"), "alice", "hers")
    for mechanism in ("plain", "SCRAM-SHA-256", ""):
        assert logins.begin(mechanism) is None


def test_users_come_go_and_change_their_passwords() -> None:
    settings = told(alice="hers", bob="his")
    logins = ClientLogins(settings, settings.client_listeners[0])
    under_way = logins.begin("PLAIN")
    commit = logins.renewable.prepare(told(alice="new", carol="hers"))
    assert logs_in(logins.begin("PLAIN"), "bob", "his"), "what is prepared changes nothing"
    commit()
    assert logs_in(under_way, "bob", "his"), "a login that has begun ends as it began"
    for user, password, gets_in in (
        ("alice", "hers", False),
        ("alice", "new", True),
        ("bob", "his", False),
        ("carol", "hers", True),
    ):
        assert logs_in(logins.begin("PLAIN"), user, password) is gets_in


def test_it_is_made_anew_when_its_settings_files_change() -> None:
    settings = told(alice="hers")
    prefixes = ClientLogins(settings, settings.client_listeners[0]).renewable.prefixes
    assert prefixes == tuple(f"listener.name.sasl_ssl.{name}." for name in ("plain", "scram", "oauthbearer"))


def by_scram(path: Path) -> Settings:
    settings = told(alice="hers")
    own = msgspec.structs.replace(
        settings.listener_name["sasl_ssl"],
        sasl_enabled_mechanisms=("SCRAM-SHA-512", "PLAIN"),
        scram_credentials_location=str(path),
    )
    return msgspec.structs.replace(settings, listener_name={"sasl_ssl": own})


def test_users_of_scram_stand_in_a_file_that_may_change(tmp_path: Path) -> None:
    path = tmp_path / "credentials.json"
    settings = by_scram(path)
    with pytest.raises(StartError, match=r"listener\.name\.sasl_ssl\.scram\.credentials\.location: .* cannot be read"):
        ClientLogins(settings, settings.client_listeners[0])
    with changing("s", str(path)):
        pass
    logins = ClientLogins(settings, settings.client_listeners[0])
    assert isinstance(logins.begin("PLAIN"), PlainExchange)
    assert logins.begin("SCRAM-SHA-256") is None
    before = challenged(logins)
    with changing("s", str(path)) as found:
        found["alice", "SCRAM-SHA-512"] = ScramCredential(b"salt", 4096, b"s" * 64, b"v" * 64)
    assert challenged(logins) == before, "a phantom, the same each time"
    logins.renewable.prepare(settings)()
    assert challenged(logins) == Challenge(b"salt", 4096)


def test_who_is_unknown_is_asked_the_same_wherever_the_file_is_and_whoever_is_added_to_it(tmp_path: Path) -> None:
    path = tmp_path / "credentials.json"
    settings = by_scram(path)
    with changing("s", str(path)):
        pass
    logins = ClientLogins(settings, settings.client_listeners[0])
    before = challenged(logins, "nobody")
    with changing("s", str(path)) as found:
        found["carol", "SCRAM-SHA-512"] = ScramCredential(b"salt", 4096, b"s" * 64, b"v" * 64)
    logins.renewable.prepare(settings)()
    elsewhere = ClientLogins(settings, settings.client_listeners[0])
    assert challenged(logins, "nobody") == challenged(elsewhere, "nobody") == before


def challenged(logins: ClientLogins, user: str = "alice") -> Challenge:
    """With what a user is, whether or not it is known."""
    exchange = logins.begin("SCRAM-SHA-512")
    assert exchange is not None
    client = ScramClient("SCRAM-SHA-512", user, "nonce")
    return client.challenge(asyncio.run(exchange.step(client.first())).token)


def with_tokens(url: str, truststore: str = "/none.pem") -> Settings:
    line = f"{MODULES['OAUTHBEARER']} required ssl.truststore.location={quoted(truststore)};"
    return Settings(
        bootstrap_servers=(HostPort("b", 9092),),
        listeners=(ListenerAddress("SASL_SSL", "h", 19092),),
        listener_name={
            "sasl_ssl": ListenerSettings(
                client_authentication="terminate",
                upstream_identity="service",
                sasl_enabled_mechanisms=("OAUTHBEARER",),
                sasl_oauthbearer_jwks_endpoint_url=url,
                sasl_oauthbearer_expected_issuer=ISSUER,
                sasl_oauthbearer_expected_audience=(AUDIENCE,),
                sasl_oauthbearer_sub_claim_name="name",
                oauthbearer_sasl_jaas_config=Secret(line),
            )
        },
    )


@in_loop
async def test_whoever_has_a_token_of_the_issuer_logs_in() -> None:
    with Issuer() as issuer:
        settings = with_tokens(issuer.jwks_url)
        logins = ClientLogins(settings, settings.client_listeners[0])
        assert logins.begin("PLAIN") is None
        for _ in range(2):
            exchange = logins.begin("OAUTHBEARER")
            assert exchange is not None
            said = await exchange.step(bearer(issuer.token("of no use", name="alice")))
            assert said.proved is not None
            assert said.proved.principal == "User:alice"
        assert issuer.jwks_asked == 1


@in_loop
async def test_the_issuers_keys_stay_known_while_secrets_are_made_anew_and_its_endpoint_is_away() -> None:
    with Issuer() as issuer:
        settings = with_tokens(issuer.jwks_url)
        logins = ClientLogins(settings, settings.client_listeners[0])
        for status in (200, 503):
            issuer.status = status
            logins.renewable.prepare(settings)()
            exchange = logins.begin("OAUTHBEARER")
            assert exchange is not None
            assert (await exchange.step(bearer(issuer.token(name="alice")))).proved is not None


@in_loop
async def test_certificates_for_the_issuer_count_for_the_next_login_once_they_are_made_anew(tmp_path: Path) -> None:
    for name in ("one", "other"):
        (tmp_path / name).mkdir()
    one, other = (Authority(tmp_path / name) for name in ("one", "other"))
    server = server_context(one.issue("issuer", LOOPBACK))
    truststore = tmp_path / "ca.pem"
    truststore.write_bytes(other.pem.read_bytes())
    with Issuer(tls=server) as issuer:
        settings = with_tokens(issuer.jwks_url, str(truststore))
        logins = ClientLogins(settings, settings.client_listeners[0])
        for proved in (False, True):
            exchange = logins.begin("OAUTHBEARER")
            assert exchange is not None
            said = await exchange.step(bearer(issuer.token(name="alice")))
            assert (said.proved is not None) is proved
            truststore.write_bytes(one.pem.read_bytes())
            logins.renewable.prepare(settings)()


def test_certificates_for_the_issuer_that_cannot_be_used_are_told() -> None:
    settings = with_tokens("https://issuer.test/keys")
    with pytest.raises(StartError, match=r"ssl\.truststore\.location: /none\.pem cannot be read"):
        ClientLogins(settings, settings.client_listeners[0])
