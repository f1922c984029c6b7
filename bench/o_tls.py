"""o. TLS: CPU a MB beside Envoy, handshakes, clients that reconnect, idle connections, and plaintext beside it."""

from __future__ import annotations

import resource
import ssl
import threading
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from itertools import count
from random import Random
from statistics import median
from time import perf_counter, sleep
from typing import Final, NamedTuple

from bench import openssl_alone
from bench.e_added_latency import Line
from bench.others import WARM_UP, envoy
from bench.others_setup import ENVOY
from bench.report import Section, Table
from bench.wire_crowd import AT_ONCE, Back, Gathering, come_and_go, crowd
from bench.wire_frames import Kind, frames
from bench.wire_load import Load, believing, cpu_seconds, offer, percentile
from bench.wired import Tls, certificates, codecs, forebay, forebay_with_tls, sink
from forebay_codecs import api_versions
from tests.kit.forebay import ForebayProcess
from tests.kit.memory import resident
from tests.kit.waiting import wait_until

SIZE: Final = 16_384
CONNECTIONS: Final = 10
DEPTH: Final = 5
MS_A_MB: Final = 3.5
OF_ENVOYS: Final = 2.0
A_SECOND: Final = 600
RECONNECTING: Final = 2_000
P99_MS: Final = 50.0
ESTABLISHED: Final = 10
RATE: Final = 500
IDLE: Final = 10_000
IDLE_MB: Final = 300
"""For IDLE of them; for fewer, as much less."""
FEW: Final = 10
SPARE: Final = 2_000
"""Descriptors that are none of a client's."""
PLAINTEXT: Final = 0.01
MB: Final = 1 << 20
PATHS: Final[dict[Kind, str]] = {"opaque": "opaque requests", "produce": "batches"}


class Size(NamedTuple):
    """How long it takes: seconds of a load and of a hand of handshakes, rounds, and how many clients."""

    seconds: float
    rounds: int
    pairs: int
    reconnecting: int
    idle: int


LONG: Final = Size(4.0, 5, 25, RECONNECTING, IDLE)
SHORT: Final = Size(1.0, 1, 2, 100, 200)


def run(short: bool) -> Section:
    size = SHORT if short else LONG
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))  # for the children, too
    with certificates() as tls:
        costs = _costs(tls, size)
        floor = median(openssl_alone.ms_a_mb(tls, SIZE) for _ in range(size.rounds))
        handshakes = _handshakes(tls, size.seconds)
        calm, meanwhile, back = _reconnecting(tls, size.reconnecting)
        count = idle_clients(size.idle, most)
        idle = [_idle(tls, does, count) for does in FIRST]
        beside = _beside(tls, size)
    return Section(
        "o",
        "TLS",
        [
            _cost_words(size),
            *_cost_tables(costs),
            _floor_words(floor, size.rounds),
            _handshake_words(handshakes),
            _reconnecting_words(size.reconnecting, calm, meanwhile, back),
            f"Resident memory of Forebay before and after {count:,} connections with TLS that have done what "
            "stands there and are idle now.",
            Table(["", "before", "after", "KB a connection", "target"], idle),
            beside,
        ],
    )


def _told(met: bool) -> str:
    return "met" if met else "missed"


# What it costs a MB


class Way(NamedTuple):
    """One proxy, and whether it speaks TLS on both sides."""

    name: str
    tls: bool
    port: int
    pid: int
    warm_up: float


Costs = Mapping[tuple[str, Kind], Sequence[tuple[float, float]]]
"""By proxy and path: of each round, ms of CPU a MB in plaintext and with TLS."""


def _costs(tls: Tls, size: Size) -> Costs:
    found: dict[tuple[str, Kind], list[tuple[float, float]]] = {}
    with _ways(tls) as ways:
        for _ in range(size.rounds):
            for kind in PATHS:
                for plaintext, secured in ways:
                    both = _ms_a_mb(plaintext, kind, size.seconds), _ms_a_mb(secured, kind, size.seconds)
                    found.setdefault((plaintext.name, kind), []).append(both)
    return found


def _ms_a_mb(way: Way, kind: Kind, seconds: float) -> float:
    load = Load(way.port, kind, SIZE, CONNECTIONS, DEPTH, seconds, warm_up=way.warm_up, pids=(way.pid,), tls=way.tls)
    outcome = offer(load)
    return 1e9 * outcome.cpu / (outcome.requests * SIZE)


@contextmanager
def _ways(tls: Tls) -> Iterator[list[tuple[Way, Way]]]:
    """Forebay, and Envoy where it is installed: each in plaintext and with TLS on both sides."""
    with ExitStack() as stack:
        plaintext, secured = stack.enter_context(sink()), stack.enter_context(sink(tls=tls))
        ours = stack.enter_context(forebay(plaintext))
        with_tls = stack.enter_context(forebay_with_tls(secured, tls, **tls.toward_brokers))
        ways = [
            (
                Way("Forebay", False, ours.node_port(0), ours.pid, 1.0),
                Way("Forebay", True, _tls_port(with_tls), with_tls.pid, 1.0),
            )
        ]
        if ENVOY.exists():
            theirs = stack.enter_context(envoy({0: plaintext}))
            too = stack.enter_context(envoy({0: secured}, tls=tls))
            warm_up = WARM_UP["envoy"]
            ways.append(
                (
                    Way("envoy", False, theirs.node_ports[0], theirs.pid, warm_up),
                    Way("envoy", True, too.node_ports[0], too.pid, warm_up),
                )
            )
        yield ways


