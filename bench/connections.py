"""Many old producers, at little cost: `python -m bench.connections '{…Load as JSON…}'`, a process of its own.

In: a Load. Its connections send Produce v7 requests that were made beforehand, each always to one partition, in one
phase after the other: at a rate (open loop: requests come at random times, whatever the answers do), or, with rate 0,
as fast as answers come (closed loop: one request a connection under way). Out, printed: one Outcome a phase.
An answer that is not exactly what a broker says of appended records ends it with an error.

Latencies of an open loop count from when a request was due, so that neither a load that is late nor a proxy that stops
reading makes them look better. One epoll loop without asyncio: the load shares the cores with what is measured.
"""

from __future__ import annotations

import random
import select
import socket
import struct
import subprocess
import sys
from array import array
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from time import perf_counter, process_time
from typing import Final, NamedTuple

import msgspec

from bench.wire_frames import batch
from bench.wire_load import cpu_seconds, percentile
from forebay_codecs import produce_request
from tests.kit.ports import LOOPBACK

CLIENT_ID: Final = "old-producer"
_VERSION: Final = 7
_DRAIN_SECONDS: Final = 60
_ANSWERS: Final = 1 << 16


class Phase(msgspec.Struct, frozen=True):
    """`rate` in requests/s over all connections; 0: closed loop."""

    seconds: float
    rate: float = 0


class Load(msgspec.Struct, frozen=True):
    """`ports` has the port of each partition's leader. `size` and `value_size`: a batch, see wire_frames.batch.

    `pids` are groups of processes whose CPU time is measured, by a name of the caller's.
    """

    topic: str
    ports: tuple[int, ...]
    connections: int
    phases: tuple[Phase, ...]
    size: int = 0
    value_size: int = 200
    acks: int = 1
    seed: int = 0
    pids: Mapping[str, tuple[int, ...]] = {}


class Outcome(msgspec.Struct, frozen=True):
    """Of one phase. Latencies in ms and `absorbed` are about the requests sent in it, the rest about its time.

    `absorbed`: seconds from the end of the phase until all of them were answered. `cpu`: seconds of each group.
    """

    sent: int
    answered: int
    seconds: float
    average: float
    p50: float
    p99: float
    absorbed: float
    own_cpu: float
    cpu: Mapping[str, float]

    @property
    def rate(self) -> float:
        return self.answered / self.seconds


class _Count:
    """What is known of a phase so far."""

    def __init__(self, load: Load) -> None:
        self._pids = load.pids
        self.sent = 0
        self.answered = 0
        self.waits = array("d")
        self.last_answer = 0.0
        self.began = perf_counter()
        self.ended = 0.0
        self._own = process_time()
        self._cpu = self._cpu_seconds()

    def end(self) -> None:
        self.ended = perf_counter()
        self._own = process_time() - self._own
        self._cpu = {name: cpu - self._cpu[name] for name, cpu in self._cpu_seconds().items()}

    def _cpu_seconds(self) -> dict[str, float]:
        return {name: cpu_seconds(pids) for name, pids in self._pids.items()}

    def outcome(self) -> Outcome:
        waits = [1000 * wait for wait in sorted(self.waits)] or [0.0]
        return Outcome(
            sent=self.sent,
            answered=self.answered,
            seconds=self.ended - self.began,
            average=sum(waits) / len(waits),
            p50=percentile(waits, 0.5),
            p99=percentile(waits, 0.99),
            absorbed=max(0.0, self.last_answer - self.ended),
            own_cpu=self._own,
            cpu=self._cpu,
        )


class _Frame(NamedTuple):
    """A request, how its answer begins, and the size of that answer, prefix included."""

    request: bytes
    good: bytes
    size: int


class _Connection:
    """One socket, the one frame that it sends, and the bytes with which each answer begins."""

    def __init__(self, port: int, frame: _Frame) -> None:
        self._socket = socket.create_connection((LOOPBACK, port))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket.setblocking(False)
        self._frame, self._good, self._size = frame
        self._unsent = bytearray()
        self._received = b""
        self.asked: deque[tuple[float, _Count]] = deque()
        """When each request under way was due, and its phase."""

    def fileno(self) -> int:
        return self._socket.fileno()

    def send(self, due: float, count: _Count) -> None:
        count.sent += 1
        self.asked.append((due, count))
        if self._unsent:
            self._unsent += self._frame
        else:
            self._unsent += self._frame[self._write(self._frame) :]

    def flush(self) -> None:
        """What found no room in the socket before."""
        if self._unsent:
            del self._unsent[: self._write(self._unsent)]

    @property
    def blocked(self) -> bool:
        return bool(self._unsent)

    def _write(self, data: bytes | bytearray) -> int:
        try:
            return self._socket.send(data)
        except BlockingIOError:
            return 0

    def answers(self) -> int:
        """How many have arrived since."""
        data = self._socket.recv(_ANSWERS)
        if not data:
            raise ConnectionError("the connection was closed")
        if self._received:
            data = self._received + data
        size = self._size
        count = len(data) // size
        for start in range(0, count * size, size):
            if not data.startswith(self._good, start):
                raise ConnectionError(f"refused, or not an answer: {data[start : start + size].hex()}")
        self._received = data[count * size :]
        return count


