"""Contexts: tried before they are used, and what is wrong with them said by the setting's name."""

from __future__ import annotations

import ssl
from functools import partial
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization

from forebay_proxy.config.secret import Secret
from forebay_proxy.errors import StartError
from forebay_proxy.security import pem
from forebay_proxy.security.tls import TlsSettings, client_context, explain, server_context
from tests.kit.certificates import Authority

BOTH = ("TLSv1.2", "TLSv1.3")
PASSWORD = "canary-77a1"


def encrypted(keystore: Path) -> Path:
    """The same with its key encrypted."""
    text = keystore.read_text()
    key = serialization.load_pem_private_key(pem.private_key("", text).encode(), None)
    form, pkcs8 = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    closed = key.private_bytes(form, pkcs8, serialization.BestAvailableEncryption(PASSWORD.encode())).decode()
    keystore.write_text(closed + pem.certificates("", text))
    return keystore


def test_a_store_may_be_text(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    text = authority.issue("a", "a.example").read_text()
    tls = TlsSettings(
        BOTH,
        truststore_certificates=authority.pem.read_text(),
        keystore_certificate_chain=pem.certificates("", text),
        keystore_key=Secret(pem.private_key("", text)),
    )
    assert len(client_context(tls, verify_name=True).get_ca_certs()) == 1
    assert server_context(tls, "required").verify_mode is ssl.CERT_REQUIRED
    assert server_context(tls, "requested").verify_mode is ssl.CERT_OPTIONAL
    assert server_context(tls, "none").verify_mode is ssl.CERT_NONE


def test_the_systems_certificates_are_trusted_where_none_are_given() -> None:
    context = client_context(TlsSettings(BOTH), verify_name=True)
    assert context.verify_mode is ssl.CERT_REQUIRED
    assert context.check_hostname


def test_an_empty_truststore_stands_for_no_authority_and_not_for_the_systems(tmp_path: Path) -> None:
    own, empty = Authority(tmp_path).issue("a", "a.example"), tmp_path / "empty.pem"
    empty.touch()
    tls = TlsSettings(BOTH, truststore_location=str(empty), keystore_location=str(own))
    for make in (partial(client_context, verify_name=True), partial(server_context, client_auth="required")):
        with pytest.raises(StartError, match=r"^ssl\.truststore\.location: there is no certificate in PEM form in it"):
            make(tls)


def test_versions(tmp_path: Path) -> None:
    only = client_context(TlsSettings(("TLSv1.3",)), verify_name=False)
    assert (only.minimum_version, only.maximum_version) == (ssl.TLSVersion.TLSv1_3, ssl.TLSVersion.TLSv1_3)
    assert client_context(TlsSettings(BOTH), verify_name=False).minimum_version is ssl.TLSVersion.TLSv1_2


def test_an_encrypted_key_needs_its_password(tmp_path: Path) -> None:
    path = str(encrypted(Authority(tmp_path).issue("a", "a.example")))
    client_context(TlsSettings(BOTH, keystore_location=path, key_password=Secret(PASSWORD)), verify_name=True)
    with pytest.raises(
        StartError, match=r"p\.ssl\.keystore\.location: the key is encrypted: set p\.ssl\.key\.password"
    ):
        client_context(TlsSettings(BOTH, keystore_location=path, prefix="p."), verify_name=True)
    wrong = TlsSettings(BOTH, keystore_location=path, key_password=Secret(PASSWORD + "x"))
    with pytest.raises(StartError, match=r"location: ssl\.key\.password does not open the key") as error:
        client_context(wrong, verify_name=True)
    assert PASSWORD not in str(error.value)


def test_a_key_of_another_certificate_is_refused(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    own, other = (authority.issue(name, "a.example").read_text() for name in ("own", "other"))
    tls = TlsSettings(
        BOTH, keystore_certificate_chain=pem.certificates("", own), keystore_key=Secret(pem.private_key("", other))
    )
    with pytest.raises(StartError, match=r"ssl\.keystore\.certificate\.chain: the certificate and its key do not work"):
        client_context(tls, verify_name=True)


def test_a_listener_needs_a_certificate() -> None:
    with pytest.raises(StartError, match="needs a certificate"):
        server_context(TlsSettings(BOTH), "none")


def test_certificates_that_are_none_are_refused() -> None:
    broken = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"
    with pytest.raises(StartError, match=r"ssl\.truststore\.certificates: its certificates cannot be read"):
        client_context(TlsSettings(BOTH, truststore_certificates=broken), verify_name=True)


def test_a_damaged_certificate_is_refused_by_the_name_of_its_setting(tmp_path: Path) -> None:
    damaged = bytearray(Authority(tmp_path).pem.read_bytes())
    damaged[damaged.index(b"-----BEGIN") + 60] = 0xC3
    path = tmp_path / "damaged.pem"
    path.write_bytes(damaged)
    with pytest.raises(StartError, match=r"^ssl\.truststore\.location: a certificate in it is damaged"):
        client_context(TlsSettings(BOTH, truststore_location=str(path)), verify_name=True)


def test_an_error_without_tls_is_its_own_text() -> None:
    assert explain(ConnectionResetError("reset")) == "reset"


def test_an_alert_is_told_without_the_version_that_had_it_first() -> None:
    error = ssl.SSLError(1, "[SSL: SSLV3_ALERT_CERTIFICATE_UNKNOWN]")
    error.reason = "SSLV3_ALERT_CERTIFICATE_UNKNOWN"
    assert explain(error) == "TLS: the other side refuses: certificate unknown"