def _tls_port(proxy: ForebayProcess) -> int:
    """Of broker 0, on the listener with TLS."""
    return proxy.tls_port + 1


def _cost_words(size: Size) -> str:
    return (
        f"Requests of 16 KB as in f ({CONNECTIONS} connections, {DEPTH} under way on each, a sink behind), in "
        f"plaintext and with TLS 1.3 toward clients and brokers, in turns: medians of {size.rounds} × "
        f"{size.seconds:g} s. ms of the proxy's CPU a MB, of 10⁶ bytes of batches; what TLS adds is the difference "
        "within a round. Envoy passes bytes on; one worker thread each. Load and sinks are processes of their own. "
        f"Codecs: {codecs()}."
    )


def _cost_tables(costs: Costs) -> list[Table]:
    rows: list[list[object]] = []
    for (name, kind), rounds in costs.items():
        added = added_by_tls(rounds)
        told = ""
        if name == "Forebay":
            told = f"≤ {MS_A_MB:g}: {_told(added <= MS_A_MB)}"
            if theirs := costs.get(("envoy", kind)):
                times = added / added_by_tls(theirs)
                told += f"; {times:.2f} times Envoy's, ≤ {OF_ENVOYS:g}: {_told(times <= OF_ENVOYS)}"
        plaintext, secured = (median(each[which] for each in rounds) for which in (0, 1))
        rows.append([f"{name}, {PATHS[kind]}", *(f"{each:.2f}" for each in (plaintext, secured, added)), told])
    return [Table(["", "plaintext", "TLS", "TLS adds", "target"], rows)]


def _floor_words(floor: float, rounds: int) -> str:
    return (
        f"{ssl.OPENSSL_VERSION} by itself, which Forebay has from Python, spends {floor:.2f} ms/MB on the records of "
        f"such requests and their answers, in memory with nothing around it (median of {rounds}). Envoy has BoringSSL."
    )


def added_by_tls(rounds: Sequence[tuple[float, float]]) -> float:
    """The median, over rounds, of what TLS adds to plaintext: [(2, 5), (3, 5), (2, 9)] → 3."""
    return median(secured - plaintext for plaintext, secured in rounds)


# Handshakes


def _handshakes(tls: Tls, seconds: float) -> float:
    """A second of Forebay's CPU."""
    with sink() as broker, forebay_with_tls(broker, tls) as proxy:
        come_and_go(_tls_port(proxy), 1.0)
        before, cpu = _established(proxy), cpu_seconds([proxy.pid])
        come_and_go(_tls_port(proxy), seconds)
        return (_established(proxy) - before) / (cpu_seconds([proxy.pid]) - cpu)


def _handshake_words(handshakes: float) -> str:
    return (
        f"New sessions, TLS 1.3 with a P-256 certificate, no tickets, {AT_ONCE} at once: {handshakes:,.0f} a second of "
        "Forebay's CPU, with everything else that a connection costs from its beginning to its end. Target ≥ "
        f"{A_SECOND}: {_told(handshakes >= A_SECOND)}."
    )


def _established(proxy: ForebayProcess) -> float:
    return proxy.metrics().get('forebay_tls_handshakes_total{result="established"}', 0.0)


# Clients that reconnect


def _reconnecting(tls: Tls, count: int) -> tuple[list[float], list[float], Back]:
    """ms of the established clients' requests, ascending: without the others' return, and during it; and that."""
    first = _framed(api_versions.request(0, "crowd", 0, "", "")).hex()
    with ExitStack() as stack:
        broker = stack.enter_context(sink(tls=tls))
        proxy = stack.enter_context(forebay_with_tls(broker, tls, **tls.toward_brokers))
        port = _tls_port(proxy)
        lines = [stack.enter_context(closing(Line(port, believing()))) for _ in range(ESTABLISHED)]
        with _steadily(lines):
            sleep(1)  # it connects to brokers, and all is warm
        clients = stack.enter_context(crowd(Gathering(port, count, first=first)))
        with _steadily(lines) as calm:
            sleep(5)
        with _steadily(lines) as meanwhile:
            clients.again()
            back = clients.back(60)
    assert back is not None, "not all are back within a minute"
    return sorted(calm), sorted(meanwhile), back


def _framed(request: bytes) -> bytes:
    return len(request).to_bytes(4, "big") + request


