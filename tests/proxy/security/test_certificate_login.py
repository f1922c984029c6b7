"""Whom certificates make their owners."""

from __future__ import annotations

import ssl

import pytest
import trustme

from forebay_proxy.security.certificate_login import CertificateLogin
from forebay_proxy.security.client_exchanges import LoginRefused, Proved

AUTHORITY = trustme.CA()


def der(subject: str | None = None) -> bytes:
    leaf = AUTHORITY.issue_cert("a.example", common_name=subject)
    return ssl.PEM_cert_to_DER_cert(leaf.cert_chain_pems[0].bytes().decode())


def test_the_owner_is_who_the_rules_say() -> None:
    login = CertificateLogin("RULE:^CN=([^,]*),.*$/$1/L,DEFAULT")
    assert login.of(der("Till-7")) == Proved("till-7", "")
    assert login.of(der("Till-7")).principal == "User:till-7"
    assert login.of(der()).user.startswith("OU=Testing cert \\#"), "DEFAULT: all of it"


def test_without_a_certificate_it_is_nobody_by_name() -> None:
    assert CertificateLogin("DEFAULT").of(None).principal == "User:ANONYMOUS"


@pytest.mark.parametrize(
    ("rules", "certificate", "why"),
    [
        ("RULE:^CN=nobody.*$/x/", der("till"), "no rule of"),
        ("RULE:^CN=.*$//", der("till"), "names nobody"),
        ("DEFAULT", b"\x30\x00", "certificate"),
    ],
)
def test_whom_no_rule_has_a_name_for_is_refused(rules: str, certificate: bytes, why: str) -> None:
    with pytest.raises(LoginRefused, match=why):
        CertificateLogin(rules).of(certificate)
