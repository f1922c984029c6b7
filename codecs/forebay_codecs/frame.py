"""A byte stream cut into frames: size int32, then that many bytes. Used for requests and for responses.

In: chunks as they arrive (`feed`, or `lend` where the bytes stay the caller's). Out, one at a time from `next_event`:
    Head   a frame begins; its first bytes, enough to decide. Answer with `collect()` or `cut_through()`.
    Frame  a collected frame, whole, without its size prefix.
    Run    bytes of a cut-through frame, as received, size prefix included; `last` with its final byte.
    None   nothing more until the next `feed`.
Raises Malformed for a size below `shortest` or above the limit, before anything else of that frame is read.

It pulls rather than pushes, so that a connection that must wait simply stops asking.
A collected frame is copied once, when it is whole; a cut-through frame is never copied. Of what was lent each is copied
once, out of the caller's buffer.
"""

from __future__ import annotations

from collections import deque
from typing import Final, final

from librt.strings import read_i32_be

from forebay_codecs.errors import Malformed

_SIZE: Final = 4
_MANY: Final = 64
_SMALL: Final = 256
_JOINED: Final = 4096
"""Once _MANY chunks are held, one of fewer than _SMALL bytes is appended to the last, up to _JOINED bytes: otherwise a
frame sent a few bytes at a time, each an object of some fifty, would take ten times the memory that its size suggests.
"""


class FrameTooLarge(Malformed):
    """A frame claims more bytes than the limit."""


@final
class Head:
    """A frame begins. `size` excludes the prefix; `start` holds the first `head_size` bytes after it, or fewer."""

    __slots__ = ("size", "start")

    def __init__(self, size: int, start: bytes) -> None:
        self.size = size
        self.start = start

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Head) and (self.size, self.start) == (other.size, other.start)


@final
class Frame:
    """A collected frame: all its bytes, without the size prefix."""

    __slots__ = ("data",)

    def __init__(self, data: bytes) -> None:
        self.data = data

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Frame) and self.data == other.data


@final
class Run:
    """Some bytes of a cut-through frame; `last` if the frame ends with them."""

    __slots__ = ("data", "last")

    def __init__(self, data: bytes | memoryview, *, last: bool) -> None:
        self.data = data
        self.last = last

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Run) and (self.data, self.last) == (other.data, other.last)


Event = Head | Frame | Run


