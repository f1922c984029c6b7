"""When a certificate expires, read from its DER form: the standard library tells it of CAs only.

In: certificates that OpenSSL has read. Out: seconds since 1970. Raises ValueError for anything else.
"""

from __future__ import annotations

import re
import ssl
from datetime import UTC, datetime
from typing import Final

from forebay_proxy.security.der import certificate, elements

SOON_S: Final = 14 * 24 * 3600
"""Two weeks, as the alert has it."""

_UTC_TIME: Final = 0x17
_CERTIFICATE: Final = re.compile(
    r"-----BEGIN [A-Z0-9 ]*CERTIFICATE-----.*?-----END [A-Z0-9 ]*CERTIFICATE-----", re.DOTALL
)


def in_der(pem: str) -> list[bytes]:
    """The DER form of each of the certificates in PEM form, in their order. Raises ValueError."""
    blocks = (
        re.sub(r"(BEGIN|END) [A-Z0-9 ]*CERTIFICATE", r"\1 CERTIFICATE", text) for text in _CERTIFICATE.findall(pem)
    )
    return [ssl.PEM_cert_to_DER_cert(block) for block in blocks]


def expiry(der: bytes) -> float:
    """When one certificate expires. Raises ValueError."""
    _, until = elements(certificate(der).validity.contents)
    year = "%y" if until.tag == _UTC_TIME else "%Y"
    return datetime.strptime(until.contents.decode("ascii"), f"{year}%m%d%H%M%SZ").replace(tzinfo=UTC).timestamp()


def written(expires_at: float) -> str:
    """When that is, for a person."""
    return datetime.fromtimestamp(expires_at, UTC).isoformat()
