"""Brokers' addresses at the end of a response, rewritten while it streams through chunk by chunk.

In: the chunks of one response, from correlation_id on (the size prefix has been sent). Out: the chunks that may go to
the client. Everything passes as received, record bytes are skipped, and only the last section, the response's
NodeEndpoints and tagged fields, is held until complete: it comes after what may be 50 MB of records. Malformed for
wrong bytes or more bytes than the size announced; the filter is unusable afterwards.

The size prefix has left before the addresses are seen, so the section is rewritten to the same length, padded with an
unknown tagged field, which clients of flexible versions skip. If the translated endpoints do not fit, they are
dropped: they are a hint, and a client without it sends a Metadata request.

Where the section begins, and where NodeEndpoints stands in it, each API says for itself: fetch_response.py,
share_responses.py.

Sources: KIP-951, KIP-482.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Generator
from typing import Final

from forebay_codecs.addresses import Translate
from forebay_codecs.errors import Malformed
from forebay_codecs.primitives import Buffer, Writer

MAX_HELD: Final = 1 << 20
"""The largest last section that is held. An endpoint takes some 50 bytes, so there is room for 20,000 brokers."""

PADDING_TAG: Final = 10_000
"""Far above Kafka's own tagged fields, which are numbered from 0; two bytes as a varint."""

_TAGS: Final = 1 << 35
"""As many as a varint of five bytes tells apart."""

Steps = Generator[None, None, None]
"""A walk over a response, which yields whenever the chunk at hand is used up."""


class ResponseFilter(ABC):
    """Lets no broker address of one response through untranslated, and holds no bytes but those of its last section."""

    def __init__(self, version: int, size: int, translate: Translate) -> None:
        """`size` is the value of the size prefix."""
        self._version = version
        self._translate = translate
        self._left = size  # bytes of the response that have not been walked over
        self._data: Buffer = b""
        self._pos = 0
        self._end = 0
        self._held: bytearray | None = None  # the last section, as far as it has come
        self._steps = self._walk()

    @abstractmethod
    def _walk(self) -> Steps:
        """Walk up to the last section."""

    @abstractmethod
    def _rewrite(self, section: bytes) -> bytes:
        """The last section, of the same length, with brokers' addresses translated. Raises Malformed."""

    def feed(self, data: Buffer, start: int, end: int) -> list[bytes | memoryview]:
        """Take data[start:end]; return what may go to the client now, as views of `data` where nothing changes.

        Raises Malformed.
        """
        out: list[bytes | memoryview] = []
        if self._held is None:
            at_last_section = self._advance(data, start, end)
            passed = self._pos if at_last_section else end
            if passed > start:
                out.append(memoryview(data)[start:passed])
            if not at_last_section:
                return out
            if not 0 < self._left <= MAX_HELD:
                raise Malformed(f"tagged fields of {self._left} bytes at the end of a response")
            self._held = bytearray()
            start = passed
        self._left -= end - start
        if self._left < 0:
            raise Malformed(f"{-self._left} bytes behind a response")
        self._held += data[start:end]
        if self._left == 0 and self._held:
            out.append(self._rewrite(bytes(self._held)))
            self._held.clear()
        return out

    def _advance(self, data: Buffer, start: int, end: int) -> bool:
        """Walk over this chunk. True: the last section begins at self._pos; False: it begins in a later chunk."""
        self._data, self._pos, self._end = data, start, end
        try:
            next(self._steps)
        except StopIteration:
            return True
        finally:
            self._data = b""  # do not keep the chunk alive
        return False

    def _skip(self, size: int) -> Steps:
        if size > self._left:
            raise Malformed(f"{size} bytes wanted, {self._left} left of a response")
        self._left -= size
        while size > self._end - self._pos:
            size -= self._end - self._pos
            yield
        self._pos += size

    def _uvarint(self) -> Generator[None, None, int]:
        value = 0
        for shift in range(0, 35, 7):
            if self._left == 0:
                raise Malformed("a response ends inside a varint")
            self._left -= 1
            while self._pos == self._end:
                yield
            byte = self._data[self._pos]
            self._pos += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
        raise Malformed("varint of more than 5 bytes")

    def _compact_size(self) -> Generator[None, None, int]:
        """The number of elements of a compact array, or of bytes of compact records; 0 for null."""
        size = max(0, (yield from self._uvarint()) - 1)
        if size > self._left:
            raise Malformed(f"{size} elements in {self._left} bytes of a response")
        return size

    def _skip_tags(self) -> Steps:
        for _ in range((yield from self._uvarint())):
            yield from self._uvarint()
            yield from self._skip((yield from self._uvarint()))

    def _skip_string(self) -> Steps:
        """A COMPACT_NULLABLE_STRING."""
        yield from self._skip((yield from self._compact_size()))


def padded(fields: list[tuple[int, bytes]], size: int) -> bytes | None:
    """The section of tagged `fields`, padded to `size` bytes; None if it is too long, or 1 or 2 bytes short.

    None, too, where their tags leave none for the padding.

    A padding field takes 2 bytes for its tag, 1 for its length (2 from 128 on), and its zeros. 3 bytes short: no zeros.
    130 short: 127 zeros. 131 short: 127 zeros make 130 and 128 make 132, so an empty padding field precedes one of 125.
    """
    if len(section := _section(fields)) == size:
        return section
    tag = max([PADDING_TAG, *(other + 1 for other, _ in fields)])
    for empty in ([], [(tag, b"")]):
        if tag + len(empty) >= _TAGS:
            return None
        padding = [*fields, *empty, (tag + len(empty), b"")]
        zeros = size - len(_section(padding))
        for longer_length in range(5):  # bytes that the varint of the zeros' count grows by
            if zeros < longer_length:
                break
            padding[-1] = (padding[-1][0], bytes(zeros - longer_length))
            if len(section := _section(padding)) == size:
                return section
    return None


def _section(fields: list[tuple[int, bytes]]) -> bytes:
    writer = Writer()
    writer.tags(fields)
    return writer.getvalue()
