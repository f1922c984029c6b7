"""A byte stream cut into frames, whatever its chunks and whatever its sizes say: against a splitter that sees it whole.

An input: one byte of how it is cut, then the stream.
"""

from __future__ import annotations

from random import Random

from forebay_codecs import header
from forebay_codecs.errors import Malformed
from forebay_codecs.frame import Frame, FrameSplitter, Head, Run
from forebay_codecs.primitives import Reader
from tests.fuzz.corpus import produce_requests
from tests.fuzz.mutation import behind
from tests.fuzz.target import Target

MOST = 5000


def whole(stream: bytes) -> tuple[list[bytes], bool]:
    """The frames that are complete, and whether a size that cannot be comes behind them."""
    found: list[bytes] = []
    at = 0
    while len(stream) - at >= 4:
        size = int.from_bytes(stream[at : at + 4], "big", signed=True)
        if not header.PEEK_SIZE <= size <= MOST:
            return found, True
        if len(stream) - at - 4 < size:
            break
        found.append(stream[at + 4 : at + 4 + size])
        at += 4 + size
    return found, False


def check_frames(data: bytes) -> bool:
    rng = Random(data[0] if data else 0)
    stream = data[1:]
    step = rng.choice((1, 2, 5, 13, 300, 1 << 20))
    splitter = FrameSplitter(header.PEEK_SIZE, MOST)
    found: list[bytes] = []
    run = bytearray()
    malformed = False
    try:
        for at in range(0, len(stream), step):
            splitter.feed(stream[at : at + step])
            while (event := splitter.next_event()) is not None:
                if isinstance(event, Head):
                    if rng.random() < 0.5:
                        splitter.collect()
                    else:
                        splitter.cut_through()
                elif isinstance(event, Frame):
                    found.append(event.data)
                else:
                    assert isinstance(event, Run)
                    run += event.data
                    if event.last:
                        found.append(bytes(run[4:]))
                        run.clear()
    except Malformed:
        malformed = True
    assert (found, malformed) == whole(stream)
    return not malformed


def check_headers(data: bytes) -> bool:
    flexible, data = bool(data and data[0] & 1), data[1:]
    if len(data) < header.PEEK_SIZE:
        return False
    header.peek(data, 0)
    try:
        size = header.response_header_size(data, flexible=flexible)
        assert 4 <= size <= len(data)
        reader = Reader(data, header.PEEK_SIZE)
        header.read_client_id(reader, flexible=flexible)
        assert header.PEEK_SIZE < reader.pos <= len(data)
    except Malformed:
        return False
    return True


def targets() -> list[Target]:
    requests = produce_requests()
    streams = [
        bytes([number]) + b"".join(len(frame).to_bytes(4, "big") + frame for frame in requests[number : number + 5])
        for number in range(0, len(requests), 3)
    ]
    heads = [bytes([number & 1]) + frame[:60] for number, frame in enumerate(requests)]
    return [
        Target("frames", streams, check_frames, behind(1), 0.5),
        Target("headers", heads, check_headers, behind(1), 0.2),
    ]
