"""What both clients are told of a file; that they understand it, tests/integration/test_secured_jobs.py shows."""

from __future__ import annotations

from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization

from forebay_pipeline.errors import CannotRun
from forebay_pipeline.journal.security import PLAINTEXT, read_security
from tests.kit.certificates import Authority
from tests.kit.sasl import MODULES, PASSWORD, USER, login_line

TOKENS = (
    "security.protocol=SASL_SSL",
    "sasl.mechanism=OAUTHBEARER",
    "sasl.login.callback.handler.class=org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginCallbackHandler",
    "sasl.oauthbearer.token.endpoint.url=https://issuer.example/token",
)
LINE = f'sasl.jaas.config={MODULES["OAUTHBEARER"]} required clientId="jobs" clientSecret="canary-1";'


def written(folder: Path, *lines: str) -> str:
    path = folder / "client.properties"
    path.touch(mode=0o600)
    path.write_text("\n".join(lines))
    return str(path)


def test_without_a_file_all_is_in_plain_text() -> None:
    assert read_security(None) == PLAINTEXT
    assert (PLAINTEXT.librdkafka, PLAINTEXT.java) == ({}, {})


def test_a_login_and_a_truststore(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    trusted = authority.pem.read_text()
    line = login_line("SCRAM-SHA-512")
    tls = f"ssl.truststore.location={authority.pem}"
    login = ("security.protocol=SASL_SSL", "sasl.mechanism=SCRAM-SHA-512", "sasl.jaas.config=${env:LOGIN}")
    security = read_security(written(tmp_path, *login, tls), {"LOGIN": line})
    assert {**security.librdkafka, "ssl.ca.pem": security.librdkafka["ssl.ca.pem"].strip()} == {
        "security.protocol": "SASL_SSL",
        "ssl.endpoint.identification.algorithm": "https",
        "ssl.ca.pem": trusted.strip(),
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": USER,
        "sasl.password": PASSWORD,
    }
    assert {**security.java, "ssl.truststore.certificates": security.java["ssl.truststore.certificates"].strip()} == {
        "security.protocol": "SASL_SSL",
        "ssl.enabled.protocols": "TLSv1.2,TLSv1.3",
        "ssl.endpoint.identification.algorithm": "https",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.certificates": trusted.strip(),
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.jaas.config": line,
    }
    assert PASSWORD not in repr(security)


def test_tokens_are_got_by_each_client_itself(tmp_path: Path) -> None:
    """Who asks, the settings say or, where they do not, the login line; what the endpoint is trusted by is text."""
    trusted = Authority(tmp_path).pem
    own = ("sasl.oauthbearer.client.credentials.client.id=own", "sasl.oauthbearer.scope=kafka")
    line = f"{LINE[:-1]} scope=all ssl.truststore.location={trusted};"
    for lines, told in ((line,), ("jobs", "all")), ((line, *own), ("own", "kafka")):
        security = read_security(written(tmp_path, *TOKENS, *lines))
        asks = {name: security.librdkafka[f"sasl.oauthbearer.{name}"] for name in ("client.id", "scope")}
        assert tuple(asks.values()) == told
        assert security.librdkafka["sasl.oauthbearer.client.secret"] == "canary-1"
        assert security.librdkafka["https.ca.pem"].strip() == trusted.read_text().strip()
        login = security.java["sasl.jaas.config"]
        assert f'clientId="{told[0]}" clientSecret="canary-1" scope="{told[1]}" ssl.truststore.type="PEM"' in login
        assert str(tmp_path) not in login
        assert security.librdkafka["sasl.mechanism"] == security.java["sasl.mechanism"] == "OAUTHBEARER"
        assert "canary" not in repr(security)


def test_a_certificate_of_ones_own_that_is_checked_against_no_name(tmp_path: Path) -> None:
    own = Authority(tmp_path).issue("own", "a.example")
    lines = ("security.protocol=SSL", f"ssl.keystore.location={own}", "ssl.endpoint.identification.algorithm=")
    security = read_security(written(tmp_path, *lines))
    for told, chain, key in (
        (security.librdkafka, "ssl.certificate.pem", "ssl.key.pem"),
        (security.java, "ssl.keystore.certificate.chain", "ssl.keystore.key"),
    ):
        assert told[chain].count("BEGIN CERTIFICATE") == 2
        assert told[key].startswith("-----BEGIN PRIVATE KEY-----")
    assert security.librdkafka["ssl.endpoint.identification.algorithm"] == "none"
    assert security.java["ssl.endpoint.identification.algorithm"] == ""


def test_cipher_suites_have_names_of_their_own_in_openssl(tmp_path: Path) -> None:
    suites = "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384,TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256"
    security = read_security(written(tmp_path, "security.protocol=SSL", f"ssl.cipher.suites={suites}"))
    assert security.java["ssl.cipher.suites"] == suites
    assert security.librdkafka["ssl.cipher.suites"] == "ECDHE-RSA-AES256-GCM-SHA384:ECDHE-ECDSA-AES128-GCM-SHA256"


def test_what_jobs_cannot_use_is_one_sentence(tmp_path: Path) -> None:
    own = Authority(tmp_path).issue("shown", "a.example")
    for option, why in (
        ("ssl.truststore.location=/none.pem", r"its option ssl\.truststore\.location: /none\.pem cannot be read"),
        (f"ssl.keystore.location={own}", "no certificate of their own for the token endpoint"),
        ('clientSecret=""', r"client\.secret is missing: Kafka's Java client needs one"),
    ):
        with pytest.raises(CannotRun, match=why) as wrong:
            read_security(written(tmp_path, *TOKENS, f"{LINE[:-1]} {option};"))
        assert "canary" not in str(wrong.value)
    with pytest.raises(CannotRun, match=r"ssl\.truststore\.location: /none\.pem cannot be read"):
        read_security(written(tmp_path, "security.protocol=SSL", "ssl.truststore.location=/none.pem"))
    encrypted = Authority(tmp_path).issue("encrypted", "a.example", password="canary-1")
    lines = ("security.protocol=SSL", f"ssl.keystore.location={encrypted}", "ssl.key.password=canary-1")
    with pytest.raises(CannotRun, match="openssl pkcs8 -topk8 -nocrypt") as wrong:
        read_security(written(tmp_path, *lines))
    assert "canary" not in str(wrong.value)


def test_a_key_in_another_form_is_refused_with_the_command_that_converts_it(tmp_path: Path) -> None:
    old = Authority(tmp_path).issue("old", "a.example")
    text = old.read_bytes()
    key = serialization.load_pem_private_key(text, None)
    form, bare = serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption()
    old.write_bytes(text[text.index(b"-----BEGIN CERT") :] + key.private_bytes(serialization.Encoding.PEM, form, bare))
    with pytest.raises(CannotRun, match="openssl pkcs8 -topk8"):
        read_security(written(tmp_path, "security.protocol=SSL", f"ssl.keystore.location={old}"))
