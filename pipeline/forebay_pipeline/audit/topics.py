"""The topics themselves: their offsets now, and their records in given ranges of offsets.

Raises CannotRun if no broker answers, or if one does not answer a question within a minute.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Final, Protocol

import msgspec
from confluent_kafka import TopicCollection, Uuid
from confluent_kafka.admin import ConfigResource, OffsetSpec  # type: ignore[attr-defined]
from pyspark.sql import DataFrame, SparkSession

from forebay_pipeline.audit.ranges import Ends, Range, TopicNow
from forebay_pipeline.errors import CannotRun
from forebay_pipeline.journal.brokers import ANSWER_S, BrokerClient, Brokers, answers

RECORD_COLUMNS: Final = "topic string, partition int, offset bigint, key binary, value binary"

_A_TASK: Final = 250_000
"""Offsets that one task reads, so that a large partition is shared by several tasks."""


class TopicEnds(Protocol):
    """Where jobs find out how far topics go."""

    def cluster_id(self) -> str:
        """That of the cluster; empty if it has none. Raises CannotRun without an answer."""

    def told(self, names: Collection[str], *, policies: bool) -> tuple[dict[str, TopicNow], dict[str, CannotRun]]:
        """A TopicNow for each of the topics that is told of, and for each other one that exists why it is not.

        Without `policies` it is not asked which are compacted. Raises CannotRun without any answer.
        """


class Topics(TopicEnds, Protocol):
    """Where an audit finds out what topics hold."""

    def now(self, names: Collection[str]) -> dict[str, TopicNow]:
        """A TopicNow for each of the topics that exists. Raises CannotRun unless all of them are told of."""

    def records(self, spark: SparkSession, ranges: Sequence[Range]) -> DataFrame:
        """The records of the ranges in RECORD_COLUMNS; it may have others, too."""


class KafkaTopics:
    """Topics in a cluster. Asks the brokers directly, not through the proxy."""

    def __init__(self, brokers: Brokers) -> None:
        self._brokers = brokers
        self._client = BrokerClient(brokers)

    def cluster_id(self) -> str:
        """That of the cluster; empty if it has none. Raises CannotRun without an answer."""
        return self._client.cluster_id()

    def now(self, names: Collection[str]) -> dict[str, TopicNow]:
        """A TopicNow for each of the topics that exists. Raises CannotRun unless all of them are told of."""
        found, untold = self.told(names, policies=True)
        if untold:
            raise next(iter(untold.values()))
        return found

    def told(self, names: Collection[str], *, policies: bool) -> tuple[dict[str, TopicNow], dict[str, CannotRun]]:
        """A TopicNow for each of the topics that is told of, and for each other one that exists why it is not.

        A partition without a leader is enough. Without `policies`, which takes DescribeConfigs, none is said to be
        compacted. Raises CannotRun if no broker answers at all.
        """
        known = self._client.topics()
        found = {name: sorted(known[name].partitions) for name in names if name in known}
        untold: dict[str, CannotRun] = {}
        earliest = self._offsets(found, OffsetSpec.earliest(), untold)  # type: ignore[no-untyped-call]
        latest = self._offsets(found, OffsetSpec.latest(), untold)  # type: ignore[no-untyped-call]
        compacted = self._compacted(found, untold) if policies else dict.fromkeys(found, False)
        ids = self._ids(found, untold)
        told = {
            name: TopicNow(
                {number: Ends(earliest[name, number], latest[name, number]) for number in numbers},
                compacted[name],
                ids[name],
            )
            for name, numbers in found.items()
            if name not in untold
        }
        return told, untold

    # Of the topics that nothing is wrong with so far

    def _offsets(
        self, found: Mapping[str, Collection[int]], which: OffsetSpec, untold: dict[str, CannotRun]
    ) -> dict[tuple[str, int], int]:
        wanted = {name: numbers for name, numbers in found.items() if name not in untold}
        return self._client.offsets(wanted, which, untold)

    def _ids(self, found: Collection[str], untold: dict[str, CannotRun]) -> dict[str, str]:
        names = [name for name in found if name not in untold]
        if not names:
            return {}
        asked = self._client.admin.describe_topics(TopicCollection(names), request_timeout=ANSWER_S)
        told = answers({(name, None): topic for name, topic in asked.items()}, untold)
        return {name: _printable(topic.topic_id) for (name, _), topic in told.items()}

    def _compacted(self, found: Collection[str], untold: dict[str, CannotRun]) -> dict[str, bool]:
        resources = [ConfigResource(ConfigResource.Type.TOPIC, name) for name in found if name not in untold]
        if not resources:
            return {}
        asked = self._client.admin.describe_configs(resources, request_timeout=ANSWER_S)
        told = answers({(resource.name, None): settings for resource, settings in asked.items()}, untold)
        return {name: "compact" in settings["cleanup.policy"].value for (name, _), settings in told.items()}

    def records(self, spark: SparkSession, ranges: Sequence[Range]) -> DataFrame:
        """The records of the ranges in RECORD_COLUMNS; expired ones are silently missing."""
        wanted = [each for each in ranges if each.first < each.last_end]
        if not wanted:
            return spark.createDataFrame([], RECORD_COLUMNS)
        options = {
            **self._brokers.for_spark(),
            "assign": _by_topic(wanted, lambda topic: [each.partition for each in topic]),
            "startingOffsets": _by_topic(wanted, lambda topic: {str(each.partition): each.first for each in topic}),
            "endingOffsets": _by_topic(wanted, lambda topic: {str(each.partition): each.last_end for each in topic}),
            # Records that expire meanwhile are noticed afterwards (run.audit).
            "failOnDataLoss": "false",
            # All is there already. A task is over once its consumer's next request, at the end of the log, is answered.
            "kafka.fetch.max.wait.ms": "10",
            "minPartitions": str(max(len(wanted), sum(each.last_end - each.first for each in wanted) // _A_TASK)),
        }
        records = spark.read.format("kafka").options(**options).load()
        return records.select("topic", "partition", "offset", "key", "value")


def _by_topic(ranges: Iterable[Range], tell: Callable[[list[Range]], object]) -> str:
    topics: dict[str, list[Range]] = defaultdict(list)
    for each in ranges:
        topics[each.topic].append(each)
    return msgspec.json.encode({topic: tell(of_topic) for topic, of_topic in topics.items()}).decode()


def _printable(topic_id: Uuid | None) -> str:
    """As Kafka writes it, and the ledger, safe in URLs; empty if brokers are too old to have any."""
    return str(topic_id).replace("+", "-").replace("/", "_") if topic_id is not None else ""
