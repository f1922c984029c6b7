"""DER, as certificates are written in it (X.690): element by element; and a certificate's parts (RFC 5280, 4.1).

    SEQUENCE { SEQUENCE { [0] version?, serial, algorithm, issuer, validity, subject, …

In: bytes. Out: elements. Raises ValueError for anything else.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

SEQUENCE: Final = 0x30
SET: Final = 0x31
_VERSION: Final = 0xA0
_LONG_TAG: Final = 0x1F


class Element(NamedTuple):
    """`whole`: with tag and length, as it stands."""

    tag: int
    contents: bytes
    whole: bytes


class Certificate(NamedTuple):
    """What Forebay reads of one."""

    validity: Element
    subject: Element


def elements(data: bytes) -> Iterator[Element]:
    """One after the other. Example: 02 01 05 05 00 → (0x02, 05), (0x05, nothing)."""
    at = 0
    while at < len(data):
        if len(data) < at + 2:
            raise ValueError("the certificate is cut short")
        tag, length, start = data[at], data[at + 1], at + 2
        if tag & _LONG_TAG == _LONG_TAG or length == 0x80:
            raise ValueError("the certificate is not DER")
        if length & 0x80:
            start += length & 0x7F
            length = int.from_bytes(data[at + 2 : start], "big")
        if len(data) < start + length:
            raise ValueError("the certificate is cut short")
        end = start + length
        yield Element(tag, data[start:end], data[at:end])
        at = end


def only(data: bytes, tag: int) -> Element:
    """The one element that is there, of this tag."""
    found = list(elements(data))
    if not found:
        raise ValueError("the certificate is cut short")
    if len(found) != 1 or found[0].tag != tag:
        raise ValueError("the certificate is not what one is")
    return found[0]


def certificate(der: bytes) -> Certificate:
    """Of the DER form of a certificate."""
    signed = next(elements(only(der, SEQUENCE).contents), None)
    parts = list(elements(signed.contents)) if signed is not None else []
    if parts and parts[0].tag == _VERSION:
        del parts[0]
    if len(parts) < 5:
        raise ValueError("the certificate is not what one is")
    return Certificate(parts[3], parts[4])
