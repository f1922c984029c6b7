"""Takes the golden requests from real clients: `python -m tests.codecs.golden.produce_requests.capture`.

Needs tests.kit.setup. README.md says what is taken and how.
"""

from __future__ import annotations

import queue
import socket
import struct
import threading
from pathlib import Path

from forebay_codecs.api_keys import API_VERSIONS, PRODUCE
from forebay_codecs.api_versions import rewrite_api_versions
from tests.codecs.golden.produce_requests.cases import CLIENTS, FOLDER, TOPIC, path, specs
from tests.kit.clients import make_client
from tests.kit.kafka import KafkaCluster
from tests.kit.ports import LOOPBACK, free_port

VERSION = "4.3.1"


class Relay:
    """Stands before a broker, keeps the Produce requests, and cuts the offered versions to those that Forebay has."""

    def __init__(self, port: int, broker: int) -> None:
        self.requests: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        self._broker = broker
        self._listener = socket.create_server((LOOPBACK, port))
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        """Ends every thread: each socket's end is passed on."""
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            broker = socket.create_connection((LOOPBACK, self._broker))
            asked: dict[int, int] = {}
            for target, sides in ((self._upstream, (client, broker)), (self._downstream, (broker, client))):
                threading.Thread(target=target, args=(*sides, asked), daemon=True).start()

    def _upstream(self, client: socket.socket, broker: socket.socket, asked: dict[int, int]) -> None:
        while frame := receive_frame(client):
            key, version, correlation_id = struct.unpack_from(">hhi", frame)
            if key == PRODUCE:
                self.requests.put(frame)
            elif key == API_VERSIONS:
                asked[correlation_id] = version
            send_frame(broker, frame)
        close(broker)

    def _downstream(self, broker: socket.socket, client: socket.socket, asked: dict[int, int]) -> None:
        while frame := receive_frame(broker):
            version = asked.pop(struct.unpack_from(">i", frame)[0], None)
            send_frame(client, frame if version is None else rewrite_api_versions(frame, version))
        close(client)


def receive_frame(side: socket.socket) -> bytes:
    """b"" at the end of the stream."""
    size = receive(side, 4)
    return receive(side, struct.unpack(">i", size)[0]) if size else b""


def receive(side: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        try:
            chunk = side.recv(size - len(data))
        except OSError:
            return b""
        if not chunk:
            return b""
        data += chunk
    return data


def send_frame(side: socket.socket, frame: bytes) -> None:
    try:
        side.sendall(struct.pack(">i", len(frame)) + frame)
    except OSError:
        pass  # the other direction finds the end


def close(side: socket.socket) -> None:
    try:
        side.shutdown(socket.SHUT_RDWR)
    except OSError:
        pass


def keep_only_request(relay: Relay, path: Path) -> None:
    # A client that wants no acknowledgement may be done before its request is here.
    request = relay.requests.get(timeout=30)
    assert relay.requests.empty(), path
    lines = [request[at : at + 48].hex() for at in range(0, len(request), 48)]
    path.write_text("\n".join(lines) + "\n")


def capture(name: str, relay: Relay, bootstrap: str) -> None:
    client = make_client(name)
    try:
        for case, spec in specs(name).items():
            assert client.can(spec), (name, case)
            result = client.produce(bootstrap, spec)
            assert not result.failures, result.failures
            keep_only_request(relay, path(name, case))
    finally:
        client.close()


def main() -> None:
    for old in FOLDER.glob("*.hex"):
        old.unlink()
    port = free_port()
    with KafkaCluster(VERSION, brokers=1, advertised={0: port}) as cluster:
        cluster.create_topic(TOPIC, partitions=1)
        relay = Relay(port, cluster.ports[0])
        try:
            for name in CLIENTS:
                capture(name, relay, cluster.bootstrap)
        finally:
            relay.close()


if __name__ == "__main__":
    main()
