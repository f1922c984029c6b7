"""Cipher suites by Java's names: OpenSSL's own table is the oracle, and handshakes show what is spoken."""

from __future__ import annotations

import re
import ssl
import subprocess
from pathlib import Path

import pytest

from forebay_proxy.errors import StartError
from forebay_proxy.security.cipher_suites import choose
from forebay_proxy.security.tls import TlsContext, TlsSettings, client_context, server_context
from tests.kit.certificates import Authority

SETTING = "p.ssl.cipher.suites"
BOTH = ("TLSv1.2", "TLSv1.3")
TLS_1_3 = ("TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256", "TLS_AES_128_GCM_SHA256")
ECDSA = "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256"
RSA = "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384"


def by_openssl() -> dict[str, str]:
    """IANA's name → OpenSSL's, of all suites of TLS 1.2 that Java has and that are not broken."""
    lines = subprocess.run(["openssl", "ciphers", "-stdname", "-s", "ALL"], check=True, capture_output=True, text=True)
    pairs = re.findall(r"^(TLS_\S+)\s+- (\S+) ", lines.stdout, re.MULTILINE)
    used = re.compile(r"TLS_(ECDHE_ECDSA|ECDHE_RSA|DHE_RSA|RSA)_WITH_(AES_\d+_(GCM|CBC)|CHACHA20)_\w+")
    return {name: own for name, own in pairs if used.fullmatch(name)}


def spoken(context: ssl.SSLContext, version: str) -> list[str]:
    return [each["name"] for each in context.get_ciphers() if (each["protocol"] == "TLSv1.3") == (version == "TLSv1.3")]


def context() -> ssl.SSLContext:
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    made.minimum_version, made.maximum_version = ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3
    return made


def test_every_suite_has_openssls_name() -> None:
    table = by_openssl()
    assert len(table) > 15
    for name, own in table.items():
        it = context()
        choose(it, SETTING, (name,))
        assert spoken(it, "TLSv1.2") == [own], name
        assert it.maximum_version is ssl.TLSVersion.TLSv1_2


def test_their_order_counts_and_versions_without_a_suite_are_not_spoken() -> None:
    it = context()
    choose(it, SETTING, (*TLS_1_3, RSA, ECDSA))
    assert spoken(it, "TLSv1.2") == ["ECDHE-RSA-AES256-GCM-SHA384", "ECDHE-ECDSA-AES128-GCM-SHA256"]
    assert (it.minimum_version, it.maximum_version) == (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3)
    choose(it, SETTING, TLS_1_3)
    assert it.minimum_version is ssl.TLSVersion.TLSv1_3


def test_no_names_change_nothing() -> None:
    it = context()
    before = it.get_ciphers()
    choose(it, SETTING, ())
    assert it.get_ciphers() == before


@pytest.mark.parametrize(
    "name",
    [
        "ECDHE-RSA-AES128-GCM-SHA256",  # OpenSSL's name
        "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA257",
        "TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA256",  # nobody has defined it
        "TLS_RSA_WITH_RC4_128_MD5",
        "ALL",
    ],
)
def test_an_unknown_name_is_named(name: str) -> None:
    with pytest.raises(StartError, match=rf"^p\.ssl\.cipher\.suites: {name} is no cipher suite"):
        choose(context(), SETTING, (ECDSA, name))


def test_suites_of_no_enabled_version_are_refused(tmp_path: Path) -> None:
    for versions, suites in ((("TLSv1.3",), (ECDSA, RSA)), (("TLSv1.2",), TLS_1_3)):
        with pytest.raises(StartError, match="none of them is for the versions in "):
            client_context(TlsSettings(versions, cipher_suites=suites), verify_name=True)


def test_some_of_tls_1_3_are_chosen_where_python_can_and_refused_elsewhere() -> None:
    it = context()
    if hasattr(it, "set_ciphersuites"):
        choose(it, SETTING, TLS_1_3[:1])
        assert spoken(it, "TLSv1.3") == ["TLS_AES_256_GCM_SHA384"]
    else:
        with pytest.raises(StartError, match=r"name TLS_AES_256_GCM_SHA384, .*, or none of them"):
            choose(it, SETTING, TLS_1_3[:1])


def shake_hands(client: TlsContext, server: TlsContext) -> tuple[str, str]:
    """The suite and the version that both agree on."""
    there, back = ssl.MemoryBIO(), ssl.MemoryBIO()
    one, other = client.wrap_bio(back, there, server_hostname="a.example"), server.wrap_bio(there, back, True)
    ends = [one, other]
    while ends:
        for end in list(ends):
            try:
                end.do_handshake()
                ends.remove(end)
            except ssl.SSLWantReadError:
                pass
    agreed = one.cipher()
    assert agreed is not None
    return agreed[0], agreed[1]


def test_both_sides_speak_what_they_are_told(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    keystore = str(authority.issue("own", "a.example"))
    trusted = str(authority.pem)
    server = server_context(TlsSettings(BOTH, keystore_location=keystore, cipher_suites=(ECDSA,)), "none")
    anything = client_context(TlsSettings(BOTH, truststore_location=trusted), verify_name=True)
    assert shake_hands(anything, server) == ("ECDHE-ECDSA-AES128-GCM-SHA256", "TLSv1.2")
    other = client_context(TlsSettings(BOTH, cipher_suites=(RSA,), truststore_location=trusted), verify_name=True)
    with pytest.raises(ssl.SSLError):
        shake_hands(other, server)


def test_suites_that_are_not_for_the_certificate_are_refused(tmp_path: Path) -> None:
    keystore = str(Authority(tmp_path).issue("own", "a.example"))
    tls = TlsSettings(BOTH, keystore_location=keystore, cipher_suites=(RSA,), prefix="p.")
    with pytest.raises(StartError, match=r"p\.ssl\.cipher\.suites: none of them is for the certificate's kind of key"):
        server_context(tls, "none")
    client_context(tls, verify_name=True)  # a client's key is of any kind
