"""Instructions that Forebay takes for a request, by path: `python -m bench.instructions [--check]`.

They are counted by valgrind's callgrind. Unlike time they do not depend on who else uses the machine, so a path that
grows by a few percent is seen; but they do on Python's build, the compiler and the libraries.

The load is the same every time: TOGETHER connections send a request each, and the next one when all are answered. The
broker is the sink of wire_sink. Coroutines are not counted, which asyncio runs in `task_step`: no request runs one, and
those that there are run once a second or so, which is the oftener in a run the slower the machine is. A copy counts by
its loads and stores: where glibc has one instruction for all of it (`rep movsb`), callgrind counts each byte.

The table in docs/performance.md is kept; `--check` compares with it instead, and exits with 1 where a path takes more
than TOLERANCE more, if the table is of the same Python and libraries.
"""

from __future__ import annotations

import re
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from bench.report import DOCUMENT, Section, Table, keep, machine
from bench.wire_frames import FRAMES, Kind, frames, refused
from bench.wired import codecs, forebay, relay, sink
from tests.kit.ports import LOOPBACK

NAME: Final = "instructions"
TOLERANCE: Final = 0.05
TOGETHER: Final = 10
WARM_UP: Final = 60
"""Rounds before those that count."""
ROUNDS: Final = 150
START_SECONDS: Final = 300
"""Under callgrind Python starts some thirty times as slowly."""
PATIENCE: Final = 120
NO_COPY_IS_SO_LONG: Final = 100_000_000
LARGE: Final = 16_384
ONE_RECORD: Final = 600
HEAD: Final = ("path", "instructions a request", "× relay")


@dataclass(frozen=True)
class Way:
    """What is sent, through Forebay with `settings`, or through the bare relay."""

    name: str
    kind: Kind
    size: int
    settings: Mapping[str, str] = field(default_factory=dict)
    by_relay: bool = False
    journals: bool = False
    """It writes a journal, into a folder of its own."""


RELAY: Final = Way("a bare relay, 16 KB", "opaque", LARGE, by_relay=True)
WAYS: Final = (
    RELAY,
    Way("opaque, 16 KB", "opaque", LARGE),
    Way("untouched idempotent batch, 16 KB", "idempotent", LARGE),
    Way("opened and merged, 16 KB", "produce", LARGE),
    Way("the same, without enable.idempotence", "produce", LARGE, {"enable_idempotence": "false"}),
    Way("the same, with a journal", "produce", LARGE, journals=True),
    Way("the same, with its ledger, too", "produce", LARGE, {"journal_ledger": "true"}, journals=True),
    Way("one record, merged", "produce", ONE_RECORD),
    Way("the same, without enable.idempotence", "produce", ONE_RECORD, {"enable_idempotence": "false"}),
    Way("a Fetch response, 16 KB", "fetch", LARGE),
)


