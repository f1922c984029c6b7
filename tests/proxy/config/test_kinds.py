"""How addresses of listeners are written."""

from __future__ import annotations

from forebay_proxy.config.kinds import ListenerAddress, dotted


def test_an_address_is_written_as_kafka_does() -> None:
    assert str(ListenerAddress("SSL", "0.0.0.0", 9093)) == "SSL://0.0.0.0:9093"
    assert str(ListenerAddress("SSL", "::1", 9093)) == "SSL://[::1]:9093"


def test_a_settings_name_has_dots() -> None:
    assert dotted("ssl_client_auth") == "ssl.client.auth"
