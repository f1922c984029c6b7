"""frame.py: frames come out whole or run by run, however their bytes arrive."""

from __future__ import annotations

import itertools
import tracemalloc
from collections.abc import Callable, Iterable, Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forebay_codecs.errors import Malformed
from forebay_codecs.frame import Frame, FrameSplitter, FrameTooLarge, Head, Run

HEAD = 8
LIMIT = 1000

buffer = bytearray(8 * LIMIT)
"""What is lent: the next chunk overwrites it."""

Decision = Callable[[int], bool]
"""Whether the frame of this number is collected."""


def framed(data: bytes) -> bytes:
    return len(data).to_bytes(4, "big") + data


def events(
    splitter: FrameSplitter, chunks: Iterable[bytes], collects: Decision, *, lends: bool = False
) -> Iterator[Head | Frame | Run]:
    """Feed the chunks one by one, or lend them where that is allowed; after each, ask until nothing more comes."""
    numbers = itertools.count()
    for chunk in chunks:
        splitter.keep()
        buffer[: len(chunk)] = chunk
        if lends and not splitter.buffered:
            splitter.lend(memoryview(buffer)[: len(chunk)])
        else:
            splitter.feed(chunk)
        while (event := splitter.next_event()) is not None:
            if isinstance(event, Head):
                (splitter.collect if collects(next(numbers)) else splitter.cut_through)()
            yield event


def transcript(chunks: Iterable[bytes], collects: Decision) -> list[tuple[str, object]]:
    """Events, with the runs of one frame joined: what must not depend on how the bytes arrive."""
    chunks = list(chunks)
    fed, lent = (_transcript(chunks, collects, lends=lends) for lends in (False, True))
    assert fed == lent
    return fed


def _transcript(chunks: Iterable[bytes], collects: Decision, *, lends: bool) -> list[tuple[str, object]]:
    lines: list[tuple[str, object]] = []
    run = bytearray()
    for event in events(FrameSplitter(HEAD, LIMIT), chunks, collects, lends=lends):
        if isinstance(event, Run):
            assert len(event.data) > 0
            run += event.data
            if event.last:
                lines.append(("run", bytes(run)))
                run.clear()
        else:
            assert not run
            lines.append(("head", event) if isinstance(event, Head) else ("frame", event.data))
    if run:
        lines.append(("unfinished run", bytes(run)))
    return lines


def expected(frames: Iterable[bytes], collects: Decision) -> list[tuple[str, object]]:
    lines: list[tuple[str, object]] = []
    for number, frame in enumerate(frames):
        lines.append(("head", Head(len(frame), frame[:HEAD])))
        lines.append(("frame", frame) if collects(number) else ("run", framed(frame)))
    return lines


FRAMES = [b"8 bytes.", b"a frame that is collected or cut", b"third 3rd", bytes(LIMIT)]
STREAM = b"".join(map(framed, FRAMES))
DECISIONS: dict[str, Decision] = {
    "all collected": lambda _: True,
    "all cut through": lambda _: False,
    "in turn": lambda number: number % 2 == 0,
}


@pytest.mark.parametrize("collects", DECISIONS.values(), ids=DECISIONS.keys())
class TestTheSameFramesComeOut:
    def test_whole(self, collects: Decision) -> None:
        assert transcript([STREAM], collects) == expected(FRAMES, collects)

    def test_byte_by_byte(self, collects: Decision) -> None:
        assert transcript((STREAM[at : at + 1] for at in range(len(STREAM))), collects) == expected(FRAMES, collects)

    def test_frame_by_frame(self, collects: Decision) -> None:
        assert transcript(map(framed, FRAMES), collects) == expected(FRAMES, collects)

    def test_cut_anywhere_in_two(self, collects: Decision) -> None:
        for cut in range(len(STREAM) - LIMIT):
            assert transcript([STREAM[:cut], STREAM[cut:]], collects) == expected(FRAMES, collects)

    def test_a_tail_waits_for_its_rest(self, collects: Decision) -> None:
        """Of a frame cut short nothing is told but what is there, and never that it is whole."""
        whole = framed(b"first frame") + framed(b"second frame")
        for cut in range(len(framed(b"first frame")), len(whole)):
            lines = transcript([whole[:cut]], collects)
            assert lines[:2] == expected([b"first frame"], collects)
            rest = whole[len(framed(b"first frame")) : cut]
            if len(rest) < 4 + HEAD:
                assert lines[2:] == []
            else:
                unfinished = [] if collects(1) else [("unfinished run", rest)]
                assert lines[2:] == [("head", Head(12, b"second f")), *unfinished]


@given(
    st.lists(st.binary(min_size=HEAD, max_size=60), max_size=5),
    st.lists(st.booleans(), min_size=5, max_size=5),
    st.lists(st.integers(0, 25), max_size=30),
)
def test_any_frames_any_chunks(frames: list[bytes], collected: list[bool], sizes: list[int]) -> None:
    stream = b"".join(map(framed, frames))
    cuts = [min(cut, len(stream)) for cut in itertools.accumulate(sizes, initial=0)]
    chunks = [stream[start:end] for start, end in itertools.pairwise([*cuts, len(stream)])]
    assert transcript(chunks, collected.__getitem__) == expected(frames, collected.__getitem__)


@given(chunks=st.lists(st.binary(max_size=30), max_size=10), collected=st.booleans())
def test_noise_is_frames_or_malformed(*, chunks: list[bytes], collected: bool) -> None:
    try:
        lines = transcript(chunks, lambda _: collected)
    except Malformed:
        return
    stream = b"".join(chunks)
    told = b"".join(
        framed(data) if kind == "frame" else data for kind, data in lines if kind != "head" and isinstance(data, bytes)
    )
    assert stream.startswith(told)


