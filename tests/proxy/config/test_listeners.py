"""Listeners by name: how they are written, what each is told, and what cannot be."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from forebay_proxy.config.kinds import ListenerAddress
from forebay_proxy.config.secret import Secret
from forebay_proxy.config.settings import Settings
from forebay_proxy.config.sources import Problem, SettingsError, Sources, load
from forebay_proxy.process.control import Hello, decode, encode
from tests.proxy.config.test_settings import PARTITIONERS

NEEDED = ("bootstrap.servers=broker:9092",)
TWO = "listeners=INTERNAL://0.0.0.0:19092,EXTERNAL://:19192"
MAP = "listener.security.protocol.map=INTERNAL:PLAINTEXT,EXTERNAL:SSL"
ONE_PORT = ("listeners=PLAINTEXT://h:19092", "listener.name.plaintext.producers.only=true")
LOGINS = "security.protocol=SASL_PLAINTEXT"
KEYSTORE = "listener.name.external.ssl.keystore.location=/tls/keystore.pem"
CHAIN = "listener.name.external.ssl.keystore.certificate.chain"
TRUSTED = "listener.name.external.ssl.truststore"


def settings(*assignments: str, environ: Mapping[str, str] | None = None, config: Path | None = None) -> Settings:
    sources = Sources(str(config) if config else None, environ or {}, (*NEEDED, *assignments))
    return load(sources, PARTITIONERS).settings


def problem(*assignments: str) -> Problem:
    with pytest.raises(SettingsError) as error:
        settings(*assignments)
    (only,) = error.value.problems
    return only


class TestResolved:
    def test_listen_is_one_plaintext_listener(self) -> None:
        (only,) = settings("listen=h:19092", "advertised.host=a", "node.ports=1:19100").client_listeners
        assert (only.name, only.protocol, only.host, only.port) == ("PLAINTEXT", "PLAINTEXT", "h", 19092)
        assert (only.advertised_host, only.node_ports) == ("a", {1: 19100})

    def test_each_listener_has_what_it_was_told_and_the_rest_from_all(self) -> None:
        internal, external = settings(
            TWO,
            MAP,
            KEYSTORE,
            "advertised.host=inside",
            "listener.name.external.advertised.host=outside",
            "listener.name.external.node.ports=7:19300",
            "listener.name.external.node.ports.only=true",
            "listener.name.external.ssl.enabled.protocols=TLSv1.3",
        ).client_listeners
        assert (internal.protocol, internal.port, internal.advertised_host) == ("PLAINTEXT", 19092, "inside")
        assert (external.protocol, external.host, external.port) == ("SSL", "0.0.0.0", 19192)
        assert (external.advertised_host, external.node_ports) == ("outside", {7: 19300})
        assert (internal.told.node_ports_only, external.told.node_ports_only) == (False, True)
        assert external.told.ssl_keystore_location == "/tls/keystore.pem"
        assert external.told.ssl_enabled_protocols == ("TLSv1.3",)
        assert external.setting("node.ports") == "listener.name.external.node.ports"

    def test_each_may_tell_addresses_of_its_own(self) -> None:
        internal, external = settings(
            TWO,
            MAP,
            KEYSTORE,
            "advertised.host=inside",
            "listener.name.internal.advertised.node.ports=1:31001",
            "listener.name.external.advertised.address=b$(node).example.org:443",
        ).client_listeners
        assert [internal.advertised(node, "reached", 19093 + node) for node in (0, 1)] == [
            ("inside", 19093),
            ("inside", 31001),
        ]
        assert external.advertised(12, "reached", 19205) == ("b12.example.org", 443)

    def test_listen_is_told_as_it_was_reached_but_for_its_ports_or_by_a_pattern(self) -> None:
        (ports,) = settings("listen=h:19092", "advertised.node.ports=1:31001").client_listeners
        assert ports.advertised(1, "reached", 19094) == ("reached", 31001)
        (pattern,) = settings("listen=h:19092", "advertised.address=b$(node).forebay:9092").client_listeners
        assert pattern.advertised(3, "reached", 19096) == ("b3.forebay", 9092)

    def test_one_for_producers_only_needs_one_port_and_one_address(self) -> None:
        (only,) = settings("listeners=PLAINTEXT://h:65535", ONE_PORT[1]).client_listeners
        assert only.producers_only
        assert only.advertised(0, "reached", 65535) == ("reached", 65535)
        (told,) = settings(*ONE_PORT, "listener.name.plaintext.advertised.address=forebay:9092").client_listeners
        assert told.advertised(0, "reached", 19092) == ("forebay", 9092)
        (other,) = settings("listeners=PLAINTEXT://h:19092").client_listeners
        assert not other.producers_only

    def test_names_are_not_case_sensitive(self) -> None:
        told = ("listeners=Ssl://h:19092", "listener.name.SSL.ssl.keystore.location=k")
        (only,) = settings(*told).client_listeners
        assert (only.name, only.told.ssl_keystore_location) == ("SSL", "k")

    def test_all_of_it_may_stand_in_variables_and_in_a_file(self, tmp_path: Path) -> None:
        path = tmp_path / "forebay.toml"
        path.write_text(
            'listeners = ["MY_OWN://h:19092", "B://[::1]:19192"]\n'
            '[listener.security.protocol]\nmap = { MY_OWN = "SSL", B = "PLAINTEXT" }\n'
            '[listener.name.b]\n"node.ports" = { 1 = 19300 }\n'
        )
        variables = {
            "FOREBAY_LISTENER_NAME_MY_OWN_SSL_KEYSTORE_LOCATION": "/k.pem",
            "FOREBAY_LISTENER_NAME_MY_OWN_SSL_KEY_PASSWORD": "open sesame",
        }
        now = settings(environ=variables, config=path)
        own, other = now.client_listeners
        assert now.listeners == (ListenerAddress("MY_OWN", "h", 19092), ListenerAddress("B", "::1", 19192))
        assert own.told.ssl_keystore_location == "/k.pem"
        assert own.told.ssl_key_password == Secret("open sesame")
        assert other.node_ports == {1: 19300}

    def test_they_survive_the_way_to_a_worker(self) -> None:
        address = "listener.name.external.advertised.address=b$(node).example.org:443"
        now = settings(TWO, MAP, KEYSTORE, "listener.name.external.node.ports=7:19300", address)
        assert decode(encode(Hello(0, now, ""))) == Hello(0, now, "")


@pytest.mark.parametrize(
    ("assignments", "name", "message"),
    [
        ([], "listen", "is required"),
        (["listen="], "listen", "is required (host:port that clients connect to), unless listeners names one"),
        (["listeners="], "listen", "is required"),
        (["listen=", "listeners="], "listen", "is required"),
        ([TWO], "listener.security.protocol.map", ""),
        (["listeners=SSL:h:19092"], "listeners", "must be NAME://host:port"),
        (["listeners=A B://h:19092"], "listeners", "must be NAME://host:port"),
        ([TWO, KEYSTORE, f"{MAP},EXTERNAL:SSL"], "listener.security.protocol.map", "NAME:PLAINTEXT, NAME:SSL, "),
        (["listeners=SASL_SSL://h:19092", LOGINS], "listener.name.sasl_ssl.ssl.keystore.location", "is required"),
        (["listeners=SASL_PLAINTEXT://h:19092"], "security.protocol", "SASL_PLAINTEXT or SASL_SSL"),
        (
            ["listeners=SASL_PLAINTEXT://h:19092", LOGINS, "listener.name.sasl_plaintext.ssl.client.auth=required"],
            "",
            "needs the security protocol SSL or SASL_SSL",
        ),
        ([TWO, MAP], "listener.name.external.ssl.keystore.location", "is required"),
        ([TWO, MAP, KEYSTORE, "listen=h:19300"], "listen", "together with listeners"),
        ([TWO, MAP, KEYSTORE, "node.ports=1:19300"], "node.ports", "listener.name.<name>.node.ports"),
        ([TWO, MAP, KEYSTORE, "node.ports.only=true"], "node.ports.only", "listener.name.<name>.node.ports.only"),
        (["listen=h:19092", "node.ports.only=true"], "node.ports.only", "needs node.ports"),
        ([TWO, MAP, KEYSTORE, "listener.name.internal.node.ports.only=true"], "", "needs node.ports"),
        (["listen=h:19092", KEYSTORE], "listeners", "is required"),
        ([TWO, MAP, KEYSTORE, "listener.name.dmz.node.ports=1:2"], "listener.name.dmz.*", "no listener DMZ"),
        ([TWO, MAP, KEYSTORE, "listener.name.external.ssl.client.auth=required"], "", "ssl.client.auth=required"),
        ([TWO, MAP, KEYSTORE, "listener.name.internal.ssl.client.auth=required"], "", "needs the security protocol"),
        ([TWO, MAP, KEYSTORE, "listener.name.external.ssl.enabled.protocols=TLSv1.1"], "", "TLSv1.2 and TLSv1.3"),
        ([TWO, MAP, KEYSTORE, "listener.name.external.ssl.client.auth=maybe"], "", "one of none, requested, required"),
        ([TWO, MAP, KEYSTORE, "listener.name.external.ssl.key.password=x"], "", "is a secret"),
        ([TWO, MAP, KEYSTORE, "listener.name.external.ssl.keystore.key=x"], "", "is a secret"),
        ([TWO, MAP, KEYSTORE, f"{CHAIN}=PEM"], CHAIN, "together with ssl.keystore.location"),
        ([TWO, MAP, f"{CHAIN}=PEM"], "listener.name.external.ssl.keystore.key", "need each other"),
        ([TWO, MAP, KEYSTORE, f"{TRUSTED}.location=a", f"{TRUSTED}.certificates=b"], "", "ssl.truststore.location"),
        ([TWO, MAP, KEYSTORE, "listener.name.external.advertised.host=h:1"], "", "without a port"),
        ([TWO, MAP, KEYSTORE, "listener.name.external.lingre.ms=1"], "", "unknown setting"),
        (
            [TWO, MAP, KEYSTORE, "advertised.address=b$(node):1"],
            "advertised.address",
            "listener.name.<name>.advertised",
        ),
        ([TWO, MAP, KEYSTORE, "advertised.node.ports=1:2"], "advertised.node.ports", "listener.name.<name>.advertised"),
        (["listen=h:1", "advertised.host=a", "advertised.address=b$(node):1"], "advertised.address", "advertised.host"),
        (["listen=h:1", "advertised.node.ports=1:2,3:2"], "advertised.node.ports", "two brokers on one port"),
        (
            ["listen=h:1", "advertised.node.ports=1:2", "advertised.address=b$(node):1"],
            "advertised.address",
            "together with advertised.node.ports",
        ),
        (
            [
                TWO,
                MAP,
                KEYSTORE,
                "listener.name.external.advertised.host=a",
                "listener.name.external.advertised.address=b$(node):1",
            ],
            "listener.name.external.advertised.address",
            "together with advertised.host",
        ),
        (
            ["listeners=SASL_PLAINTEXT://h:19092", LOGINS, "listener.name.sasl_plaintext.producers.only=true"],
            "listener.name.sasl_plaintext.producers.only",
            "needs the security protocol PLAINTEXT or SSL",
        ),
        (
            ["listeners=PLAINTEXT://h:19092", "listener.name.plaintext.upstream.identity=client"],
            "listener.name.plaintext.upstream.identity",
            "needs the security protocol SASL_PLAINTEXT or SASL_SSL",
        ),
        (
            ["listeners=SASL_PLAINTEXT://h:19092", LOGINS, "listener.name.sasl_plaintext.upstream.identity=self"],
            "listener.name.sasl_plaintext.upstream.identity",
            "one of passthrough, client",
        ),
        (
            [*ONE_PORT, "listener.name.plaintext.node.ports=1:2"],
            "listener.name.plaintext.node.ports",
            "there is one port",
        ),
        ([*ONE_PORT, "listener.name.plaintext.node.ports.only=true"], "", "together with producers.only"),
        ([*ONE_PORT, "listener.name.plaintext.advertised.node.ports=1:2"], "", "together with producers.only"),
        (
            ["listeners=PLAINTEXT://h:19092", "listener.name.plaintext.advertised.address=forebay:9092"],
            "listener.name.plaintext.advertised.address",
            "with $(node) in the host",
        ),
        (["listeners=PLAINTEXT://h:19092,SSL://h:19092"], "", "taken by PLAINTEXT"),
        ([TWO, MAP, KEYSTORE, "listener.name.external.node.ports=1:19092"], "", "taken by INTERNAL"),
        ([TWO, MAP, KEYSTORE, "admin=127.0.0.1:19192"], "admin", "taken by EXTERNAL"),
    ],
)
def test_what_cannot_be_is_refused_under_its_name(assignments: list[str], name: str, message: str) -> None:
    with pytest.raises(SettingsError) as error:
        settings(*assignments)
    found = [each for each in error.value.problems if name in (each.name, "") and message in each.message]
    assert found, str(error.value)
    assert name or found[0].name.startswith("listener"), str(error.value)


def test_the_same_setting_under_two_spellings_of_a_listeners_name_is_refused() -> None:
    found = problem(TWO, MAP, KEYSTORE, "listener.name.EXTERNAL.ssl.keystore.location=/other.pem")
    assert "set twice" in found.message
