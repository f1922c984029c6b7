"""Parts of certificates, as `cryptography` has them."""

from __future__ import annotations

import pytest
import trustme
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding
from hypothesis import given
from hypothesis import strategies as st

from forebay_proxy.security.der import SEQUENCE, Element, certificate, elements, only

AUTHORITY = trustme.CA()


def der(common_name: str = "client") -> bytes:
    pem = AUTHORITY.issue_cert("a.example", common_name=common_name).cert_chain_pems[0].bytes()
    return x509.load_pem_x509_certificate(pem).public_bytes(Encoding.DER)


def test_elements_stand_one_after_the_other() -> None:
    found = list(elements(b"\x02\x01\x05\x05\x00\x04\x81\x01a"))
    assert found == [
        Element(0x02, b"\x05", b"\x02\x01\x05"),
        Element(0x05, b"", b"\x05\x00"),
        Element(0x04, b"a", b"\x04\x81\x01a"),
    ]


def test_the_subject_is_that_of_the_certificate() -> None:
    whole = der()
    assert certificate(whole).subject.whole == x509.load_der_x509_certificate(whole).subject.public_bytes()


def test_a_certificate_that_is_cut_short_is_refused() -> None:
    whole = der()
    for size in range(len(whole)):
        with pytest.raises(ValueError, match="certificate"):
            certificate(whole[:size])


@pytest.mark.parametrize(
    "data", [b"\x1f\x01a", b"\x30\x80\x00\x00", b"\x30", b"\x30\x02a", b"\x30\x84\xff\xff\xff\xffa"]
)
def test_what_is_no_der_is_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match="certificate"):
        list(elements(data))


def test_only_one_element_is_the_only_one() -> None:
    assert only(b"\x30\x00", SEQUENCE).contents == b""
    for data in (b"", b"\x30\x00\x30\x00", b"\x31\x00"):
        with pytest.raises(ValueError, match="certificate"):
            only(data, SEQUENCE)


@given(data=st.binary())
def test_noise_is_read_or_refused(data: bytes) -> None:
    try:
        certificate(data)
    except ValueError:
        pass
