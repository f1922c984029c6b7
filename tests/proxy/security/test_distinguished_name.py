"""Subjects of certificates as Java writes them. What is expected is what Java said (tests/integration asks it anew)."""

from __future__ import annotations

import pytest
import trustme
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding
from hypothesis import given
from hypothesis import strategies as st

from forebay_proxy.security import distinguished_name
from tests.kit.names import NAMES, TAGS, UTF8, Attribute, element, name


def texts(**values: str) -> list[list[Attribute]]:
    return [[(kind, UTF8, value.encode())] for kind, value in values.items()]


@pytest.mark.parametrize(
    ("relative", "written"),
    [
        ([], ""),
        (texts(C="DE", O="Ponds, Inc.", CN="till"), "CN=till,O=Ponds\\, Inc.,C=DE"),
        (texts(DC="org", OU="a", ST="b", L="c", STREET="d", UID="e"), "UID=e,STREET=d,L=c,ST=b,OU=a,DC=org"),
        ([[("CN", UTF8, b"till"), ("UID", UTF8, b"7")]], "CN=till+UID=7"),
        (texts(CN=' a,=+<>#;"\\b '), 'CN=\\ a\\,\\=\\+\\<\\>\\#\\;\\"\\\\b\\ '),
        (texts(CN="  "), "CN=\\ \\ "),
        (texts(CN=""), "CN="),
        (texts(CN="a\0b"), "CN=a\\00b"),
        (texts(CN="Jürgen 😀"), "CN=Jürgen 😀"),
        (texts(emailAddress="a@b"), "1.2.840.113549.1.9.1=#0c03614062"),
        (texts(serialNumber="7"), "2.5.4.5=#0c0137"),
        ([[("CN", 0x02, b"\x07")]], "CN=#020107"),
        ([[("CN", TAGS["T61"], "é".encode("latin-1"))]], "CN=\ufffd"),
        ([[("CN", TAGS["BMP"], "ab".encode("utf-16-be"))]], "CN=\\00a\\00b"),
        ([[("CN", UTF8, b"a" * 300)]], f"CN={'a' * 300}"),
    ],
)
def test_a_subject_is_written_as_java_writes_it(relative: list[list[Attribute]], written: str) -> None:
    assert distinguished_name.name(name(*relative)) == written


def test_it_is_the_subject_of_a_certificate() -> None:
    leaf = trustme.CA().issue_cert("a.example", common_name="till, 7", organization_name="Ponds")
    der = x509.load_pem_x509_certificate(leaf.cert_chain_pems[0].bytes()).public_bytes(Encoding.DER)
    written = distinguished_name.subject(der)
    assert written.startswith("CN=till\\, 7,")
    assert written.endswith(",O=Ponds")


@pytest.mark.parametrize(
    "der",
    [
        b"",
        b"\x31\x00",
        element(0x30, element(0x31, b"")),
        element(0x30, element(0x30, element(0x30, element(0x06, b"U\x04\x03") + element(UTF8, b"a")))),
        element(0x30, element(0x31, element(0x30, element(0x06, b"U\x04\x03")))),
        element(0x30, element(0x31, element(0x30, element(0x06, b"U\x04\x83") + element(UTF8, b"a")))),
        element(0x30, element(0x31, element(0x30, element(0x06, b"") + element(UTF8, b"a")))),
        name([("CN", UTF8, b"\xed\xa0\x80")]),
        name([("CN", UTF8, b"a")]) + b"\0",
    ],
)
def test_what_is_no_name_is_refused(der: bytes) -> None:
    with pytest.raises(ValueError, match="certificate"):
        distinguished_name.name(der)


@given(der=NAMES | st.binary())
def test_any_name_is_written_or_refused(der: bytes) -> None:
    try:
        distinguished_name.name(der)
    except ValueError:
        pass
