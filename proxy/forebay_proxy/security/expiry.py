"""When a certificate expires, read from its DER form (RFC 5280, 4.1): the standard library tells it of CAs only.

    SEQUENCE { SEQUENCE { [0] version?, serial, algorithm, issuer, validity: SEQUENCE { from, until } …

In: certificates that OpenSSL has read. Out: seconds since 1970. Raises ValueError for anything else.
"""

from __future__ import annotations

import re
import ssl
from datetime import UTC, datetime
from typing import Final

_VERSION: Final = 0xA0
_UTC_TIME: Final = 0x17
_BEFORE_VALIDITY: Final = 3
"""Serial, algorithm, issuer."""
_CERTIFICATE: Final = re.compile(
    r"-----BEGIN [A-Z0-9 ]*CERTIFICATE-----.*?-----END [A-Z0-9 ]*CERTIFICATE-----", re.DOTALL
)


def first_expiry(pem: str) -> float:
    """When the first of the certificates in PEM form expires. Raises ValueError, also where there are none."""
    blocks = (
        re.sub(r"(BEGIN|END) [A-Z0-9 ]*CERTIFICATE", r"\1 CERTIFICATE", text) for text in _CERTIFICATE.findall(pem)
    )
    return min(expiry(ssl.PEM_cert_to_DER_cert(block)) for block in blocks)


def expiry(der: bytes) -> float:
    """When one certificate expires. Raises ValueError."""
    try:
        _, certificate, _ = _element(der)
        _, rest, _ = _element(certificate)
        if rest[0] == _VERSION:
            rest = _element(rest)[2]
        for _ in range(_BEFORE_VALIDITY):
            rest = _element(rest)[2]
        _, validity, _ = _element(rest)
        kind, text, _ = _element(_element(validity)[2])
    except IndexError:
        raise ValueError("the certificate is cut short") from None
    year = "%y" if kind == _UTC_TIME else "%Y"
    return datetime.strptime(text.decode("ascii"), f"{year}%m%d%H%M%SZ").replace(tzinfo=UTC).timestamp()


def _element(data: bytes) -> tuple[int, bytes, bytes]:
    """(tag, contents, what follows). Example: 30 03 02 01 05 17 → (0x30, 02 01 05, 17)."""
    length, start = data[1], 2
    if length & 0x80:
        start += length & 0x7F
        length = int.from_bytes(data[2:start], "big")
    if len(data) < start + length:
        raise IndexError
    return data[0], data[start : start + length], data[start + length :]
