"""Kafka Connect as a user starts it: a worker of its own with a connector to files, or MirrorMaker 2.

In: addresses of Kafka, and a folder for files of properties and the log. Out: a Server, which the caller ends.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from tests.kit.paths import classpath
from tests.kit.ports import LOOPBACK, free_port
from tests.kit.server import Server

_JVM = ("java", "-Xmx300m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData")
_STRINGS = "org.apache.kafka.connect.storage.StringConverter"
_FILES = "org.apache.kafka.connect.file.FileStream"


def copies_file(
    version: str, bootstrap: str, topic: str, lines: Path, folder: Path, producer: Mapping[str, str]
) -> Server:
    """A worker that sends each line of the file `lines` to `topic`, and reads that into `folder`/out.txt."""
    worker = {
        "bootstrap.servers": bootstrap,
        "key.converter": _STRINGS,
        "value.converter": _STRINGS,
        "offset.storage.file.filename": folder / "offsets",
        "offset.flush.interval.ms": 1000,
        "listeners": f"http://{LOOPBACK}:{free_port()}",
        **{f"producer.{name}": value for name, value in producer.items()},
    }
    source = {"name": "source", "connector.class": f"{_FILES}SourceConnector", "file": lines, "topic": topic}
    sink = {"name": topic, "connector.class": f"{_FILES}SinkConnector", "file": folder / "out.txt", "topics": topic}
    files = [_written(folder / name, of) for name, of in (("worker", worker), ("source", source), ("sink", sink))]
    return _started(version, "org.apache.kafka.connect.cli.ConnectStandalone", files, folder)


Cluster = tuple[str, str]
"""A name for it, and its bootstrap servers."""


def mirrors(
    version: str, source: Cluster, target: Cluster, topic: str, folder: Path, producer: Mapping[str, str]
) -> Server:
    """MirrorMaker 2 from one cluster to another, where the topic is `<the source's name>.<topic>`."""
    (near, near_servers), (far, far_servers) = source, target
    internal = ("offset-syncs.topic", "checkpoints.topic", "heartbeats.topic")
    stores = ("offset.storage", "status.storage", "config.storage")
    settings = {
        "clusters": f"{near},{far}",
        f"{near}.bootstrap.servers": near_servers,
        f"{far}.bootstrap.servers": far_servers,
        f"{near}->{far}.enabled": "true",
        f"{near}->{far}.topics": topic,
        f"{far}->{near}.enabled": "false",
        "replication.factor": 1,
        **{f"{name}.replication.factor": 1 for name in (*internal, *stores)},
        "sync.topic.acls.enabled": "false",  # the brokers have no authorizer
        **{f"{far}.producer.{name}": value for name, value in producer.items()},
    }
    files = [_written(folder / "mirror", settings)]
    return _started(version, "org.apache.kafka.connect.mirror.MirrorMaker", files, folder)


def _written(path: Path, settings: Mapping[str, object]) -> str:
    path.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    return str(path)


def _started(version: str, main: str, files: list[str], folder: Path) -> Server:
    jars = ":".join(map(str, classpath(f"connect-{version}")))
    return Server(f"Connect {version}", [*_JVM, "-cp", jars, main, *files], folder / "log")
