"""A file of Kafka's clients: what is taken from it, what is left, and what is refused in one line without a secret."""

from __future__ import annotations

from pathlib import Path

import pytest

from forebay_proxy.errors import StartError
from forebay_proxy.security import pem
from forebay_proxy.security.client_properties import SASL, TLS, read, with_stores_as_text
from tests.kit.certificates import Authority
from tests.kit.sasl import login_line

BOTH = (*TLS, *SASL)
LOGIN = ("security.protocol=SASL_SSL", "sasl.mechanism=PLAIN")


def written(folder: Path, *lines: str, mode: int = 0o600) -> str:
    path = folder / "client.properties"
    path.write_text("\n".join(lines))
    path.chmod(mode)
    return str(path)


def test_of_a_clients_file_only_what_is_wanted_is_read(tmp_path: Path) -> None:
    own = ("ssl.truststore.location=/ca.pem", "ssl.truststore.type=PEM", "ssl.truststore.password=", "acks=all")
    path = written(tmp_path, *LOGIN, *own, "admin.bearer.token=${env:NONE}", "sasl.jaas.config=${env:LOGIN}")
    settings = read(path, BOTH, {"LOGIN": login_line("PLAIN", "canary-1")})
    assert (settings.security_protocol, settings.ssl_truststore_location) == ("SASL_SSL", "/ca.pem")
    assert "canary-1" in settings.sasl_jaas_config.reveal()
    assert "canary" not in repr(settings)
    assert not settings.admin_bearer_token


@pytest.mark.parametrize(
    ("protocol", "without"), [("SASL_SSL", "SSL"), ("SASL_PLAINTEXT", "PLAINTEXT"), ("SSL", "SSL")]
)
def test_who_does_not_log_in_needs_no_login(tmp_path: Path, protocol: str, without: str) -> None:
    path = written(tmp_path, f"security.protocol={protocol}", "sasl.jaas.config=${env:NONE}", "sasl.other=1")
    assert read(path, TLS, {}).security_protocol == without


@pytest.mark.parametrize(
    ("lines", "why"),
    [
        (["security.protocol=tls"], "security.protocol (FILE): must be one of PLAINTEXT"),
        (["ssl.truststore.type=JKS"], "ssl.truststore.type (FILE): must be PEM"),
        (["ssl.trustore.location=/a"], "unknown setting; did you mean ssl.truststore.location?"),
        (["sasl.kerberos.service.name=kafka"], "sasl.kerberos.service.name (FILE): unknown setting"),
        (["ssl.endpoint.identification.algorithm=none"], "must be https or empty"),
        (["security.protocol=SASL_SSL"], "sasl.mechanism (FILE): is required with security.protocol = SASL_SSL"),
        ([LOGIN[0], "sasl.mechanism=GSSAPI"], "sasl.mechanism (FILE): must be PLAIN"),
        (LOGIN, "sasl.jaas.config (FILE): is required with sasl.mechanism = PLAIN"),
        (
            [*LOGIN, f"sasl.jaas.config={login_line('SCRAM-SHA-256', 'canary')}"],
            "is for SCRAM-SHA-256 or SCRAM-SHA-512",
        ),
        (["sasl.login.callback.handler.class=a.B"], "must be org.apache.kafka.common.security.oauthbearer.OAuthBearer"),
        ([*LOGIN, "sasl.jaas.config=canary;"], "must begin with one of Kafka's modules"),
        (["sasl.jaas.config=${env:NONE}"], "NONE, which is not set"),
        (
            ["ssl.truststore.certificates=${env:EMPTY}"],
            "certificates (FILE): refers to something that is empty",
        ),
        (["sasl.jaas.config=${file:/none.properties:x}"], "cannot be read"),
        (["a=\\uXY"], "is no .properties file"),
    ],
)
def test_what_is_wrong_is_one_line(tmp_path: Path, lines: list[str], why: str) -> None:
    path = written(tmp_path, *lines)
    with pytest.raises(StartError) as error:
        read(path, BOTH, {"EMPTY": ""})
    assert why.replace("FILE", path) in str(error.value)
    assert "\n" not in str(error.value)
    assert "canary" not in str(error.value)


def test_a_secret_that_others_can_read_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StartError, match=r"chmod o-rwx") as error:
        read(written(tmp_path, "sasl.jaas.config=canary-1", mode=0o644), SASL)
    assert "canary" not in str(error.value)
    with pytest.raises(StartError, match=r"none: cannot be read: No such file"):
        read(str(tmp_path / "none"), SASL)


def test_stores_as_text(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    own = authority.issue("own", "a.example")
    path = written(tmp_path, f"ssl.truststore.location={authority.pem}", f"ssl.keystore.location={own}")
    settings = with_stores_as_text(read(path, TLS))
    assert (settings.ssl_truststore_location, settings.ssl_keystore_location) == ("", "")
    assert settings.ssl_truststore_certificates == pem.certificates("", authority.pem.read_text())
    assert settings.ssl_keystore_certificate_chain == pem.certificates("", own.read_text())
    assert settings.ssl_keystore_key.reveal() == pem.private_key("", own.read_text())
    assert with_stores_as_text(settings) == settings


def test_stores_that_cannot_serve_are_told(tmp_path: Path) -> None:
    store = tmp_path / "ca.p12"
    store.write_bytes(b"\x30\x82")
    with pytest.raises(StartError, match=r"ca\.p12 is a PKCS12 file, and only PEM is read; convert it"):
        with_stores_as_text(read(written(tmp_path, f"ssl.truststore.location={store}"), TLS))


def test_a_file_without_an_end_is_refused() -> None:
    with pytest.raises(StartError, match=r"^--command-config /dev/zero: cannot be read: it has more than 16 MiB$"):
        read("/dev/zero", TLS)