@pytest.mark.parametrize("size", [-(2**31), -1, 0, HEAD - 1])
def test_a_frame_below_its_head_is_malformed(size: int) -> None:
    splitter = FrameSplitter(HEAD, LIMIT)
    splitter.feed(size.to_bytes(4, "big", signed=True))
    with pytest.raises(Malformed):
        splitter.next_event()


@pytest.mark.parametrize("size", [LIMIT + 1, 2**31 - 1])
def test_a_frame_over_the_limit_is_refused_before_it_arrives(size: int) -> None:
    splitter = FrameSplitter(HEAD, LIMIT)
    splitter.feed(framed(b"12345678") + size.to_bytes(4, "big"))
    assert splitter.next_event() == Head(8, b"12345678")
    splitter.collect()
    assert splitter.next_event() == Frame(b"12345678")
    for _ in range(2):  # and stays refused
        with pytest.raises(FrameTooLarge):
            splitter.next_event()


def test_a_head_wants_an_answer() -> None:
    splitter = FrameSplitter(HEAD, LIMIT)
    splitter.feed(STREAM)
    splitter.next_event()
    with pytest.raises(RuntimeError):
        splitter.next_event()


def test_a_frame_may_be_empty_where_no_head_is_wanted() -> None:
    splitter = FrameSplitter(0, LIMIT)
    assert list(events(splitter, [framed(b"")], lambda _: True)) == [Head(0, b""), Frame(b"")]
    assert list(events(splitter, [framed(b"")], lambda _: False)) == [Head(0, b""), Run(bytes(4), last=True)]


def test_knows_how_much_it_holds() -> None:
    splitter = FrameSplitter(HEAD, LIMIT)
    assert splitter.between_frames
    splitter.feed(STREAM[:5])
    assert (splitter.between_frames, splitter.buffered) == (False, 5)
    splitter.feed(STREAM[5:12])
    assert splitter.next_event() == Head(8, FRAMES[0])
    splitter.cut_through()
    assert splitter.buffered == 12
    assert splitter.next_event() == Run(STREAM[:5], last=False)
    assert (splitter.between_frames, splitter.buffered) == (False, 7)
    assert splitter.next_event() == Run(STREAM[5:12], last=True)
    assert (splitter.between_frames, splitter.buffered) == (True, 0)
    splitter.feed(b"")
    assert splitter.between_frames


def test_knows_how_much_of_a_collected_frame_has_come() -> None:
    splitter = FrameSplitter(HEAD, LIMIT)
    splitter.feed(framed(FRAMES[1])[:20])
    assert splitter.gathered == 0
    splitter.next_event()
    splitter.collect()
    assert splitter.gathered == 20
    splitter.clear()
    assert (splitter.gathered, splitter.buffered, splitter.between_frames) == (0, 0, True)


def test_cutting_through_copies_nothing() -> None:
    splitter = FrameSplitter(HEAD, LIMIT)
    stream = framed(FRAMES[0]) + framed(bytes(LIMIT))
    chunks = [stream[:30], stream[30:]]
    runs = [event.data for event in events(splitter, chunks, lambda _: False) if isinstance(event, Run)]
    assert len(runs) == 3
    owners = [run.obj if isinstance(run, memoryview) else run for run in runs]
    assert list(map(id, owners)) == [id(chunks[0]), id(chunks[0]), id(chunks[1])]


def test_collecting_copies_once() -> None:
    size = 4 << 20
    splitter = FrameSplitter(HEAD, size)
    stream = framed(bytes(size))
    for at in range(0, len(stream), 1 << 16):
        splitter.feed(stream[at : at + (1 << 16)])
    splitter.next_event()
    splitter.collect()
    tracemalloc.start()
    try:
        event = splitter.next_event()
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert event == Frame(bytes(size))
    assert size <= peak < size * 1.25


def test_chunks_of_a_byte_take_little_more_memory_than_they_hold() -> None:
    """A frame of 100 MiB may come so, and stay where it is for long."""
    size = 100_000
    splitter = FrameSplitter(HEAD, size)
    stream = size.to_bytes(4, "big") + bytes(range(250)) * (size // 250)
    tracemalloc.start()
    try:
        for at in range(0, len(stream) - 2, 2):
            splitter.feed(stream[at : at + 2])
            if isinstance(splitter.next_event(), Head):
                splitter.collect()
        taken, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert taken < 2 * size
    splitter.feed(stream[-2:])
    assert splitter.next_event() == Frame(stream[4:])


@pytest.mark.parametrize("collects", [True, False])
def test_frames_shorter_than_the_head_where_they_may_be(*, collects: bool) -> None:
    frames = [b"", b"a", b"7 bytes", b"8 bytes.", b"more than 8"]
    for step in (1, 5, 100):
        splitter = FrameSplitter(HEAD, LIMIT)
        splitter.shortest = 0
        stream = b"".join(map(framed, frames))
        chunks = [stream[at : at + step] for at in range(0, len(stream), step)]
        found = list(events(splitter, chunks, lambda _: collects))
        assert [event for event in found if isinstance(event, Head)] == [
            Head(len(each), each[:HEAD]) for each in frames
        ]
        if collects:
            assert [event.data for event in found if isinstance(event, Frame)] == frames
        else:
            assert b"".join(event.data for event in found if isinstance(event, Run)) == stream
        assert splitter.between_frames
        splitter.feed((-1).to_bytes(4, "big", signed=True))
        with pytest.raises(Malformed):
            splitter.next_event()
        splitter.clear()
        splitter.shortest = HEAD
        splitter.feed(framed(b"7 bytes"))
        with pytest.raises(Malformed):
            splitter.next_event()
