"""Where the kit keeps what it fetched: everything under the project's `.cache/`, which git ignores.

.cache/jars/broker-4.3.1/*.jar     a broker with its dependencies
.cache/jars/clients-2.8.2/*.jar    kafka-clients of that version with its runtime dependencies
.cache/jars/spark-kafka/*.jar      Spark's connector to Kafka with what Spark does not bring itself
.cache/jars/spark-kafka-3.5/*.jar  the same for Spark 3.5 (make test-all)
.cache/jars/spark-iceberg/*.jar    what Spark needs for tables of Iceberg; spark-delta, of Delta; both also for 3.5
.cache/spark-3.5/                  that Spark, beside the newest in the environment (make test-all)
.cache/airflow/                   Airflow in an environment of its own (make test-all)
.cache/jars/spark-s3/*.jar         Hadoop's file system for S3 with what it needs
.cache/jars/hdfs/*.jar             a NameNode and a DataNode (make test-all)
.cache/jars/iceberg-rest/*.jar     a catalog of Iceberg's as a service (make test-all)
.cache/jars/streams-4.3.1/*.jar    Kafka Streams; connect-4.3.1, Connect with MirrorMaker 2 (make test-all)
.cache/classes/                    the kit's own Java, compiled; classes-streams, its application of Kafka Streams
.cache/bin/                        toxiproxy-server, kubeconform, helm, sarama-produce, go-clients, kcat, haproxy, …
.cache/kafka-python-2.0/           kafka-python of that time, beside the newest in the environment
.cache/librdkafka-0.11/            librdkafka of 2018 with the libraries that it needs
.cache/seaweedfs/bin/weed          an object store that speaks S3
.cache/kafka/4.3.1/                class-data archive and a formatted data directory
.cache/axe/                        what judges whether everybody can use the page
.cache/stamps/                     one file a finished step, holding the step's inputs
"""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CACHE = ROOT / ".cache"
JARS = CACHE / "jars"
CLASSES = CACHE / "classes"
STREAMS_CLASSES = CACHE / "classes-streams"
BIN = CACHE / "bin"
KAFKA = CACHE / "kafka"
SEAWEEDFS = CACHE / "seaweedfs"
STAMPS = CACHE / "stamps"
AXE = CACHE / "axe"
AXE_SCRIPT = AXE / "axe_playwright_python" / "axe.min.js"
AIRFLOW = CACHE / "airflow"
OLDEST_SPARK = CACHE / "spark-3.5"
OLDEST_SPARK_KAFKA_JARS = JARS / "spark-kafka-3.5"
OLD_KAFKA_PYTHON = CACHE / "kafka-python-2.0"
OLD_LIBRDKAFKA = CACHE / "librdkafka-0.11"
GO_SOURCES = Path(__file__).resolve().parent / "go"
JAVA_SOURCES = Path(__file__).resolve().parent / "java"

BROKER_VERSIONS = ("4.3.1", "3.9.2")
ANCIENT_CLIENT_VERSIONS = ("0.8.2.2", "0.9.0.1", "0.10.2.2")
"""Those that speak Produce v0, v1 and v2."""
FRAMEWORK_VERSIONS = ("2.8.2", "4.3.1")
"""Of Kafka Streams and Connect."""
CLIENT_VERSIONS = ("1.1.1", "2.3.1", "2.8.2", "3.2.3", "3.9.2", "4.3.1")


class NotSetUp(Exception):
    """Something is missing that `python -m tests.kit.setup` fetches."""


def classpath(folder: str) -> list[Path]:
    """The jars of `broker-V` or `clients-V`, always in the same order: a class-data archive is bound to it."""
    jars = sorted((JARS / folder).glob("*.jar"))
    if not jars:
        raise NotSetUp(f"no jars in {JARS / folder}: run `python -m tests.kit.setup`")
    return jars


def program(name: str) -> Path:
    path = BIN / name
    if not path.exists():
        raise NotSetUp(f"{path} is missing: run `python -m tests.kit.setup`")
    return path
