"""Old and new clients that produce at once, at a steady rate, until they are told to stop.

    with Clients() as clients:                     # JVMs are kept from one load to the next
        load = clients.start(bootstrap, "orders")
        wait_until(lambda: load.acked_since(begun) >= 20, 30, "the load is under way")
        …
        tallies = load.stop()                      # waits until each client knows of each record, or gave up on it

All send with acks=all, every second record with a key. What they may do differs, and with it what must hold:

| client | tries | so |
|---|---|---|
| java-1.1.1 | once | never a duplicate, keys in order |
| java-2.8.2 | until delivery.timeout.ms, one request in flight | as many duplicates as it retried, keys in order |
| java-4.3.1 | the same, idempotent | never a duplicate (but see long_account.py), keys in order, offsets told |
| confluent (librdkafka) | once | never a duplicate, keys in order (but see Promise.by_broker) |
| kafka-python | once | never a duplicate, keys in order |

Their timeouts differ too (`impatient`), or are the ones that users have by default (`patient`).
"""

from __future__ import annotations

import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from time import monotonic
from types import TracebackType
from typing import Any, Self

from confluent_kafka import KafkaError, KafkaException, Message, Producer
from kafka import KafkaProducer  # type: ignore[import-untyped]
from kafka.errors import KafkaError as PythonKafkaError  # type: ignore[import-untyped]

from tests.chaos.tally import Account, Promise, Tally
from tests.kit.java import JavaClient
from tests.kit.spec import Ack, ProduceSpec
from tests.kit.waiting import wait_until

RATE = 100
"""Records a second of each client: enough to have requests away at any time, and far below what the machine can do."""

VERSIONS = ("1.1.1", "2.8.2", "4.3.1")
"""Of Java clients."""
MAX_RECORDS = 200_000
MAX_SECONDS = 1_000
_FLUSH_SECONDS = 30
_LEAVE_SECONDS = 60

Produce = Callable[[str, Account, "Stop"], None]
"""Bootstrap servers, the account to fill, when to stop. Returns when nothing is outstanding, or given up on."""


class Stop:
    """An event that other processes see too: a file. No client lives longer than `seconds`."""

    def __init__(self, seconds: float = MAX_SECONDS) -> None:
        self.seconds = seconds
        self.event = threading.Event()
        self._folder = tempfile.TemporaryDirectory(prefix="load-")
        self.file = Path(self._folder.name) / "stop"

    def set(self) -> None:
        self.file.touch()
        self.event.set()

    def paced(self, rate: int) -> Iterator[int]:
        """0 1 2 … at that rate, until stopped."""
        begun = monotonic()
        for seq in count():
            if self.event.wait(max(0.0, begun + seq / rate - monotonic())):
                return
            yield seq


@dataclass(frozen=True, slots=True)
class Loader:
    """A client that can carry load: its name, its way to produce, its own settings, and what follows from them."""

    name: str
    produce: Produce
    props: Mapping[str, str]
    promise: Promise
    idempotence: bool = False

    def spec(self, topic: str, rate: int = RATE, count: int = MAX_RECORDS) -> ProduceSpec:
        return ProduceSpec(
            topic=topic,
            name=self.name,
            count=count,
            keys="mixed",
            idempotence=self.idempotence,
            size=100,
            rate=rate,
            props=self.props,
        )

    def tally(self, topic: str) -> Tally:
        return Tally(self.spec(topic), self.promise)


