"""Clients that send as fast as they are let, or at a rate, and never lose heart.

    with flood(Flow(port, "orders", size=900_000), clients=16):
        …

Each has five requests away at any time, and sends the next one when the first is answered.

What they are answered is nobody's business here: records are refused, connections lost, and the flood goes on. They
leave at the end without waiting for answers.
"""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from forebay_codecs.error_codes import NONE
from tests.codecs.record_writer import Record
from tests.kit.ports import LOOPBACK
from tests.kit.wire import Response, batch, produce, produced

_IN_FLIGHT = 5
_BACKOFF_SECONDS = 0.1


@dataclass(frozen=True, slots=True)
class Flow:
    """What each client of a flood sends: a record with a key to each partition; `rate` times a second (0: no limit)."""

    port: int
    topic: str
    size: int
    acks: int = 1
    rate: float = 0.0
    client_id: str = "flood"
    partitions: int = 1


@contextmanager
def flood(flow: Flow, clients: int) -> Iterator[None]:
    over = threading.Event()
    threads = [threading.Thread(target=_send, args=(flow, number, over)) for number in range(clients)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        over.set()
        for thread in threads:
            thread.join()


def is_taken(flow: Flow) -> bool:
    """One request: whether brokers have taken each of its records."""
    never = threading.Event()
    with socket.create_connection((LOOPBACK, flow.port), 1) as connection:
        _write(connection, _frame(flow, 0), never)
        answer = _read_answer(connection, never)
    told = produced(Response(1, answer[4:])).values()
    return len(told) == flow.partitions and all(partition.error_code == NONE for partition in told)


def _frame(flow: Flow, number: int) -> bytes:
    records = batch([Record(f"key-{number}".encode(), os.urandom(flow.size), (), int(time.time() * 1000))])
    batches = [(flow.topic, partition, records) for partition in range(flow.partitions)]
    return produce(1, *batches, acks=flow.acks, client_id=flow.client_id)


def _send(flow: Flow, number: int, over: threading.Event) -> None:
    frame = _frame(flow, number)
    while not over.is_set():
        with suppress(OSError), socket.create_connection((LOOPBACK, flow.port), 1) as connection:
            _pour(connection, frame, flow.rate, over)
        over.wait(_BACKOFF_SECONDS)


def _pour(connection: socket.socket, frame: bytes, rate: float, over: threading.Event) -> None:
    """Until it is over or the connection is lost, which is an OSError."""
    unanswered = 0
    while not over.is_set():
        if unanswered < _IN_FLIGHT:
            _write(connection, frame, over)
            unanswered += 1
            over.wait(1 / rate if rate else 0)
        else:
            _read_answer(connection, over)
            unanswered -= 1


def _write(connection: socket.socket, frame: bytes, over: threading.Event) -> None:
    rest = memoryview(frame)
    while rest and not over.is_set():
        with suppress(TimeoutError):
            rest = rest[connection.send(rest) :]


def _read_answer(connection: socket.socket, over: threading.Event) -> bytes:
    answer = b""
    while not over.is_set() and (len(answer) < 4 or len(answer) < 4 + int.from_bytes(answer[:4], "big")):
        wanted = 4 - len(answer) if len(answer) < 4 else 4 + int.from_bytes(answer[:4], "big") - len(answer)
        with suppress(TimeoutError):
            more = connection.recv(wanted)
            if not more:
                raise ConnectionResetError
            answer += more
    return answer
