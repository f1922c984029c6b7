"""Other proxies before the same brokers, each one process with one worker thread, as one worker of Forebay has.

    with sink() as port, kroxylicious({0: port}) as proxy:
        offer(Load(proxy.node_ports[0], "produce", …, warm_up=WARM_UP["kroxylicious"], pids=(proxy.pid,)))

    for name, start in installed().items():    # what `make bench-others` could fetch here
        with start({0: port}) as proxy: …

In: the port of each broker by node id; they must answer. Out: an OtherProxy, ready for requests. Raises ServerFailed
where it does not start, NotSetUp where it is not installed.

What each of them is:
- envoy: `tcp_proxy`, a listener for each broker. Bytes pass unread, so brokers must advertise Envoy's ports
  themselves: pass them as `ports`. The least that a proxy in user space costs. With `tls` on both sides: as Forebay it
  speaks TLS 1.3 where the other side does (upstream, its own default is 1.2), and verifies the broker's name.
- kroxylicious: a virtual cluster without filters, broker n on its own port. It frames requests, decodes what names
  brokers and passes Produce as it is. It decodes a connection's first requests and answers whatever they are, so
  these must be well-formed. A JVM: it needs WARM_UP to be compiled.
- kroxylicious, transforming: the same with its filter ProduceRequestTransformation, which opens each batch of a Produce
  request and makes another one of its records: the one of them that does what Forebay does.
- shotover: KafkaSinkCluster, one Shotover that clients take for the only broker. It decodes every Produce request
  and routes its partitions to their leaders. (KafkaSinkSingle, for one broker on its own machine, was tried: it
  decodes as well and costs about a tenth less.)
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

from bench.others_setup import ENVOY, KROXYLICIOUS, SHOTOVER
from bench.wired import Tls
from tests.kit.metadata import ask_metadata
from tests.kit.paths import NotSetUp
from tests.kit.ports import LOOPBACK, accepts, free_port, free_run
from tests.kit.server import Server

START_SECONDS: Final = 30
_METADATA_VERSION: Final = 4
"""What the sink of the wire loads speaks, as real brokers do."""

TRANSFORMING: Final = "kroxylicious, transforming"

WARM_UP: Final = {"envoy": 1.0, "kroxylicious": 30.0, TRANSFORMING: 30.0, "shotover": 1.0}
"""Seconds of load before a proxy does as well as it will; once a process, whatever is offered to it afterwards."""

_MANY_CONNECTIONS: Final = 20_000
"""More than any load opens: none of them is to be measured at its limit."""

# One core for netty's loop and for everything else that counts cores; the serial collector follows from it.
_JVM: Final = ["-XX:ActiveProcessorCount=1", "-Xms256m", "-Xmx512m", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"]


@dataclass(frozen=True, slots=True)
class OtherProxy:
    """`bootstrap` is the port for clients, `node_ports` where a broker is found by its id."""

    bootstrap: int
    node_ports: Mapping[int, int]
    pid: int


Start = Callable[[Mapping[int, int]], AbstractContextManager[OtherProxy]]


@contextmanager
def envoy(
    brokers: Mapping[int, int], ports: Mapping[int, int] | None = None, tls: Tls | None = None
) -> Iterator[OtherProxy]:
    listen = ports or {node: free_port() for node in brokers}
    clusters = [_envoy_cluster(f"broker-{node}", port) | _envoy_upstream(tls) for node, port in brokers.items()]
    listeners = [_envoy_listener(f"broker-{node}", port, tls) for node, port in listen.items()]
    settings = {"static_resources": {"listeners": listeners, "clusters": clusters}}
    with tempfile.TemporaryDirectory(prefix="envoy-") as folder:
        file = _write(folder, "envoy.json", settings)
        flags = ["--concurrency", "1", "--disable-hot-restart", "--log-level", "warn"]
        with _running("envoy", [_installed(ENVOY), "-c", file, *flags], folder) as server:
            server.wait_until(lambda: all(map(accepts, listen.values())), START_SECONDS)
            yield OtherProxy(next(iter(listen.values())), listen, server.pid)


@contextmanager
def kroxylicious(brokers: Mapping[int, int], *, transforms: bool = False) -> Iterator[OtherProxy]:
    bootstrap = free_run(2 + max(brokers))
    node_ports = {node: bootstrap + 1 + node for node in brokers}
    gateway = {
        "name": "bench",
        "portIdentifiesNode": {
            "bootstrapAddress": f"{LOOPBACK}:{bootstrap}",
            "nodeStartPort": bootstrap + 1,
            "nodeIdRanges": [{"name": "brokers", "start": 0, "end": max(brokers)}],
        },
    }
    target = {"bootstrapServers": _addresses(brokers)}
    settings: dict[str, Any] = {"virtualClusters": [{"name": "bench", "targetCluster": target, "gateways": [gateway]}]}
    if transforms:
        values = {"transformation": "UpperCasing", "transformationConfig": {"charset": "UTF-8"}}
        transform = {"name": "transform", "type": "ProduceRequestTransformation", "config": values}
        settings |= {"filterDefinitions": [transform], "defaultFilters": ["transform"]}
    with tempfile.TemporaryDirectory(prefix="kroxylicious-") as folder:
        file = _write(folder, "kroxylicious.yaml", settings)
        _installed(KROXYLICIOUS / "Main.class")
        jars = f"{KROXYLICIOUS}:{KROXYLICIOUS}/*"
        with _running("kroxylicious", ["java", *_JVM, "-cp", jars, "Main", file], folder) as server:
            # Its ports for brokers lead to them once it has seen Metadata go by.
            server.wait_until(lambda: _names(bootstrap, node_ports.values()), START_SECONDS)
            yield OtherProxy(bootstrap, node_ports, server.pid)


@contextmanager
def shotover(brokers: Mapping[int, int]) -> Iterator[OtherProxy]:
    listen = free_port()
    own = f"{LOOPBACK}:{listen}"
    myself = {"address_for_clients": own, "address_for_peers": own, "rack": "bench", "broker_id": 0}
    sink = {
        "first_contact_points": _addresses(brokers).split(","),
        "shotover_nodes": [myself],
        "local_shotover_broker_id": 0,
        "connect_timeout_ms": 3_000,
    }
    source = {
        "name": "kafka",
        "listen_addr": own,
        "connection_limit": _MANY_CONNECTIONS,
        "chain": [{"KafkaSinkCluster": sink}],
    }
    with tempfile.TemporaryDirectory(prefix="shotover-") as folder:
        topology = _write(folder, "topology.yaml", {"sources": [{"Kafka": source}]})
        config = _write(folder, "config.yaml", {"main_log_level": "warn"})
        flags = ["--core-threads", "1", "--topology-file", topology, "--config-file", config]
        with _running("shotover", [_installed(SHOTOVER), *flags], folder) as server:
            server.wait_until(lambda: _names(listen, [listen]), START_SECONDS)
            yield OtherProxy(listen, dict.fromkeys(brokers, listen), server.pid)


_PROXIES: Final[Mapping[str, tuple[Path, Start]]] = {
    "envoy": (ENVOY, envoy),
    "kroxylicious": (KROXYLICIOUS / "Main.class", kroxylicious),
    TRANSFORMING: (KROXYLICIOUS / "Main.class", partial(kroxylicious, transforms=True)),
    "shotover": (SHOTOVER, shotover),
}


def installed() -> dict[str, Start]:
    """By name, those that `make bench-others` could fetch on this machine."""
    return {name: start for name, (program, start) in _PROXIES.items() if program.exists()}


def _envoy_listener(name: str, port: int, tls: Tls | None) -> dict[str, Any]:
    proxy = {
        "@type": "type.googleapis.com/envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy",
        "stat_prefix": name,
        "cluster": name,
    }
    chain = {"filters": [{"name": "envoy.filters.network.tcp_proxy", "typed_config": proxy}]} | _envoy_downstream(tls)
    return {"name": name, "address": _envoy_address(port), "filter_chains": [chain]}


def _envoy_cluster(name: str, port: int) -> dict[str, Any]:
    endpoint = {"endpoint": {"address": _envoy_address(port)}}
    return {
        "name": name,
        "type": "STATIC",
        "connect_timeout": "3s",
        "load_assignment": {"cluster_name": name, "endpoints": [{"lb_endpoints": [endpoint]}]},
        "circuit_breakers": {"thresholds": [{"max_connections": _MANY_CONNECTIONS}]},
    }


def _envoy_downstream(tls: Tls | None) -> dict[str, Any]:
    if tls is None:
        return {}
    file = {"filename": tls.keystore}
    return _envoy_tls("Downstream", {"tls_certificates": [{"certificate_chain": file, "private_key": file}]})


def _envoy_upstream(tls: Tls | None) -> dict[str, Any]:
    if tls is None:
        return {}
    name = {"san_type": "IP_ADDRESS", "matcher": {"exact": LOOPBACK}}
    trusted = {"trusted_ca": {"filename": tls.authority}, "match_typed_subject_alt_names": [name]}
    return _envoy_tls("Upstream", {"validation_context": trusted})


def _envoy_tls(side: str, context: Mapping[str, Any]) -> dict[str, Any]:
    versions = {"tls_minimum_protocol_version": "TLSv1_2", "tls_maximum_protocol_version": "TLSv1_3"}
    settings = {
        "@type": f"type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.{side}TlsContext",
        "common_tls_context": {"tls_params": versions, **context},
    }
    return {"transport_socket": {"name": "envoy.transport_sockets.tls", "typed_config": settings}}


def _envoy_address(port: int) -> dict[str, Any]:
    return {"socket_address": {"address": LOOPBACK, "port_value": port}}


def _names(port: int, expected: Iterable[int]) -> bool:
    """Metadata through the proxy names brokers, and all of them at its own ports."""
    known = ask_metadata(port, version=_METADATA_VERSION)
    return known is not None and {broker.port for broker in known.brokers.values()} == set(expected)


def _addresses(brokers: Mapping[int, int]) -> str:
    return ",".join(f"{LOOPBACK}:{port}" for port in brokers.values())


def _installed(program: Path) -> str:
    if not program.exists():
        raise NotSetUp(f"{program} is missing: run `make bench-others`")
    return str(program)


def _write(folder: str, name: str, settings: Mapping[str, Any]) -> str:
    """JSON, which YAML's readers take as well."""
    file = Path(folder, name)
    file.write_text(json.dumps(settings))
    return str(file)


@contextmanager
def _running(name: str, command: Sequence[str], folder: str) -> Iterator[Server]:
    server = Server(name, command, Path(folder, "log"))
    try:
        yield server
    finally:
        server.kill()