@contextmanager
def _steadily(lines: Sequence[Line]) -> Iterator[list[float]]:
    """While the block lasts each line carries produce requests of 1 KB, all together RATE a second; complete behind it:
    ms of each, from when it was due.

    A client sends one after the other: those that are due while another waits count the time from when they were.
    """
    ready = frames("produce", 1_024, 900)
    over = threading.Event()
    waits: list[float] = []
    began = perf_counter()

    def carry(number: int, line: Line) -> None:
        for turn in count():
            due = began + (number + turn * len(lines)) / RATE
            if over.wait(max(0.0, due - perf_counter())):
                return
            line.ask(ready[turn % len(ready)])
            waits.append(1e3 * (perf_counter() - due))

    with ThreadPoolExecutor(len(lines)) as pool:
        carried = [pool.submit(carry, number, line) for number, line in enumerate(lines)]
        try:
            yield waits
        finally:
            over.set()
        for each in carried:
            each.result()


def _reconnecting_words(count: int, calm: Sequence[float], meanwhile: Sequence[float], back: Back) -> str:
    before, during = percentile(calm, 0.99), percentile(meanwhile, 0.99)
    return (
        f"{ESTABLISHED} established connections with TLS, each one request at a time, together produce {RATE} requests "
        f"of 1 KB a second while {count:,} others lose theirs and all come back at once: full handshakes, then "
        f"ApiVersions; who is turned away tries again as Kafka's clients do. All are back after {back.seconds:.1f} s "
        f"and {back.tries:,} connections. p99 of the established, from when a request was due: {before:.1f} ms "
        f"before, {during:.1f} ms meanwhile (longest {meanwhile[-1]:.0f} ms). Target ≤ {P99_MS:g} ms: "
        f"{_told(during <= P99_MS)}. Forebay, the crowd, the sink and the load share the machine."
    )


# Idle connections

FIRST: Final[dict[str, Kind | None]] = {
    "nothing": None,
    "one Produce request": "produce",
    "one opaque request": "opaque",
}
"""The last one opens a connection of the client's own to its broker, with TLS as well; that one stays, too."""


def _idle(tls: Tls, does: str, count: int) -> list[object]:
    kind = FIRST[does]
    first = frames(kind, SIZE)[0].hex() if kind else ""
    with ExitStack() as stack:
        broker = stack.enter_context(sink(tls=tls))
        proxy = stack.enter_context(forebay_with_tls(broker, tls, **tls.toward_brokers, **_room(count)))
        _come(stack, proxy, FEW, first)  # what the first bring with them is not the connections'
        before = resident(proxy.pid)
        _come(stack, proxy, count, first)
        after = resident(proxy.pid)
    grown = after - before
    told = f"≤ {IDLE_MB} MB: {_told(grown <= IDLE_MB * MB * count / IDLE)}" if kind is None else ""
    return [does, f"{before / MB:.1f} MB", f"{after / MB:.1f} MB", f"{grown / count / 1024:.1f}", told]


def _come(stack: ExitStack, proxy: ForebayProcess, count: int, first: str) -> None:
    """Clients who stay as long as `stack`. Those who say nothing know less of their handshakes than Forebay does."""
    expected = _established(proxy) + count
    stack.enter_context(crowd(Gathering(_tls_port(proxy), count, first), seconds=600))
    wait_until(lambda: _established(proxy) >= expected, 60, f"{count} handshakes are done")


def _room(count: int) -> dict[str, str]:
    return {"max.connections": str(count + 2 * FEW)}


def idle_clients(wanted: int, descriptors: int) -> int:
    """As many of those wanted as Forebay lets in, which keeps two descriptors for each: (10,000, 20,000) → 9,000."""
    return min(wanted, (descriptors - SPARE) // 2)


# Plaintext beside a listener with TLS


def _beside(tls: Tls, size: Size) -> str:
    """A new pair of processes each time: where things lie in memory makes one slower or faster."""
    rng = Random(1)
    found: list[float] = []
    spent: list[float] = []
    with sink() as broker:
        for _ in range(size.pairs):
            us: dict[bool, float] = {}
            for beside in rng.sample([False, True], 2):
                with forebay_with_tls(broker, tls) if beside else forebay(broker) as proxy:
                    load = Load(proxy.node_port(0), "produce", SIZE, CONNECTIONS, DEPTH, 2.0, pids=(proxy.pid,))
                    outcome = offer(load)
                    us[beside] = 1e6 * outcome.cpu / outcome.requests
            found.append(us[True] / us[False] - 1)
            spent.append(us[False])
    found.sort()
    more = median(found)
    return (
        f"The plaintext path with a listener with TLS beside it, against one without, {size.pairs} pairs of new "
        f"processes, each 2 s of batches of 16 KB: {100 * more:+.1f} % of {median(spent):.0f} µs a request (half of "
        f"the pairs between {100 * percentile(found, 0.25):+.1f} and {100 * percentile(found, 0.75):+.1f} %). Target ≤ "
        f"{100 * PLAINTEXT:g} %: {_told(more <= PLAINTEXT)}."
    )
