"""Which broker leads which partition, and which topics must be simulated together.

Topics that have a broker in common share its requests and the memory, so they are one group, even if they
share it only by way of a third topic. Simulated apart, each would have all of that to itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

Leaders = Mapping[str, Sequence[int]]


def leaders_of(
    batches: DataFrame, choices: DataFrame, arrivals: DataFrame, brokers: Iterable[int]
) -> dict[str, list[int]]:
    """Topic → the leader of each partition: the last broker that its batches went to.

    Takes batch rows, choice rows, arrivals (arrivals.SCHEMA), and all brokers. Partitions without batches are dealt to
    the leaders of the topic's other partitions; those of topics without any batches, to all brokers.
    """
    last = F.max_by("leader", "time_us").alias("leader")
    led: dict[str, dict[int, int]] = {}
    for row in batches.groupBy("topic", "partition").agg(last).collect():
        led.setdefault(row["topic"], {})[row["partition"]] = row["leader"]
    counts = choices.select("topic", "partitions").union(arrivals.select("topic", F.col("partition") + 1))
    everyone = sorted(brokers)
    leaders = {}
    for row in counts.groupBy("topic").agg(F.max("partitions").alias("partitions")).collect():
        known = led.get(row["topic"], {})
        count = max(row["partitions"], *(partition + 1 for partition in known), 1)
        others = sorted(set(known.values())) or everyone
        leaders[row["topic"]] = [known.get(partition, others[partition % len(others)]) for partition in range(count)]
    return leaders


def groups_of(leaders: Leaders, *, apart: bool = False) -> dict[str, str]:
    """Topic → its group, named after the first topic in it; with `apart` each topic is a group by itself."""
    if apart:
        return {topic: topic for topic in leaders}
    groups: list[tuple[set[int], list[str]]] = []
    for topic in sorted(leaders):
        brokers, topics = set(leaders[topic]), [topic]
        others = []
        for group in groups:
            if brokers.isdisjoint(group[0]):
                others.append(group)
            else:
                brokers |= group[0]
                topics += group[1]
        groups = [*others, (brokers, topics)]
    return {topic: min(topics) for _, topics in groups for topic in topics}