class FrameSplitter:
    """Gives out every byte exactly once and in order, as frames of at most `max_size` bytes, collected or cut through.

    Each Head shows the first `head_size` bytes of its frame, or all that there are. A frame of fewer bytes than
    `shortest`, which is `head_size` until it is set, is Malformed. Sizes exclude the prefix.
    """

    __slots__ = ("_chunks", "_collecting", "_head_size", "_left", "_lent", "_max_size", "_pos", "buffered", "shortest")

    def __init__(self, head_size: int, max_size: int) -> None:
        self._head_size = head_size
        self.shortest = head_size
        self._max_size = max_size
        self._chunks: deque[bytes] = deque()
        self._lent: memoryview | None = None
        """Instead of chunks: what the caller will want back."""
        self._pos = 0
        self._left = 0
        """Bytes of the current frame still to come out, size prefix included; 0 between frames."""
        self._collecting: bool | None = None
        self.buffered = 0
        """Bytes fed and not yet given out."""

    def feed(self, data: bytes) -> None:
        """Take a chunk of any size; `next_event` works on it."""
        if data:
            if len(self._chunks) > _MANY and len(data) < _SMALL and len(self._chunks[-1]) < _JOINED:
                self._chunks[-1] += data
            else:
                self._chunks.append(data)
            self.buffered += len(data)

    def lend(self, data: memoryview) -> None:
        """The same as `feed`, between frames, of a buffer that the caller uses again: `keep` must come before that."""
        if len(data):
            self._lent = data
            self.buffered = len(data)

    def keep(self) -> None:
        """Copy what is left of what was lent."""
        if self._lent is not None:
            data, self._lent = self._lent[self._pos :].tobytes(), None
            self._pos = 0
            self._chunks.append(data)

    def collect(self) -> None:
        """Answer a Head: give this frame out whole, as a Frame."""
        self._collecting = True

    def cut_through(self) -> None:
        """Answer a Head: give this frame out as it arrives, as Runs."""
        self._collecting = False

    @property
    def between_frames(self) -> bool:
        """Every frame that has begun to arrive has been given out whole."""
        return not self._left and not self.buffered

    @property
    def front(self) -> bytes:
        """Up to four bytes that come next: the size that was Malformed, where one was."""
        return self._peek(_SIZE)

    def clear(self) -> None:
        """Drop all bytes: the stream is over, and whoever still holds the splitter should not keep them alive."""
        self._lent = None
        self._chunks.clear()
        self._pos = self._left = self.buffered = 0

    @property
    def gathered(self) -> int:
        """Bytes held of a frame that is being collected."""
        return self.buffered if self._left and self._collecting else 0

    @property
    def missing(self) -> int:
        """Bytes of that frame still to arrive."""
        return self._left - self.buffered if self._left and self._collecting else 0

    def next_event(self) -> Event | None:
        """The next event; None until more is fed.

        Raises Malformed, FrameTooLarge above the limit; RuntimeError if the last Head was not answered.
        """
        if not self._left:
            return self._head()
        if self._collecting:
            if self.buffered < self._left:
                return None
            if self._lent is not None:
                frame = self._take(self._lent, self._left, _SIZE)
            else:
                in_one_chunk = self._left <= len(self._chunks[0]) - self._pos
                frame = self._slice(self._left) if in_one_chunk else self._join(self._left)
            self._left = 0
            self._collecting = None
            return Frame(frame)
        if self._collecting is None:
            raise RuntimeError("collect() or cut_through() must answer a Head")
        if not self.buffered:
            return None
        return self._run()

    def _head(self) -> Head | None:
        wanted = _SIZE + self._head_size
        if self.buffered < _SIZE:
            return None
        if self._lent is not None:
            chunk, pos = self._lent[self._pos : self._pos + wanted].tobytes(), 0
        else:
            chunk, pos = self._chunks[0], self._pos
            if len(chunk) - pos < wanted:
                chunk, pos = self._peek(wanted), 0
        size = read_i32_be(chunk, pos)
        if size < self.shortest:
            raise Malformed(f"a frame of {size} bytes")
        if size > self._max_size:
            raise FrameTooLarge(f"a frame of {size} bytes, at most {self._max_size} are taken")
        if size < self._head_size:
            wanted = _SIZE + size
        if self.buffered < wanted:
            return None
        self._left = _SIZE + size
        self._collecting = None
        return Head(size, chunk[pos + _SIZE : pos + wanted])

    def _peek(self, size: int) -> bytes:
        """Up to `size` bytes from the front, without consuming them."""
        self.keep()
        found = bytearray()
        pos = self._pos
        for chunk in self._chunks:
            found += chunk[pos : pos + size - len(found)]
            pos = 0
            if len(found) == size:
                break
        return bytes(found)

    def _take(self, lent: memoryview, size: int, skip: int) -> bytes:
        """Consume `size` bytes of what is `lent`; return them without the first `skip`."""
        pos = self._pos
        data = lent[pos + skip : pos + size].tobytes()
        self.buffered -= size
        if self.buffered:
            self._pos = pos + size
        else:
            self._lent = None
            self._pos = 0
        return data

    def _slice(self, size: int) -> bytes:
        """Consume a whole frame that lies within one chunk; return it without its size prefix."""
        chunk = self._chunks[0]
        start = self._pos
        frame = chunk[start + _SIZE : start + size]
        self._forward(size)
        return frame

    def _join(self, size: int) -> bytes:
        """Consume a whole frame spread over several chunks; return it without its size prefix."""
        skip = _SIZE
        pieces: list[bytes | memoryview] = []
        while size:
            chunk = self._chunks[0]
            step = min(size, len(chunk) - self._pos)
            if step > skip:
                pieces.append(memoryview(chunk)[self._pos + skip : self._pos + step])
            skip -= min(skip, step)
            self._forward(step)
            size -= step
        return b"".join(pieces)

    def _forward(self, size: int) -> None:
        self.buffered -= size
        self._pos += size
        if self._pos == len(self._chunks[0]):
            self._chunks.popleft()
            self._pos = 0

    def _run(self) -> Run:
        if self._lent is not None:
            step = min(self._left, self.buffered)
            self._left -= step
            return Run(self._take(self._lent, step, 0), last=not self._left)
        chunk = self._chunks[0]
        start = self._pos
        step = min(self._left, len(chunk) - start)
        whole = start == 0 and step == len(chunk)
        run = chunk if whole else memoryview(chunk)[start : start + step]
        self._forward(step)
        self._left -= step
        return Run(run, last=not self._left)
