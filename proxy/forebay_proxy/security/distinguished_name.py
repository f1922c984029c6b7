"""A certificate's subject as Java writes it, of which Kafka makes a principal: RFC 2253 as X500Principal has it.

    subject: C=DE, O="Ponds, Inc.", CN=till     →     CN=till,O=Ponds\\, Inc.,C=DE
    of two attributes in one set                →     CN=till+UID=7,C=DE
    an attribute that RFC 2253 does not name    →     1.2.840.113549.1.9.1=#16036140623f…

In: the DER form of a certificate. Out: its subject's name; empty where it has none. Raises ValueError for what is no
certificate, for names that Java refuses, and for texts that it garbles.
"""

from __future__ import annotations

import re
from typing import Final

from forebay_proxy.security.der import SEQUENCE, SET, Element, certificate, elements, only

_OBJECT_IDENTIFIER: Final = 0x06
_KEYWORDS: Final = {
    "2.5.4.3": "CN",
    "2.5.4.6": "C",
    "2.5.4.7": "L",
    "2.5.4.8": "ST",
    "2.5.4.9": "STREET",
    "2.5.4.10": "O",
    "2.5.4.11": "OU",
    "0.9.2342.19200300.100.1.1": "UID",
    "0.9.2342.19200300.100.1.25": "DC",
}
_TEXTS: Final = frozenset({0x0C, 0x13, 0x14, 0x16, 0x1B, 0x1E})
"""UTF8String, PrintableString, T61String, IA5String, GeneralString, BMPString: Java takes all of them for UTF-8."""
_SURROGATE: Final = re.compile(rb"\xed[\xa0-\xbf]")
"""No UTF-8 has it. Anything else that is none is taken for U+FFFD as in Java."""
_ESCAPED: Final = ',=+<>#;"\\'
_BLANKS: Final = " \r"


def subject(der: bytes) -> str:
    """Whom the certificate is for."""
    return name(certificate(der).subject.whole)


def name(der: bytes) -> str:
    """Of the DER form of a name: what is last in it is written first."""
    return ",".join(_relative(each) for each in reversed(list(elements(only(der, SEQUENCE).contents))))


def _relative(element: Element) -> str:
    attributes = [_attribute(each) for each in elements(element.contents)]
    if element.tag != SET or not attributes:
        raise ValueError("the certificate's subject is no name")
    return "+".join(attributes)


def _attribute(element: Element) -> str:
    both = list(elements(element.contents))
    if element.tag != SEQUENCE or len(both) != 2 or both[0].tag != _OBJECT_IDENTIFIER:
        raise ValueError("the certificate's subject is no name")
    kind, value = _object_identifier(both[0].contents), both[1]
    if kind not in _KEYWORDS or value.tag not in _TEXTS:
        return f"{_KEYWORDS.get(kind, kind)}=#{value.whole.hex()}"
    if _SURROGATE.search(value.contents):
        raise ValueError("the certificate's subject has halves of characters")
    return f"{_KEYWORDS[kind]}={_escaped(value.contents.decode(errors='replace'))}"


def _object_identifier(contents: bytes) -> str:
    """Example: 55 04 03 → 2.5.4.3."""
    if not contents or contents[-1] & 0x80:
        raise ValueError("the certificate's subject is no name")
    arcs, arc = [], 0
    for byte in contents:
        arc = arc << 7 | byte & 0x7F
        if not byte & 0x80:
            arcs.append(arc)
            arc = 0
    first = min(arcs[0] // 40, 2)
    return ".".join(map(str, (first, arcs[0] - 40 * first, *arcs[1:])))


def _escaped(text: str) -> str:
    """Example: ` a,b ` → `\\ a\\,b\\ `."""
    inner = text.lstrip(_BLANKS)
    before, inner, after = len(text) - len(inner), inner.rstrip(_BLANKS), inner[len(inner.rstrip(_BLANKS)) :]
    escaped = "".join(f"\\{each}" if each in _ESCAPED else each for each in inner).replace("\0", "\\00")
    return "".join(f"\\{each}" for each in text[:before]) + escaped + "".join(f"\\{each}" for each in after)
