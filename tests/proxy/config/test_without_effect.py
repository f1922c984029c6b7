"""Settings of security that do nothing are told with the reason; those that do something are not."""

from __future__ import annotations

import pytest

from forebay_proxy.config.without_effect import without_effect
from tests.kit.sasl import login_line
from tests.proxy.config.test_listeners import KEYSTORE, MAP, TWO, settings

LISTEN = "listen=127.0.0.1:19092"
LOGIN = ("sasl.mechanism=PLAIN", "sasl.jaas.config=${env:LINE}")
ENVIRON = {"LINE": login_line("PLAIN", "canary")}
TRUSTED = "ssl.truststore.location=/etc/kafka/ca.pem"


def found(*assignments: str) -> list[tuple[tuple[str, ...], str]]:
    return [(names, why) for names, why in without_effect(settings(*assignments, environ=ENVIRON))]


def test_toward_brokers_tls_and_logins_are_told_apart() -> None:
    assert found(LISTEN, *LOGIN, TRUSTED, "ssl.endpoint.identification.algorithm=") == [
        (
            ("ssl.truststore.location", "ssl.endpoint.identification.algorithm"),
            "security.protocol is PLAINTEXT, and connections to brokers are not encrypted",
        ),
        (
            ("sasl.mechanism", "sasl.jaas.config"),
            "security.protocol is PLAINTEXT, and Forebay does not log in at brokers",
        ),
    ]


@pytest.mark.parametrize(
    ("protocol", "names"),
    [
        ("SSL", ("sasl.mechanism", "sasl.jaas.config")),
        ("SASL_PLAINTEXT", ("ssl.truststore.location",)),
        ("SASL_SSL", None),
    ],
)
def test_what_the_protocol_uses_is_not_told(protocol: str, names: tuple[str, ...] | None) -> None:
    told = found(LISTEN, f"security.protocol={protocol}", *LOGIN, TRUSTED)
    assert [each for each, _ in told] == ([] if names is None else [names])


def test_each_listener_is_looked_at_by_itself() -> None:
    plain = "listener.name.internal.ssl.keystore.location"
    assert found(TWO, MAP, KEYSTORE, f"{plain}=/tls/keystore.pem") == [
        ((plain,), "the security protocol of INTERNAL is PLAINTEXT, and its clients are not encrypted")
    ]


@pytest.mark.parametrize(
    "assignments", [[LISTEN], [TWO, MAP, KEYSTORE], [LISTEN, "ssl.enabled.protocols=TLSv1.2,TLSv1.3"]]
)
def test_where_all_have_an_effect_nothing_is_told(assignments: list[str]) -> None:
    assert found(*assignments) == []
