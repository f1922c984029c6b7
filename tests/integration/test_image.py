"""The image, built of its Dockerfile and started as a kubelet would: real producers through it, to a real Kafka."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, Producer

from tests.integration.route import Route
from tests.kit.image import Built, ImageFailed
from tests.kit.ports import LOOPBACK, free_port, free_run

# Its compiler alone takes a minute of a core, and several where others use it.
pytestmark = [pytest.mark.integration, pytest.mark.whole, pytest.mark.timeout(5400)]

RECORDS = 1000
PARTITIONS = 6
COMPILED = "import forebay_codecs.records as m; assert m.__file__.endswith('.so'), m.__file__"


@pytest.fixture(scope="module")
def image() -> Iterator[Built]:
    with Built() as image:
        yield image


def test_it_serves_producers(image: Built, route: Route, tmp_path: Path) -> None:
    """With the arguments that are the image's own, as nobody in particular, and with nothing that it may write to."""
    nodes = sorted(route.cluster.nodes)
    port = free_run(2 + nodes[-1])
    admin = free_port()
    tmp_path.chmod(0o755)
    settings = tmp_path / "forebay.toml"
    settings.write_text(
        f'"bootstrap.servers" = "{route.cluster.bootstrap}"\n"listen" = "{LOOPBACK}:{port}"\n"workers" = 2\n'
    )
    with image.start(mounts={tmp_path: "/etc/forebay"}, env={"FOREBAY_ADMIN": f"{LOOPBACK}:{admin}"}) as container:
        container.wait_until_ready(f"http://{LOOPBACK}:{admin}/readyz")
        topic = route.new_topic(PARTITIONS)
        told: list[KafkaError | None] = []
        producer = Producer({"bootstrap.servers": f"{LOOPBACK}:{port}"})
        for number in range(RECORDS):
            producer.produce(topic, str(number), on_delivery=lambda error, _: told.append(error))
        assert producer.flush(60) == 0
        assert told == [None] * RECORDS

        user, group = container.identity()
        assert (f"{user}:{group}", user != 0) == (image.config["User"], True)
        assert container.capabilities() == 0
        with pytest.raises(ImageFailed, match="Read-only file system"):
            container.exec("python", "-c", "open('/tmp/something', 'w')")
        container.exec("python", "-c", COMPILED)
        container.exec(*image.health_check)
        assert container.stop() == 0
    assert len(route.log.read(topic, dict.fromkeys(range(PARTITIONS), 0), at_least=RECORDS)) == RECORDS


def test_what_fails_in_it_is_told(image: Built) -> None:
    with image.start(["config", "no.such.setting"]) as container:
        assert container.wait() != 0
        assert "no.such.setting" in container.log.read_text()
