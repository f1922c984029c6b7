"""When certificates expire, as `cryptography` has it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
import trustme
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from forebay_proxy.security.expiry import expiry, in_der, written

AUTHORITY = trustme.CA()
YEARS = (datetime(2031, 2, 28, 23, 59, 59, tzinfo=UTC), datetime(2060, 1, 1, tzinfo=UTC))
"""From 2050 on, another type of ASN.1 holds the time."""


@pytest.mark.parametrize("until", YEARS)
def test_a_certificates_end(until: datetime) -> None:
    pem = AUTHORITY.issue_cert("a.example", not_after=until).cert_chain_pems[0].bytes()
    assert [expiry(each) for each in in_der(pem.decode())] == [until.timestamp()]
    assert written(until.timestamp()) == until.isoformat()


def test_each_of_several_is_told() -> None:
    soon = datetime.now(UTC).replace(microsecond=0) + timedelta(days=1)
    leaf = AUTHORITY.issue_cert("a.example", not_after=soon).cert_chain_pems[0].bytes().decode()
    authority = AUTHORITY.cert_pem.bytes().decode()
    later = x509.load_pem_x509_certificate(authority.encode()).not_valid_after_utc
    assert [expiry(each) for each in in_der(leaf + authority)] == [soon.timestamp(), later.timestamp()]


def test_what_is_no_certificate_is_a_value_error() -> None:
    der = x509.load_pem_x509_certificate(AUTHORITY.cert_pem.bytes()).public_bytes(Encoding.DER)
    for size in range(len(der)):
        with pytest.raises(ValueError, match="cut short"):
            expiry(der[:size])
    assert in_der("nothing") == []
