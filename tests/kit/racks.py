"""A cluster whose brokers are in racks, and a Forebay before it with a listener for the clients of each rack."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tests.kit.forebay import ForebayProcess
from tests.kit.kafka import KafkaCluster
from tests.kit.ports import LOOPBACK, free_run

RACKS = ("a", "b", "c")
"""Of brokers 0, 1 and 2."""


def cluster_in_racks(version: str) -> KafkaCluster:
    return KafkaCluster(version, brokers=len(RACKS), racks=dict(enumerate(RACKS)))


class RackedForebay(ForebayProcess):
    """Clients of a rack bootstrap at `at(rack)`."""

    def __init__(self, cluster: KafkaCluster, settings: Mapping[str, str]) -> None:
        super().__init__(cluster.bootstrap, cluster.nodes, settings={"partitioner.rack.aware": "true", **settings})
        self._each = 2 + self.nodes[-1]
        self.port = free_run(self._each * len(RACKS))

    def at(self, rack: str) -> str:
        return f"{LOOPBACK}:{self.port + RACKS.index(rack) * self._each}"

    def command(self) -> list[str]:
        listeners = ",".join(f"{rack}://{self.at(rack)}" for rack in RACKS)
        protocols = ",".join(f"{rack}:PLAINTEXT" for rack in RACKS)
        told = [f"listeners={listeners}", f"listener.security.protocol.map={protocols}"]
        told += [f"listener.name.{rack}.client.rack={rack}" for rack in RACKS]
        command = super().command()
        listen = command.index("--listen")
        return [*command[:listen], *command[listen + 2 :], *(word for each in told for word in ("--set", each))]


def led_in(partition: int) -> str:
    """The rack of a partition's leader, where leaders take turns, as `assignment` has them."""
    return RACKS[partition % len(RACKS)]


def assignment(partitions: int) -> Sequence[Sequence[int]]:
    return [[partition % len(RACKS)] for partition in range(partitions)]
