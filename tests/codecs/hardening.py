"""What every decoder of the wire must stand: input cut short, input with a tail, and noise."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import strategies as st

from forebay_codecs.errors import Malformed


def refuses_cuts(decode: Callable[[bytes], object], good: bytes) -> None:
    """`decode` takes `good`, and raises Malformed for each of its prefixes."""
    decode(good)
    for size in range(len(good)):
        with pytest.raises(Malformed):
            decode(good[:size])


def refuses_cuts_and_tails(decode: Callable[[bytes], object], good: bytes) -> None:
    """`decode` takes `good`, and raises Malformed for each of its prefixes and for anything behind it."""
    refuses_cuts(decode, good)
    for tail in (b"\x00", b"\xff", good):
        with pytest.raises(Malformed):
            decode(good + tail)


def refuses_cuts_ignores_tails(decode: Callable[[bytes], object], good: bytes) -> None:
    """`decode` raises Malformed for each prefix of `good`, and overlooks what stands behind it, as Kafka does."""
    refuses_cuts(decode, good)
    for tail in (b"\x00", b"\xff", good):
        assert decode(good + tail) == decode(good)


def refuses_cuts_keeps_tails(rewrite: Callable[[bytes], bytes], good: bytes) -> None:
    """`rewrite` raises Malformed for each prefix of `good`, and passes on what stands behind it."""
    refuses_cuts(rewrite, good)
    for tail in (b"\x00", b"\xff", good):
        assert rewrite(good + tail) == rewrite(good) + tail


def survives(decode: Callable[[bytes], object], data: bytes) -> None:
    """`decode` answers or raises Malformed, nothing else."""
    try:
        decode(data)
    except Malformed:
        pass


@st.composite
def damaged(draw: st.DrawFn, good: bytes) -> bytes:
    """`good` with a few bytes overwritten, left out or put in: noise that gets past the first fields."""
    data = bytearray(good)
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, len(data)))
        taken = draw(st.integers(0, 2))
        data[at : at + taken] = draw(st.binary(max_size=5))
    return bytes(data)