def _frame(load: Load, partition: int) -> _Frame:
    """All answers to it are of one length.

    They are: size, correlation id, 1 topic, its name, 1 partition, its index, no error; then base offset, log append
    time, log start offset, throttle time.
    """
    records = batch(load.size, load.value_size)
    topics = [(load.topic, [(partition, len(records), [records])])]
    request = b"".join(produce_request.encode(_VERSION, 0, CLIENT_ID, load.acks, 30_000, topics))
    name = load.topic.encode()
    good = struct.pack(f">iih{len(name)}siih", 0, 1, len(name), name, 1, partition, 0)
    size = 4 + len(good) + 8 + 8 + 8 + 4
    return _Frame(request, (size - 4).to_bytes(4, "big") + good, size)


class _Run:
    def __init__(self, load: Load) -> None:
        self._load = load
        self._rng = random.Random(load.seed)
        self._epoll = select.epoll()
        to = [(port, _frame(load, partition)) for partition, port in enumerate(load.ports)]
        self._connections = [_Connection(*to[number % len(to)]) for number in range(load.connections)]
        self._by_fd = {connection.fileno(): connection for connection in self._connections}
        self._blocked: set[_Connection] = set()
        self._closed_loop: _Count | None = None
        for fd in self._by_fd:
            self._epoll.register(fd, select.EPOLLIN)

    def outcomes(self) -> Iterator[Outcome]:
        counts = []
        for phase in self._load.phases:
            count = _Count(self._load)
            counts.append(count)
            if phase.rate:
                self._closed_loop = None
                self._open(phase, count)
            else:
                self._closed(phase, count)
            count.end()
        self._closed_loop = None
        deadline = perf_counter() + _DRAIN_SECONDS
        while any(connection.asked for connection in self._connections):
            if perf_counter() > deadline:
                raise TimeoutError(f"not all requests were answered {_DRAIN_SECONDS} s after the last")
            self._look(count, 0.1)
        for count in counts:
            yield count.outcome()

    def _open(self, phase: Phase, count: _Count) -> None:
        rng, connections = self._rng, self._connections
        end = count.began + phase.seconds
        due = count.began + rng.expovariate(phase.rate)
        while (now := perf_counter()) < end:
            while due <= now:
                connection = connections[int(rng.random() * len(connections))]
                connection.send(due, count)
                if connection.blocked:
                    self._block(connection)
                due += rng.expovariate(phase.rate)
            self._look(count, min(due, end) - now)

    def _closed(self, phase: Phase, count: _Count) -> None:
        self._closed_loop = count
        for connection in self._connections:
            if not connection.asked:
                connection.send(perf_counter(), count)
        end = count.began + phase.seconds
        while (now := perf_counter()) < end:
            self._look(count, end - now)

    def _look(self, running: _Count, seconds: float) -> None:
        """Take the answers that are there, or wait for some."""
        # epoll waits whole milliseconds, select microseconds: it watches the epoll descriptor.
        events = self._epoll.poll(0)
        if not events and select.select([self._epoll], [], [], seconds)[0]:
            events = self._epoll.poll(0)
        now = perf_counter()
        again = self._closed_loop
        for fd, event in events:
            connection = self._by_fd[fd]
            if event & select.EPOLLOUT:
                connection.flush()
                if not connection.blocked:
                    self._blocked.discard(connection)
                    self._epoll.modify(fd, select.EPOLLIN)
            if event & ~select.EPOLLOUT:
                asked = connection.asked
                answers = connection.answers()
                for _ in range(answers):
                    due, count = asked.popleft()
                    count.waits.append(now - due)
                    count.last_answer = now
                running.answered += answers
                if again is not None and not asked:
                    connection.send(now, again)

    def _block(self, connection: _Connection) -> None:
        if connection not in self._blocked:
            self._blocked.add(connection)
            self._epoll.modify(connection.fileno(), select.EPOLLIN | select.EPOLLOUT)


def offer(load: Load) -> list[Outcome]:
    """The load from a process of its own, an Outcome for each phase. Raises RuntimeError where it breaks off."""
    command = [sys.executable, "-m", "bench.connections", msgspec.json.encode(load).decode()]
    seconds = sum(phase.seconds for phase in load.phases) + 2 * _DRAIN_SECONDS
    ended = subprocess.run(command, capture_output=True, stdin=subprocess.DEVNULL, timeout=seconds)
    if ended.returncode:
        raise RuntimeError(f"{load} broke off:\n{ended.stderr.decode()}")
    return msgspec.json.decode(ended.stdout, type=list[Outcome])


def main(arguments: Sequence[str]) -> None:
    load = msgspec.json.decode(arguments[0], type=Load)
    print(msgspec.json.encode(list(_Run(load).outcomes())).decode())


if __name__ == "__main__":
    main(sys.argv[1:])
