"""A cache of topic metadata in which every topic has an age of its own (KIP-526).

In: topics from brokers' responses, uses, hints that something has changed, the time. Out: topics that may be served,
encoded for the client's version; names to be refreshed in the background. No I/O.

Ages, of one topic (`metadata.*.ms`; the defaults):
    0 ─────────── soft.age 60 s ─────────── max.age 300 s
    served        served, and refreshed     asked for before it is served
Refreshes come in groups of `metadata.refresh.group.size`, the most used topics first. Soft ages vary a little, so that
topics fetched together are not refreshed together. A topic unused for `metadata.max.idle.ms` is forgotten. If it is in
the list of all topics, and that is used, it is kept, and refreshed with the list alone; beyond its soft age it is asked
for before it is served by name.
Errors (mostly unknown topics) are kept for ERROR_AGE_S only, and a topic without a leader somewhere is served for no
longer: many a client asks for it once, and fails. An age counts from when the request was sent, since the response need
not reflect anything later.

Rules
1. Leader epochs do not go back: where a response is older than what is known of a partition, the known leader stays. A
   different topic id means another topic of the same name, of which nothing is known. But where lower epochs are all
   that has been told for LOWER_S, they are believed: a cluster's metadata may have been restored, or brokers have no
   topic ids. There, a topic whose epochs all begin anew is another one.
2. What was invalidated (its leader turned out wrong) is not served until it has been asked for again.
3. A repeated question of the same client is not answered with what that client was told before (`fresh_since`): it asks
   because that evidently failed.
4. At most `metadata.max.topics` topics; beyond that the least recently used is evicted. Errors are counted separately,
   so that names that do not exist cannot evict topics in use.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from forebay_codecs import error_codes
from forebay_codecs.metadata import NO_TOPIC_ID, Broker, Metadata, Partition, Topic
from forebay_policies.described_topic import DescribedTopic, DescribedTopics
from forebay_policies.partitioner import Rng

ERROR_AGE_S: Final = 1.0
MAX_ERRORS: Final = 10_000
"""The most names with an error that are kept at a time."""
JITTER: Final = 0.2
"""A topic is refreshed earlier by up to this part of its soft age."""
LOWER_S: Final = 5.0
"""By then a broker that lags behind has mostly heard of a new leader, or another one was asked."""
NEVER: Final = float("-inf")
_NONE_LOWER: Final[dict[int, float]] = {}
_TAKEN_AWAY: Final = (error_codes.UNKNOWN_TOPIC_OR_PARTITION, error_codes.TOPIC_AUTHORIZATION_FAILED)
"""It is not there any more, or not for this user: what was known of it is not served any more."""
_STEPS: Final = 1 << 20


class CachedTopic:
    """One topic: `updated_at` is when it was last asked for, `refresh_at` when it is due again, `uses` counts since.

    `used_at` is when it was last used by name, or records came for it; NEVER: it is kept for the list of all alone.
    `lower_since`: by partition, since when lower leader epochs than the known one are all that is told.
    """

    __slots__ = (
        "described",
        "invalid_at",
        "lower_since",
        "name",
        "refresh_at",
        "topic",
        "updated_at",
        "used_at",
        "uses",
    )

    def __init__(self, name: str, described: DescribedTopic, updated_at: float, refresh_at: float) -> None:
        self.name = name
        self.described = described
        self.topic = described.topic
        self.updated_at = updated_at
        self.refresh_at = refresh_at
        self.used_at = updated_at
        self.uses = 0
        self.invalid_at = NEVER
        self.lower_since = _NONE_LOWER

    @property
    def error(self) -> bool:
        """Nothing is known but this error. (A topic may have an error and partitions as well.)"""
        return self.topic.error_code != error_codes.NONE and not self.topic.partitions

    @property
    def only_listed(self) -> bool:
        """It is refreshed with the list of all topics, not by itself."""
        return self.used_at == NEVER

    def replace(self, described: DescribedTopic) -> None:
        """Take a newer description of the topic."""
        self.described = described
        self.topic = described.topic


class Served(NamedTuple):
    """The topics of a response: encoded sections, `updated_at` of the oldest, and whether any is not sound (`bad`)."""

    sections: list[bytes]
    updated_at: float
    bad: bool


@dataclass(slots=True)
class Brokers:
    """The cluster as of the last response: brokers in `there` by node id; their `ids`."""

    there: Mapping[int, Broker]
    cluster_id: str | None
    controller_id: int
    updated_at: float
    ids: frozenset[int] = field(init=False)

    def __post_init__(self) -> None:
        self.ids = frozenset(self.there)


@dataclass(slots=True)
class Ages:
    """`metadata.soft.age.ms`, `metadata.max.age.ms` and `metadata.max.idle.ms`, in seconds.

    They may change at any time: whoever needs one looks here.
    """

    soft: float
    max: float
    idle: float

    @classmethod
    def of_ms(cls, soft: int, max_age: int, idle: int) -> Ages:
        """From the settings in ms. A soft age beyond the max age counts as the max age."""
        return cls(min(soft, max_age) / 1000, max_age / 1000, idle / 1000)

    def become(self, others: Ages) -> None:
        """The same as these, from now on."""
        self.soft, self.max, self.idle = others.soft, others.max, others.idle


class MetadataCache:
    """Never serves a topic beyond its age, nor one known to be wrong, nor a leader older than one already served.

    All times are in seconds of the caller's clock. `max_topics` and `group_size` as in the settings. `described` may be
    shared with others.
    """

    def __init__(
        self, ages: Ages, max_topics: int, group_size: int, rng: Rng, described: DescribedTopics | None = None
    ) -> None:
        self._described = described if described is not None else DescribedTopics()
        self.brokers: Brokers | None = None
        self.ages = ages
        self._max_topics = max_topics
        self._group_size = group_size
        self._rng = rng
        self._topics: OrderedDict[str, CachedTopic] = OrderedDict()  # least recently used first
        self._errors: OrderedDict[str, CachedTopic] = OrderedDict()  # oldest first
        self._names: dict[bytes, str] = {}
        self._brokers_invalid_at = NEVER
        self._valid_from = NEVER
        self._all_at: float | None = None
        self._all_used_at = NEVER

    def __len__(self) -> int:
        return len(self._topics)

    # What may be served

    def find(self, name: str, now: float, fresh_since: float = NEVER) -> CachedTopic | None:
        """The topic, if it may be served, else None: ask for it. What is not newer than `fresh_since` is not served."""
        known = self._topics.get(name) or self._errors.get(name)
        if known is None or (not known.described.sound and now - known.updated_at >= ERROR_AGE_S):
            return None
        if known.only_listed and now - known.updated_at >= self.ages.soft:
            return None
        return known if known.updated_at > max(self._too_old(now, fresh_since), known.invalid_at) else None

    def _too_old(self, now: float, fresh_since: float) -> float:
        """Nothing that was asked for at or before this time may be served."""
        return max(fresh_since, self._valid_from, now - self.ages.max)

    def knows(self, name: str) -> bool:
        """Whether the topic is cached, fresh or not."""
        return name in self._topics

    def find_sound(
        self, names: Iterable[str], now: float, fresh_since: float
    ) -> tuple[dict[str, CachedTopic], list[str]]:
        """(those of `names` that may be served and are sound, all other names, to be looked at one by one)."""
        found: dict[str, CachedTopic] = {}
        others: list[str] = []
        topics = self._topics
        too_old = self._too_old(now, fresh_since)
        for name in names:
            known = topics.get(name)
            if (
                known is None
                or not known.described.sound
                or known.updated_at <= max(too_old, known.invalid_at)
                or known.only_listed
            ):
                others.append(name)
            else:
                found[name] = known
        return found, others

    def serve(
        self,
        topics: list[CachedTopic],
        version: int,
        now: float,
        ids: frozenset[int],
        *,
        all_topics: bool = False,
        one_broker: bool = False,
    ) -> Served:
        """The sections of `topics` for a response of `version`. A response must have come.

        Counts as a use of each, but for `all_topics`. `ids`: of the brokers that the response names. `one_broker`: for
        a client that knows of one only (codecs.one_broker).
        """
        brokers = self.brokers
        assert brokers is not None
        sections: list[bytes] = []
        oldest = brokers.updated_at
        bad = False
        for known in topics:
            sections.append(known.described.section(version, ids, one_broker=one_broker))
            if not all_topics:
                self.use(known, now)
            if known.updated_at < oldest:
                oldest = known.updated_at
            if not known.described.sound:
                bad = True
        return Served(sections, oldest, bad)

    def name_of(self, topic_id: bytes) -> str | None:
        """The name of the topic with that id when it was last asked for; None if unknown."""
        return self._names.get(topic_id)

    def touch(self, name: str, used_at: float) -> None:
        """Records were produced to the topic: counts as a use."""
        known = self._topics.get(name)
        if known is not None and known.used_at < used_at:
            self.use(known, used_at)

    def use(self, known: CachedTopic, now: float) -> None:
        """Count a use."""
        known.used_at = now
        known.uses += 1
        if known.name in self._topics:
            self._topics.move_to_end(known.name)

    def everything(self, now: float, fresh_since: float = NEVER) -> list[CachedTopic] | None:
        """All topics of the cluster; None if the list or any of them may not be served: ask for all.

        A topic created since the list was asked for is included once anybody has asked for it by name. One without a
        leader is as old as in the list: it may stay so for days, and a list is large.
        """
        at = self._all_at
        if at is None or at <= self._too_old(now, fresh_since):
            return None
        if now - at >= self.ages.soft and self._all_used_at <= at:  # nor was it refreshed
            return None
        topics = list(self._topics.values())
        too_old = self._too_old(now, NEVER)
        if any(known.updated_at <= max(too_old, known.invalid_at) for known in topics):
            return None
        self._all_used_at = now
        return topics

    def cluster(self, now: float, fresh_since: float = NEVER) -> Brokers | None:
        """The brokers, if they may be served, else None: ask for them."""
        known = self.brokers
        if known is None or known.updated_at <= max(self._too_old(now, fresh_since), self._brokers_invalid_at):
            return None
        return known

    # What was learned

    def store(
        self,
        metadata: Metadata,
        names: Iterable[str],
        asked_at: float,
        *,
        all_topics: bool = False,
        creates: bool = False,
    ) -> dict[str, CachedTopic]:
        """Take the response to a request, sent at `asked_at`, for `names` or for all topics; return its topics by name.

        Those of `names` that it lacks are unknown topics. `creates`: the request allowed topics to be created. Who may
        not is refused, which tells nothing of the topic: it is left out.
        """
        self.brokers = Brokers(metadata.brokers, metadata.cluster_id, metadata.controller_id, asked_at)
        there = {topic.name for topic in metadata.topics}
        if all_topics:  # first, so that they make room
            for name in [known.name for known in self._topics.values() if known.name not in there]:
                if self._topics[name].updated_at <= asked_at:
                    self._drop(name)
        refusal = error_codes.TOPIC_AUTHORIZATION_FAILED
        refused = {topic.name for topic in metadata.topics if creates and topic.error_code == refusal}
        found = {
            topic.name: self._store_topic(topic.name, topic, asked_at, listed=all_topics)
            for topic in metadata.topics
            if topic.name is not None and topic.name not in refused
        }
        for name in names:
            if name not in found and name not in refused:
                code = error_codes.UNKNOWN_TOPIC_OR_PARTITION
                unknown = Topic(code, name, NO_TOPIC_ID, is_internal=False, partitions=())
                found[name] = self._store_topic(name, unknown, asked_at)
        if all_topics:
            self._all_at = asked_at if self._topics.keys() >= there else None
            self._all_used_at = max(self._all_used_at, asked_at)
        return found

    def _store_topic(self, name: str, topic: Topic, asked_at: float, *, listed: bool = False) -> CachedTopic:
        known = self._topics.get(name)
        if topic.error_code != error_codes.NONE and not topic.partitions:
            if known is not None and topic.error_code not in _TAKEN_AWAY:
                return known  # a passing error: what is known stays, and ages
            self._drop(name)
            error = self._errors[name] = CachedTopic(name, DescribedTopic(topic), asked_at, asked_at)
            self._errors.move_to_end(name)
            if len(self._errors) > MAX_ERRORS:
                self._errors.popitem(last=False)
            return error
        self._errors.pop(name, None)
        refresh_at = asked_at + self.ages.soft * (1 - JITTER * self._rng.randrange(_STEPS) / _STEPS)
        if known is None:
            described = self._described.of(topic)
            name = described.topic.name or name
            known = self._topics[name] = CachedTopic(name, described, asked_at, refresh_at)
            if listed:
                known.used_at = NEVER
                self._topics.move_to_end(name, last=False)
        else:
            if known.topic.topic_id == topic.topic_id:
                topic, known.lower_since = _newest(known, topic, asked_at)
            else:
                self._names.pop(known.topic.topic_id, None)
                known.lower_since = _NONE_LOWER
            if known.topic != topic:
                known.replace(self._described.of(topic))
            known.updated_at, known.refresh_at, known.uses = asked_at, refresh_at, 0
        if topic.topic_id != NO_TOPIC_ID:
            self._names[known.topic.topic_id] = known.name
        self._evict()
        return known

    def _evict(self) -> None:
        while len(self._topics) > self._max_topics:
            self._drop(next(iter(self._topics)))
            self._all_at = None

    def _drop(self, name: str) -> None:
        known = self._topics.pop(name, None)
        if known is not None:
            self._names.pop(known.topic.topic_id, None)

    # Hints

    def invalidate(self, name: str, now: float) -> None:
        """What is known of the topic turned out to be wrong."""
        known = self._topics.get(name)
        if known is not None:
            known.invalid_at = now
        self._errors.pop(name, None)

    def invalidate_node(self, node_id: int, now: float) -> list[str]:
        """A broker was lost: invalidate the list of brokers and topics of which it led a partition; return these."""
        led = [
            known
            for known in self._topics.values()
            if any(partition.leader_id == node_id for partition in known.topic.partitions)
        ]
        for known in led:
            known.invalid_at = now
        self._brokers_invalid_at = now
        return [known.name for known in led]

    def invalidate_all(self, until: float) -> None:
        """Topics were changed, or the controller was: nothing that was asked for up to `until` is served any more."""
        self._valid_from = until
        self._errors.clear()

    def new_leaders(self, name: str, named: Mapping[int, tuple[int, int]]) -> dict[int, int]:
        """Take leaders of a topic as named by a broker (KIP-951), by partition the node id and the epoch.

        Returns those that are newer than what is known, by partition the node id. Takes as long as the topic is large.
        """
        known = self._topics.get(name)
        if known is None:
            return {}
        news: dict[int, int] = {}
        partitions = list(known.topic.partitions)
        for place, found in enumerate(partitions):
            leader = named.get(found.partition_index)
            if leader is None or found.leader_epoch > leader[1]:
                continue
            known.lower_since.pop(found.partition_index, None)
            if found.leader_epoch < leader[1]:
                partitions[place] = found._replace(
                    error_code=error_codes.NONE, leader_id=leader[0], leader_epoch=leader[1]
                )
                news[found.partition_index] = leader[0]
        if news:
            known.replace(self._described.of(known.topic._replace(partitions=tuple(partitions))))
        return news

    # What is to be asked for

    def due(self, now: float) -> list[str]:
        """The next names to refresh: the most used topics past their soft age, at most one group."""
        stale = [known for known in self._topics.values() if known.refresh_at <= now and not known.only_listed]
        stale.sort(key=lambda known: known.uses, reverse=True)
        return [known.name for known in stale[: self._group_size]]

    def all_due(self, now: float) -> bool:
        """Whether to refresh the list of all topics: it is past its soft age and has been used."""
        at = self._all_at
        return at is not None and now - at >= self.ages.soft and self._all_used_at > at

    def next_due(self, now: float) -> float:
        """Seconds until `due` or `all_due` may have something to refresh."""
        times = [known.refresh_at for known in self._topics.values() if not known.only_listed]
        if self._all_at is not None and self._all_used_at > self._all_at:
            times.append(self._all_at + self.ages.soft)
        return max(0.0, min(times) - now) if times else self.ages.soft

    def postpone(self, names: Iterable[str], until: float) -> None:
        """A refresh has failed or is under way: these are not due again before `until`."""
        for name in names:
            known = self._topics.get(name)
            if known is not None:
                known.refresh_at = max(known.refresh_at, until)

    def forget_idle(self, now: float) -> list[str]:
        """Drop topics unused for the idle time; return their names. While the list of all is used none is dropped."""
        idle = [known for known in self._topics.values() if now - known.used_at > self.ages.idle]
        if now - self._all_used_at <= self.ages.idle:
            for known in idle:
                known.used_at = NEVER
            return []
        self._all_at = None
        for known in idle:
            self._drop(known.name)
        return [known.name for known in idle]


def _newest(known: CachedTopic, told: Topic, asked_at: float) -> tuple[Topic, dict[int, float]]:
    """`told`, with the leaders of `known` where their epoch is later and not refuted yet; these, and since when."""
    before: dict[int, Partition] = {partition.partition_index: partition for partition in known.topic.partitions}
    anew = told.topic_id == NO_TOPIC_ID and _begins_anew(before, told.partitions)
    lower_since: dict[int, float] = {}
    partitions = []
    for partition in told.partitions:
        index = partition.partition_index
        earlier = before.get(index)
        if earlier is not None and earlier.leader_epoch > partition.leader_epoch >= 0 and not anew:
            since = known.lower_since.get(index, asked_at)
            if asked_at - since < LOWER_S:
                lower_since[index] = since
                partition = partition._replace(
                    error_code=earlier.error_code, leader_id=earlier.leader_id, leader_epoch=earlier.leader_epoch
                )
        partitions.append(partition)
    return told._replace(partitions=tuple(partitions)), lower_since or _NONE_LOWER


def _begins_anew(before: Mapping[int, Partition], told: Iterable[Partition]) -> bool:
    """Whether each partition has its first epoch, each that was there had a later one, and one of these a third: a
    broker that lags behind by one change of leaders tells the first, too."""
    latest = 0
    for partition in told:
        earlier = before.get(partition.partition_index)
        if partition.leader_epoch != 0 or (earlier is not None and earlier.leader_epoch <= 0):
            return False
        if earlier is not None:
            latest = max(latest, earlier.leader_epoch)
    return latest > 1
