"""What is known of topics, and until when it may be told: a cache that minds each topic's own age (KIP-526).

In: topics as brokers tell of them, uses, hints that something has changed, the time. Out: topics that may be served,
encoded for the client's version; names that are to be asked for in the background. No I/O.

Ages, of one topic (`metadata.*.ms`; the defaults):
    0 ─────────── soft.age 60 s ─────────── max.age 300 s
    served        served, and refreshed     asked for before it is served
Refreshes come in groups of `metadata.refresh.group.size`, the most used topics first; each topic's soft age is a little
different, so that what came at once is not refreshed at once. Unused for `metadata.max.idle.ms` a topic is forgotten.
Errors (unknown topics, most of all) are kept for ERROR_AGE_S only. An age counts from when the request left, since
what happens afterwards need not be in the answer.

Rules
1. A leader epoch never goes back: of an answer that is older than what is known, partition by partition, the known
   leader stays. A topic id that differs is another topic of the same name: all of it is new.
2. What was invalidated (its leader turned out wrong) is served when it has been asked for after that, not before.
3. A name that is asked for again by the same client is not answered from what that client was told before
   (`fresh_since`): it asks because something went wrong with it.
4. At most `metadata.max.topics` topics; beyond that the least recently used goes. Errors are counted by themselves, so
   that names that nobody has cannot drive out what is used.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from forebay_codecs import error_codes
from forebay_codecs.metadata import NO_TOPIC_ID, Broker, Metadata, Partition, Topic
from forebay_codecs.metadata_response import LAYOUTS, encode_topic
from forebay_policies.partitioner import Rng

ERROR_AGE_S: Final = 1.0
MAX_ERRORS: Final = 10_000
"""Names that brokers do not know, kept at once."""
JITTER: Final = 0.2
"""The part of the soft age by which a topic's refresh may come sooner."""
NEVER: Final = float("-inf")
_STEPS: Final = 1 << 20


class CachedTopic:
    """One topic. `updated_at` is when it was asked for, `refresh_at` when it is to be asked for again; `uses` since."""

    __slots__ = (
        "_generation",
        "_sections",
        "invalid_at",
        "name",
        "refresh_at",
        "topic",
        "updated_at",
        "used_at",
        "uses",
    )

    def __init__(self, name: str, topic: Topic, updated_at: float, refresh_at: float) -> None:
        self.name = name
        self.topic = topic
        self.updated_at = updated_at
        self.refresh_at = refresh_at
        self.used_at = updated_at
        self.uses = 0
        self.invalid_at = NEVER
        self._sections: dict[int, bytes] = {}
        self._generation = -1

    @property
    def error(self) -> bool:
        """There is nothing to be had but this error. (A topic may have one and partitions as well.)"""
        return self.topic.error_code != error_codes.NONE and not self.topic.partitions

    def replace(self, topic: Topic) -> None:
        self.topic = topic
        self._sections = {}

    def section(self, version: int, brokers: Brokers) -> bytes:
        """Its part of a response, made once."""
        layout = LAYOUTS[version]
        section = self._sections.get(layout)
        # v0 alone depends on the brokers.
        if section is None or (layout == 0 and self._generation != brokers.generation):
            section = self._sections[layout] = encode_topic(self.topic, version, brokers.there)
            self._generation = brokers.generation
        return section


class Served(NamedTuple):
    """Topics as a response has them: their sections, when the oldest was asked for, and whether any has an error."""

    sections: list[bytes]
    updated_at: float
    bad: bool


@dataclass(slots=True)
class Brokers:
    """The cluster itself, as the last answer had it. `generation` counts how often other brokers were there."""

    there: Mapping[int, Broker]
    cluster_id: str | None
    controller_id: int
    updated_at: float
    generation: int = 0


@dataclass(frozen=True, slots=True)
class Ages:
    """In seconds; the settings of the same names."""

    soft: float
    max: float
    idle: float

    @classmethod
    def of_ms(cls, soft: int, most: int, idle: int) -> Ages:
        """A soft age beyond the max age means the max age."""
        return cls(min(soft, most) / 1000, most / 1000, idle / 1000)