def confluent(message_timeout_ms: int = 12_000) -> Loader:
    props = {
        "message.send.max.retries": "0",
        "request.timeout.ms": str(message_timeout_ms // 3),
        "message.timeout.ms": str(message_timeout_ms),
        # It tries again after NOT_LEADER_OR_FOLLOWER even so: with more in flight they would overtake each other.
        "max.in.flight.requests.per.connection": "1",
        "reconnect.backoff.max.ms": "500",
    }
    return Loader("confluent", _confluent, props, Promise(ordered=True, offsets=False, by_broker=True))


def kafka_python(delivery_timeout_ms: int = 12_000) -> Loader:
    props = {
        "request_timeout_ms": str(delivery_timeout_ms * 5 // 12),
        "delivery_timeout_ms": str(delivery_timeout_ms),
        "max_block_ms": "5000",
        "reconnect_backoff_max_ms": "500",
    }
    return Loader("kafka-python", _kafka_python, props, Promise(ordered=True, offsets=False))


def impatient(jvms: Mapping[str, JavaClient]) -> Sequence[Loader]:
    """The clients of the table above. Their timeouts differ: some give up before the proxy does, some after it."""
    quick = {"reconnect.backoff.max.ms": "500", "max.block.ms": "10000"}
    slower = {**quick, "delivery.timeout.ms": "20000"}
    return (
        java(jvms["1.1.1"], {**quick, "retries": "0", "request.timeout.ms": "2000"}),
        java(jvms["2.8.2"], {**slower, "request.timeout.ms": "3000", "max.in.flight.requests.per.connection": "1"}),
        java(jvms["4.3.1"], {**slower, "request.timeout.ms": "6000"}, idempotence=True),
        confluent(),
        kafka_python(),
    )


def patient(jvms: Mapping[str, JavaClient]) -> Sequence[Loader]:
    """The same with the timeouts that each has by default: 30 s a request, 120 s a record (librdkafka: 300 s)."""
    once = {"message.send.max.retries": "0", "max.in.flight.requests.per.connection": "1"}
    return (
        java(jvms["1.1.1"], {"retries": "0"}),
        java(jvms["2.8.2"], {"max.in.flight.requests.per.connection": "1"}),
        java(jvms["4.3.1"], {}, idempotence=True),
        Loader("confluent", _confluent, once, Promise(ordered=True, offsets=False, by_broker=True)),
        Loader("kafka-python", _kafka_python, {}, Promise(ordered=True, offsets=False)),
    )


def java(jvm: JavaClient, props: Mapping[str, str], idempotence: bool = False) -> Loader:
    """A Java client of any version, with settings of its own."""

    def produce(bootstrap: str, tally: Account, stop: Stop) -> None:
        for line in jvm.produce_live(bootstrap, tally.spec, stop.file, stop.seconds):
            if "error" in line:
                tally.refused(line["seq"], line["error"])
            elif "seq" in line:
                tally.acknowledged(Ack(**line))
            elif "sent" in line:
                tally.sent, tally.retried = line["sent"], line["retries"]

    return Loader(jvm.name, produce, props, Promise(True, True), idempotence)


class Clients:
    """Clients of a load, made from JVMs by their version. One load at a time: each JVM has one producer at a time."""

    def __init__(
        self,
        loaders: Callable[[Mapping[str, JavaClient]], Sequence[Loader]] = impatient,
        jvms: Mapping[str, JavaClient] | None = None,
    ) -> None:
        """`jvms`: of VERSIONS, to be left as they are, unless an error comes: then one may still be at work."""
        self._own = jvms is None
        self._jvms = jvms or {version: JavaClient(version) for version in VERSIONS}
        self.loaders = loaders(self._jvms)

    def start(self, bootstrap: str, topic: str) -> Load:
        return Load(bootstrap, topic, self.loaders)

    def close(self) -> None:
        for jvm in self._jvms.values():
            jvm.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._own or error is not None:
            self.close()


@dataclass(slots=True)
class _Carrier:
    """One client's thread, and what ended it."""

    account: Account
    thread: threading.Thread = field(init=False)
    error: BaseException | None = None


class Carriers:
    """Clients that produce, each with the account that it fills, from when this is made until `stop`, or to the end of
    the `with` that it is in.
    """

    def __init__(
        self, bootstrap: str, accounts: Sequence[tuple[Loader, Account]], seconds: float = MAX_SECONDS
    ) -> None:
        self.begun = monotonic()
        self._stop = Stop(seconds)
        self._carriers = [self._carry(loader, bootstrap, account) for loader, account in accounts]

    def under_way(self, acks: int, seconds: float) -> Self:
        """Once each client was acknowledged so often; if not within that time, AssertionError, and they are stopped."""
        try:
            wait_until(lambda: self.acked_since(self.begun) >= acks, seconds, "the load is under way")
        except BaseException:
            self._leave()
            raise
        return self

    def flows(self, acks: int, seconds: float) -> None:
        """Once each client was acknowledged so often from now on."""
        now = monotonic()
        wait_until(lambda: self.acked_since(now) >= acks, seconds, "every client is acknowledged")

    def acked_since(self, moment: float) -> int:
        """Acknowledgements of the client that had the fewest since then. Raises what ended a client, if one ended."""
        for carrier in self._carriers:
            if not carrier.thread.is_alive():
                raise AssertionError(f"{carrier.account.name} ended before it was stopped") from carrier.error
        return min(carrier.account.acked_since(moment) for carrier in self._carriers)

    def end(self) -> None:
        """Every client sends no more and settles what is outstanding."""
        self._stop.set()
        for carrier in self._carriers:
            carrier.thread.join(MAX_SECONDS)
            if carrier.error is not None or carrier.thread.is_alive():
                raise AssertionError(f"{carrier.account.name} did not come to its end") from carrier.error

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._leave()

    def _leave(self) -> None:
        """Sends no more; waits for what may still come, or be given up, but not for ever."""
        self._stop.set()
        deadline = monotonic() + _LEAVE_SECONDS
        for carrier in self._carriers:
            carrier.thread.join(max(0.0, deadline - monotonic()))

    def _carry(self, loader: Loader, bootstrap: str, account: Account) -> _Carrier:
        carrier = _Carrier(account)

        def run() -> None:
            try:
                loader.produce(bootstrap, account, self._stop)
            except BaseException as error:
                carrier.error = error

        carrier.thread = threading.Thread(target=run, name=loader.name, daemon=True)
        carrier.thread.start()
        return carrier


class Load(Carriers):
    """Carriers with a tally each, to be reconciled with what is in the topic."""

    def __init__(self, bootstrap: str, topic: str, loaders: Sequence[Loader]) -> None:
        self.topic = topic
        self.tallies = [loader.tally(topic) for loader in loaders]
        super().__init__(bootstrap, list(zip(loaders, self.tallies, strict=True)))

    def stop(self) -> list[Tally]:
        """What each client came to."""
        self.end()
        return self.tallies


def _confluent(bootstrap: str, tally: Account, stop: Stop) -> None:
    spec = tally.spec
    settings: dict[str, Any] = {"bootstrap.servers": bootstrap, "acks": "all", "enable.idempotence": False}
    producer = Producer({**settings, "linger.ms": spec.linger_ms, "log_level": 0, **spec.props})

    def send(seq: int) -> None:
        def delivered(error: KafkaError | None, message: Message) -> None:
            if error is not None:
                tally.refused(seq, str(error))
            else:
                tally.acknowledged(Ack(seq, message.partition() or 0))

        try:
            producer.produce(spec.topic, spec.value(seq), spec.key(seq), on_delivery=delivered)
        except (KafkaException, BufferError) as error:
            tally.refused(seq, repr(error))

    for seq in stop.paced(spec.rate):
        tally.sends(seq)
        send(seq)
        producer.poll(0)
    producer.flush(_FLUSH_SECONDS)


def _kafka_python(bootstrap: str, tally: Account, stop: Stop) -> None:
    spec = tally.spec
    producer = KafkaProducer(
        bootstrap_servers=bootstrap,
        acks="all",
        retries=0,
        enable_idempotence=False,
        linger_ms=spec.linger_ms,
        **{name: int(value) for name, value in spec.props.items()},
    )

    def send(seq: int) -> None:
        try:
            future = producer.send(spec.topic, spec.value(seq), spec.key(seq))
        except PythonKafkaError as error:
            tally.refused(seq, repr(error))
            return
        future.add_callback(lambda told: tally.acknowledged(Ack(seq, told.partition)))
        future.add_errback(lambda error: tally.refused(seq, repr(error)))

    try:
        for seq in stop.paced(spec.rate):
            tally.sends(seq)
            send(seq)
        producer.flush(_FLUSH_SECONDS)
    finally:
        producer.close(_FLUSH_SECONDS)
