"""Values that stand in files, read again: what has changed is taken, what cannot be used is said in words."""

from __future__ import annotations

from pathlib import Path

import pytest

from forebay_proxy.config.kinds import ListenerAddress
from forebay_proxy.config.listeners import ListenerSettings
from forebay_proxy.config.rereading import LOGINS, TLS, files, reread
from forebay_proxy.config.secret import Secret
from forebay_proxy.config.settings import Settings
from forebay_proxy.config.sources import Sources, load
from forebay_proxy.errors import StartError
from tests.kit.sasl import login_line

ALL = ("",)


def loaded(folder: Path, login: str = login_line("PLAIN", "canary-1"), **changed: str) -> Settings:
    (folder / "login").touch(mode=0o600)
    (folder / "login").write_text(login)
    (folder / "all.properties").touch(mode=0o600)
    (folder / "all.properties").write_text("key.password=canary-2\n")
    given = {
        "bootstrap.servers": "b:9092",
        "listeners": "SSL://127.0.0.1:19092",
        "security.protocol": "SASL_SSL",
        "ssl.truststore.location": "/ca.pem",
        "sasl.mechanism": "PLAIN",
        "sasl.jaas.config": f"${{dir:{folder}:login}}",
        "listener.name.ssl.ssl.keystore.location": "/own.pem",
        "listener.name.ssl.ssl.key.password": f"${{file:{folder}/all.properties:key.password}}",
        **changed,
    }
    return load(Sources(assignments=[f"{name}={value}" for name, value in given.items()]), ["adaptive"]).settings


def test_files_of_a_part_are_its_own(tmp_path: Path) -> None:
    settings = loaded(tmp_path)
    assert files(settings, ("ssl.", "sasl.")) == ("/ca.pem", str(tmp_path / "login"))
    assert files(settings, ("listener.name.ssl.ssl.",)) == ("/own.pem", str(tmp_path / "all.properties"))


def test_stores_of_a_token_endpoint_belong_to_the_login(tmp_path: Path) -> None:
    module = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
    told = {
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.oauthbearer.token.endpoint.url": "https://login.example/token",
        "sasl.oauthbearer.client.credentials.client.id": "forebay",
    }
    login = f"{module} required ssl.truststore.location='/login-ca.pem' scope='a.location';"
    assert files(loaded(tmp_path, login, **told), ("sasl.",)) == ("/login-ca.pem", str(tmp_path / "login"))


def test_stores_of_an_issuers_endpoint_belong_to_its_listeners_logins(tmp_path: Path) -> None:
    module = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
    own = ListenerSettings(
        sasl_enabled_mechanisms=("OAUTHBEARER",),
        oauthbearer_sasl_jaas_config=Secret(f"{module} required ssl.truststore.location='/issuer-ca.pem';"),
    )
    listeners = (ListenerAddress("SASL_SSL", "h", 1), ListenerAddress("SSL", "h", 2))
    settings = Settings(bootstrap_servers=(), listeners=listeners, listener_name={"sasl_ssl": own})
    prefix = "listener.name.sasl_ssl."
    assert files(settings, tuple(prefix + name for name in LOGINS)) == ("/issuer-ca.pem",)
    assert files(settings, tuple(prefix + name for name in TLS)) == ()


def test_what_has_changed_is_taken_where_it_is_asked_for(tmp_path: Path) -> None:
    settings = loaded(tmp_path)
    assert reread(settings, ALL, {}) == settings
    (tmp_path / "login").write_text(login_line("PLAIN", "canary-3"))
    (tmp_path / "all.properties").write_text("key.password=canary-4\n")
    upstream = reread(settings, ("ssl.", "sasl."), {})
    assert upstream.sasl_jaas_config.reveal() == login_line("PLAIN", "canary-3")
    assert upstream.listener_name == settings.listener_name
    both = reread(settings, ALL, {})
    assert both.listener_name["ssl"].ssl_key_password.reveal() == "canary-4"
    assert both.listener_name["ssl"].ssl_keystore_location == "/own.pem"


def test_what_a_reload_changes_stays_until_then(tmp_path: Path) -> None:
    rack = tmp_path / "rack"
    rack.touch(mode=0o600)
    rack.write_text("a")
    settings = loaded(tmp_path, **{"client.rack": f"${{dir:{tmp_path}:rack}}"})
    rack.write_text("b")
    assert reread(settings, ALL, {}).client_rack == "a"


@pytest.mark.parametrize(
    ("file", "text", "why"),
    [
        ("login", "org.apache.kafka.common.security.plain.PlainLoginModule req", "sasl.jaas.config: "),
        ("login", "", "sasl.jaas.config: refers to something that is empty"),
        ("all.properties", "key.pass", "listener.name.ssl.ssl.key.password: refers to key.password in .*no such name"),
    ],
)
def test_what_cannot_be_used_is_named_without_its_contents(tmp_path: Path, file: str, text: str, why: str) -> None:
    settings = loaded(tmp_path)
    (tmp_path / file).write_text(text)
    with pytest.raises(StartError, match=why) as error:
        reread(settings, ALL, {})
    assert "canary" not in str(error.value)
    (tmp_path / file).unlink()
    with pytest.raises(StartError, match="cannot be read: No such file"):
        reread(settings, ALL, {})