class Counter:
    """A process under callgrind, whose instructions are counted from `begin` to `end`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.command = (
            "env",
            f"GLIBC_TUNABLES=glibc.cpu.x86_rep_movsb_threshold={NO_COPY_IS_SO_LONG}",
            "valgrind",
            "--tool=callgrind",
            "--instr-atstart=no",
            "--toggle-collect=task_step",
            "--collect-atstart=yes",
            "--log-file=" + str(folder / "valgrind.log"),
            f"--callgrind-out-file={folder / 'counted'}",
        )
        self.pid = 0

    def begin(self) -> None:
        self._control("--zero")

    def on(self) -> None:
        self._control("--instr=on")

    def end(self) -> int:
        self._control("--dump")
        (dump,) = self._folder.glob("counted.*")
        found = re.search(r"^(?:summary|totals): (\d+)", dump.read_text(), re.MULTILINE)
        assert found is not None, f"{dump} has no sum"
        return int(found[1])

    def _control(self, how: str) -> None:
        subprocess.run(["callgrind_control", how, str(self.pid)], check=True, capture_output=True)


@contextmanager
def _started(way: Way, broker: int, counter: Counter, journal: Path) -> Iterator[int]:
    """The port to send to."""
    if way.by_relay:
        with relay(broker, *counter.command) as (port, counter.pid):
            yield port
    else:
        settings = {**way.settings, **({"journal_dir": str(journal)} if way.journals else {})}
        proxy = forebay(broker, *counter.command, **settings)
        with ExitStack() as stack:
            stack.callback(proxy.kill)
            proxy.start(START_SECONDS)
            counter.pid = proxy.pid
            yield proxy.node_port(0)


def _exchange(connections: list[socket.socket], ready: list[bytes], kind: Kind, round_: int) -> None:
    """A request on each connection, and its answer."""
    for number, connection in enumerate(connections):
        connection.sendall(ready[(round_ * TOGETHER + number) % FRAMES])
    for connection in connections:
        size = int.from_bytes(_exactly(connection, 4), "big")
        answer = _exactly(connection, size)
        assert not refused(kind, answer, 0)


def _exactly(connection: socket.socket, size: int) -> bytearray:
    got = bytearray()
    while len(got) < size:
        more = connection.recv(size - len(got))
        assert more, "the connection was closed"
        got += more
    return got


def count(way: Way, rounds: int) -> float:
    """Instructions a request."""
    with tempfile.TemporaryDirectory(prefix="instructions-") as name, sink() as broker, ExitStack() as stack:
        counter = Counter(Path(name))
        port = stack.enter_context(_started(way, broker, counter, Path(name, "journal")))
        connections = []
        for _ in range(TOGETHER):
            connection = stack.enter_context(socket.create_connection((LOOPBACK, port), PATIENCE))
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            connections.append(connection)
        ready = frames(way.kind, way.size)
        counter.on()
        for round_ in range(WARM_UP):
            _exchange(connections, ready, way.kind, round_)
        counter.begin()
        for round_ in range(rounds):
            _exchange(connections, ready, way.kind, round_)
        return counter.end() / (rounds * TOGETHER)


def measured(rounds: int = ROUNDS) -> Section:
    """All ways, one after the other."""
    rows: list[list[object]] = []
    base = 0.0
    for way in WAYS:
        found = count(way, rounds)
        if way is RELAY:
            base = found
        rows.append([way.name, f"{found:,.0f}", f"{found / base:.2f}"])
        print(*rows[-1], sep="\t", flush=True)
    what = (
        f"Counted by callgrind over {rounds} rounds of {TOGETHER} connections with one request each (records of 512 "
        "bytes), before a sink, without coroutines, which no request runs, and with copies by their loads and stores "
        f"(no `rep movsb`); Forebay's codecs: {codecs()}. `make instructions` measures it anew; `make test-all` fails "
        f"where a path has grown by more than {TOLERANCE:.0%}."
    )
    return Section(NAME, "Instructions a request", [what, Table(HEAD, rows)])


def kept(document: Path = DOCUMENT) -> tuple[list[tuple[str, int]], str]:
    """The paths of the table that is kept, with their instructions, and the line that says of what machine."""
    found = re.search(f"<!-- bench:{NAME} -->(.*?)<!-- /bench:{NAME} -->", document.read_text(), re.DOTALL)
    text = "" if found is None else found[1]
    rows = re.findall(r"^\| ([^|]+) \| ([\d,]+) \|", text, re.MULTILINE)
    of = re.search(r"^_(.*)_$", text, re.MULTILINE)
    return [(name, int(number.replace(",", ""))) for name, number in rows], "" if of is None else of[1]


def grown(before: list[tuple[str, int]], now: list[tuple[str, int]]) -> list[str]:
    """A line for each path that takes more than TOLERANCE more than before."""
    assert [name for name, _ in before] == [name for name, _ in now], "the table that is kept has other paths"
    return [
        f"{name}: {new:,} instructions, {old:,} before"
        for (name, old), (_, new) in zip(before, now, strict=True)
        if new > old * (1 + TOLERANCE)
    ]


def _versions(line: str) -> str:
    """Of `machine()`, without the processor."""
    return line.partition(" · ")[2]


def main() -> None:
    section = measured()
    if "--check" not in sys.argv:
        keep(section)
        return
    before, of = kept()
    if _versions(of) != _versions(machine()):
        print(f"not compared: the table is of {of}")
        return
    table = section.parts[-1]
    assert isinstance(table, Table)
    worse = grown(before, [(str(name), int(str(number).replace(",", ""))) for name, number, _ in table.rows])
    sys.exit("\n".join(worse) or 0)


if __name__ == "__main__":
    main()