class MetadataCache:
    """See the module. `now` and all times are in seconds of the caller's clock."""

    def __init__(self, ages: Ages, max_topics: int, group_size: int, rng: Rng) -> None:
        self.brokers: Brokers | None = None
        self._ages = ages
        self._max_topics = max_topics
        self._group_size = group_size
        self._rng = rng
        self._topics: OrderedDict[str, CachedTopic] = OrderedDict()  # least recently used first
        self._errors: OrderedDict[str, CachedTopic] = OrderedDict()  # oldest first
        self._names: dict[bytes, str] = {}
        self._brokers_invalid_at = NEVER
        self._valid_from = NEVER
        self._all_at: float | None = None
        self._all_used_at = 0.0

    def __len__(self) -> int:
        return len(self._topics)

    # What may be served

    def find(self, name: str, now: float, fresh_since: float = NEVER) -> CachedTopic | None:
        """The topic, if it may be served: else it must be asked for. `fresh_since`: what is older will not do."""
        known = self._topics.get(name)
        if known is None:
            known = self._errors.get(name)
            if known is None or not now - known.updated_at < ERROR_AGE_S:
                return None
        return known if known.updated_at > max(self._too_old(now, fresh_since), known.invalid_at) else None

    def _too_old(self, now: float, fresh_since: float) -> float:
        """What was asked for until then is not served, whatever it is."""
        return max(fresh_since, self._valid_from, now - self._ages.max)

    def knows(self, name: str) -> bool:
        return name in self._topics

    def find_sound(
        self, names: Iterable[str], now: float, fresh_since: float
    ) -> tuple[dict[str, CachedTopic], list[str]]:
        """Those of `names` that may be served and have no error; and all others, to be looked at one by one."""
        found: dict[str, CachedTopic] = {}
        others: list[str] = []
        topics = self._topics
        too_old = self._too_old(now, fresh_since)
        for name in names:
            known = topics.get(name)
            if known is None or known.topic.error_code or known.updated_at <= max(too_old, known.invalid_at):
                others.append(name)
            else:
                found[name] = known
        return found, others

    def serve(self, topics: list[CachedTopic], version: int, now: float) -> Served:
        """They are used."""
        brokers = self.brokers
        assert brokers is not None
        sections: list[bytes] = []
        oldest = brokers.updated_at
        bad = False
        for known in topics:
            sections.append(known.section(version, brokers))
            self.use(known, now)
            if known.updated_at < oldest:
                oldest = known.updated_at
            if known.topic.error_code:
                bad = True
        return Served(sections, oldest, bad)

    def name_of(self, topic_id: bytes) -> str | None:
        """The name that the topic of that id had when it was last asked for."""
        return self._names.get(topic_id)

    def touch(self, name: str, used_at: float) -> None:
        """Records were produced to it."""
        known = self._topics.get(name)
        if known is not None and known.used_at < used_at:
            self.use(known, used_at)

    def use(self, known: CachedTopic, now: float) -> None:
        """It is served."""
        known.used_at = now
        known.uses += 1
        if known.name in self._topics:
            self._topics.move_to_end(known.name)

    def everything(self, now: float, fresh_since: float = NEVER) -> list[CachedTopic] | None:
        """All topics of the cluster, as far as they may be served; None: they must be asked for.

        Topics that were made since the list was asked for are in it as soon as anybody asked for them by name.
        """
        at = self._all_at
        if at is None or at <= self._too_old(now, fresh_since):
            return None
        topics = list(self._topics.values())
        if any(self.find(known.name, now) is None for known in topics):
            return None
        self._all_used_at = now
        return topics

    def cluster(self, now: float, fresh_since: float = NEVER) -> Brokers | None:
        """The brokers, if they may be served."""
        known = self.brokers
        if known is None or known.updated_at <= max(self._too_old(now, fresh_since), self._brokers_invalid_at):
            return None
        return known

    # What was learned

    def store(
        self, metadata: Metadata, names: Iterable[str], asked_at: float, all_topics: bool = False
    ) -> dict[str, CachedTopic]:
        """An answer to a request of `asked_at` for `names` (or for all), by name. Those not in it are unknown."""
        self._store_brokers(metadata, asked_at)
        found = {
            topic.name: self._store_topic(topic.name, topic, asked_at)
            for topic in metadata.topics
            if topic.name is not None
        }
        for name in names:
            if name not in found:
                unknown = Topic(error_codes.UNKNOWN_TOPIC_OR_PARTITION, name, NO_TOPIC_ID, False, ())
                found[name] = self._store_topic(name, unknown, asked_at)
        if all_topics:
            there = {topic.name for topic in metadata.topics}
            for name in [known.name for known in self._topics.values() if known.name not in there]:
                if self._topics[name].updated_at <= asked_at:
                    self._drop(name)
            self._all_at = asked_at if len(metadata.topics) <= self._max_topics else None
            self._all_used_at = max(self._all_used_at, asked_at)
        return found

    def _store_brokers(self, metadata: Metadata, asked_at: float) -> None:
        before = self.brokers
        self.brokers = Brokers(metadata.brokers, metadata.cluster_id, metadata.controller_id, asked_at)
        if before is not None:
            self.brokers.generation = before.generation + (before.there.keys() != metadata.brokers.keys())

    def _store_topic(self, name: str, topic: Topic, asked_at: float) -> CachedTopic:
        known = self._topics.get(name)
        if topic.error_code != error_codes.NONE and not topic.partitions:
            if known is not None and topic.error_code != error_codes.UNKNOWN_TOPIC_OR_PARTITION:
                return known  # for the moment: what is known ages on
            self._drop(name)
            error = self._errors[name] = CachedTopic(name, topic, asked_at, asked_at)
            self._errors.move_to_end(name)
            if len(self._errors) > MAX_ERRORS:
                self._errors.popitem(last=False)
            return error
        self._errors.pop(name, None)
        refresh_at = asked_at + self._ages.soft * (1 - JITTER * self._rng.randrange(_STEPS) / _STEPS)
        if known is None:
            known = self._topics[name] = CachedTopic(name, topic, asked_at, refresh_at)
            self._evict()
        else:
            if known.topic.topic_id == topic.topic_id:
                topic = _newest(known.topic, topic)
            elif known.topic.topic_id != NO_TOPIC_ID:
                self._names.pop(known.topic.topic_id, None)
            if known.topic != topic:
                known.replace(topic)
            known.updated_at, known.refresh_at, known.uses = asked_at, refresh_at, 0
        if topic.topic_id != NO_TOPIC_ID:
            self._names[topic.topic_id] = name
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
        """What is known of it turned out wrong."""
        known = self._topics.get(name)
        if known is not None:
            known.invalid_at = now
        self._errors.pop(name, None)

    def invalidate_node(self, node_id: int, now: float) -> list[str]:
        """A broker was lost: what it led (these topics) may be led by others, and the cluster may do without it."""
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
        """An administrator has changed topics, or met another controller: what is known by `until` is not served."""
        self._valid_from = until
        self._errors.clear()

    def new_leader(self, name: str, partition: int, leader_id: int, leader_epoch: int) -> bool:
        """A broker named a partition's leader (KIP-951). False where that is no news."""
        known = self._topics.get(name)
        if known is None:
            return False
        partitions = list(known.topic.partitions)
        for place, found in enumerate(partitions):
            if found.partition_index == partition and found.leader_epoch < leader_epoch:
                partitions[place] = found._replace(
                    error_code=error_codes.NONE, leader_id=leader_id, leader_epoch=leader_epoch
                )
                known.replace(known.topic._replace(partitions=tuple(partitions)))
                return True
        return False

    # What is to be asked for

    def due(self, now: float) -> list[str]:
        """The next group to be refreshed: the most used of those past their soft age. No more than a group."""
        stale = [known for known in self._topics.values() if known.refresh_at <= now]
        stale.sort(key=lambda known: known.uses, reverse=True)
        return [known.name for known in stale[: self._group_size]]

    def all_due(self, now: float) -> bool:
        """Whether the list of all topics is to be refreshed: it is past its soft age, and used."""
        at = self._all_at
        return at is not None and now - at >= self._ages.soft and self._all_used_at > at

    def next_due(self, now: float) -> float:
        """Seconds until `due` or `all_due` may have something."""
        times = [known.refresh_at for known in self._topics.values()]
        if self._all_at is not None and self._all_used_at > self._all_at:
            times.append(self._all_at + self._ages.soft)
        return max(0.0, min(times) - now) if times else self._ages.soft

    def postpone(self, names: Iterable[str], until: float) -> None:
        """A refresh has failed, or is under way: not again before that."""
        for name in names:
            known = self._topics.get(name)
            if known is not None:
                known.refresh_at = max(known.refresh_at, until)

    def forget_idle(self, now: float) -> list[str]:
        """Drop what nobody used for the idle time; the list of all topics counts as a use of each."""
        if self._all_at is not None and now - self._all_used_at > self._ages.idle:
            self._all_at = None
        if self._all_at is not None:
            return []
        idle = [known.name for known in self._topics.values() if now - known.used_at > self._ages.idle]
        for name in idle:
            self._drop(name)
        return idle


def _newest(known: Topic, told: Topic) -> Topic:
    """`told`, but with the leaders of `known` where they are of a later epoch."""
    before: dict[int, Partition] = {partition.partition_index: partition for partition in known.partitions}
    partitions = []
    for partition in told.partitions:
        earlier = before.get(partition.partition_index)
        if earlier is not None and earlier.leader_epoch > partition.leader_epoch >= 0:
            partition = partition._replace(
                error_code=earlier.error_code, leader_id=earlier.leader_id, leader_epoch=earlier.leader_epoch
            )
        partitions.append(partition)
    return told._replace(partitions=tuple(partitions))
