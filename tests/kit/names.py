"""Distinguished names in DER, as a certificate could have them: also such as no tool would make."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from hypothesis import strategies as st

OIDS: Final = {
    "CN": "550403",
    "C": "550406",
    "L": "550407",
    "ST": "550408",
    "STREET": "550409",
    "O": "55040a",
    "OU": "55040b",
    "UID": "0992268993f22c640101",
    "DC": "0992268993f22c640119",
    "serialNumber": "550405",
    "title": "55040c",
    "emailAddress": "2a864886f70d010901",
    "of nobody": "2a8c8080802a8f7f",
    "joint": "8837",
}
UTF8: Final = 0x0C
TAGS: Final = {
    "UTF8": UTF8,
    "Printable": 0x13,
    "T61": 0x14,
    "IA5": 0x16,
    "General": 0x1B,
    "Universal": 0x1C,
    "BMP": 0x1E,
}
Attribute = tuple[str, int, bytes]
"""A key of OIDS, a tag, the value's bytes."""


def element(tag: int, contents: bytes) -> bytes:
    size = len(contents)
    if size < 0x80:
        return bytes((tag, size)) + contents
    length = size.to_bytes((size.bit_length() + 7) // 8, "big")
    return bytes((tag, 0x80 | len(length))) + length + contents


def name(*relative: Sequence[Attribute]) -> bytes:
    """Each of `relative` is a set of attributes."""
    sets = (
        element(
            0x31,
            b"".join(
                element(0x30, element(0x06, bytes.fromhex(OIDS[kind])) + element(tag, value))
                for kind, tag, value in attributes
            ),
        )
        for attributes in relative
    )
    return element(0x30, b"".join(sets))


ODD = st.text(st.sampled_from(' ,=+<>#;"\\\0\r\n\taZ9é€😀\u2028')).map(str.encode)
VALUES = st.one_of(ODD, st.text().map(str.encode), st.binary(max_size=200))
ATTRIBUTES = st.tuples(st.sampled_from(list(OIDS)), st.sampled_from([*TAGS.values(), 0x02, 0x04]), VALUES)
NAMES = st.lists(st.lists(ATTRIBUTES, min_size=1, max_size=3), max_size=4).map(lambda parts: name(*parts))
