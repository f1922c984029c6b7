"""primitives.py: what a string may be. All else is tested by the messages that are made of it."""

from __future__ import annotations

import pytest

from forebay_codecs.errors import Malformed
from forebay_codecs.primitives import FLEXIBLE, Reader, Writer


def written(size: int, *, flexible: bool) -> Reader:
    """A string of `size` bytes, behind whatever size is written for it."""
    writer = Writer()
    if flexible:
        writer.uvarint(size + 1)
    else:
        writer.i16(size)
    writer.raw(b"x" * size)
    return Reader(writer.getvalue())


@pytest.mark.parametrize("flexible", [False, True])
def test_a_string_may_take_as_many_bytes_as_an_int16_counts(*, flexible: bool) -> None:
    assert written(32_767, flexible=flexible).string(flexible) == "x" * 32_767


@pytest.mark.parametrize("size", [32_768, 40_000])
def test_not_more_where_its_size_is_a_varint(size: int) -> None:
    """What is read in a flexible version may have to be written in one that is not."""
    for read in (Reader.string, Reader.nullable_string):
        with pytest.raises(Malformed):
            read(written(size, flexible=True), FLEXIBLE)
