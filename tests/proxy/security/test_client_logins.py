"""Who may log in at a listener, and that it can change while others log in."""

from __future__ import annotations

import asyncio

import pytest

from forebay_codecs.sasl import plain
from forebay_proxy.config.kinds import ListenerAddress
from forebay_proxy.config.listeners import ListenerSettings
from forebay_proxy.config.secret import Secret
from forebay_proxy.config.settings import HostPort, Settings
from forebay_proxy.security.client_exchanges import Exchange, LoginRefused
from forebay_proxy.security.client_logins import ClientLogins
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


@pytest.mark.parametrize("prefix", ["listener.name.sasl_ssl.plain."])
def test_it_is_made_anew_when_its_settings_files_change(prefix: str) -> None:
    settings = told(alice="hers")
    assert ClientLogins(settings, settings.client_listeners[0]).renewable.prefixes == (prefix,)
