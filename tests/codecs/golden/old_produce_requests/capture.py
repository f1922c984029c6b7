"""Takes the golden requests: `python -m tests.codecs.golden.old_produce_requests.capture`. Needs tests.kit.setup."""

from __future__ import annotations

from tests.codecs.golden.old_produce_requests.cases import CASES, FOLDER, JAVA, OTHERS, TOPIC, path, spec
from tests.codecs.golden.produce_requests.capture import Relay, keep_only_request
from tests.kit.ancient import AncientProgram
from tests.kit.java import AncientJavaClient
from tests.kit.kafka import KafkaCluster
from tests.kit.ports import free_port

VERSION = "3.9.2"


def main() -> None:
    for old in FOLDER.glob("*.hex"):
        old.unlink()
    port = free_port()
    clients: dict[str, AncientJavaClient | AncientProgram] = {
        **OTHERS,
        **{name: AncientJavaClient(version) for name, version in JAVA.items()},
    }
    with KafkaCluster(VERSION, brokers=1, advertised={0: port}) as cluster:
        cluster.create_topic(TOPIC, partitions=1)
        relay = Relay(port, cluster.ports[0])
        try:
            for name, codec in CASES:
                result = clients[name].produce(cluster.bootstrap, spec(name, codec))
                assert not result.failures, result.failures
                keep_only_request(relay, path(name, codec))
        finally:
            relay.close()
            for client in clients.values():
                if isinstance(client, AncientJavaClient):
                    client.close()


if __name__ == "__main__":
    main()
