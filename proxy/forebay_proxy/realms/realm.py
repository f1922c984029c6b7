"""All that belongs to one identity at the brokers, put together: its records never meet those of another.

    handler → accumulator → dispatcher → senders → delivery → completions
                   ↑                        ↑
    metadata ← updater → cluster        connections that log in as this identity

In: what realms share, and how this one's connections log in. Out: a produce path and a Metadata path of its own. A part
is given what it needs when it is constructed; whoever wants to hear of another's news registers with it there.
"""

from __future__ import annotations

from collections.abc import Coroutine, Iterator
from dataclasses import dataclass, field
from random import Random
from typing import NamedTuple

from forebay_policies.accumulator import Accumulator
from forebay_policies.buffer_pool import BufferPool
from forebay_policies.departed_brokers import DepartedBrokers
from forebay_policies.described_topic import DescribedTopics
from forebay_policies.eligibility import Eligibility, Observed
from forebay_policies.loop_turns import LoopTurns
from forebay_policies.metadata_cache import Ages, MetadataCache
from forebay_policies.throttling import Throttling
from forebay_proxy.brokers.broker_addresses import BrokerAddresses
from forebay_proxy.brokers.broker_versions import BrokerVersions
from forebay_proxy.brokers.broker_view import BrokerView
from forebay_proxy.brokers.cluster import Cluster
from forebay_proxy.brokers.connector import Connector
from forebay_proxy.brokers.metadata_updater import MetadataUpdater
from forebay_proxy.brokers.producer_id_requests import ProducerIdRequests
from forebay_proxy.brokers.reachability import Reachability
from forebay_proxy.clients.client_upstream import Departing
from forebay_proxy.clients.metadata_handler import MetadataHandler
from forebay_proxy.config.settings import Patterns, Settings
from forebay_proxy.journal.recorder import Journal
from forebay_proxy.metrics.registry import MetricRegistry
from forebay_proxy.produce.classifier import BatchClassifier
from forebay_proxy.produce.deadlines import Deadlines
from forebay_proxy.produce.delivery import Delivery
from forebay_proxy.produce.dispatcher import Dispatcher
from forebay_proxy.produce.handler import ProduceHandler
from forebay_proxy.produce.idempotent_sample import IdempotentSample
from forebay_proxy.produce.ledger import Ledger
from forebay_proxy.produce.observer import Observer
from forebay_proxy.produce.rack_traffic import RackTraffic
from forebay_proxy.produce.topic_partitioners import TopicPartitioners


@dataclass(slots=True)
class Shared:
    """What all realms of a process have in common: limits, clocks, and what takes no login to learn."""

    settings: Settings
    """Of realms that are made from now on."""
    rng: Random
    pool: BufferPool
    versions: BrokerVersions
    turns: LoopTurns
    departed: DepartedBrokers
    journal: Journal | None
    described: DescribedTopics
    """What realms know of topics is mostly the same: it is kept once."""
    eligibility: Eligibility
    """What may be touched of records of realms that are made from now on."""
    caches: set[MetadataCache] = field(default_factory=set)
    """Of all realms: who has topics made or moved tells all of them."""


class TouchSettings(NamedTuple):
    """The settings of what may be touched, and of what is only observed."""

    topics_include: Patterns
    topics_exclude: Patterns
    client_ids_include: Patterns
    client_ids_exclude: Patterns
    moves: str
    topics_move: Patterns
    topics_observe: Patterns
    client_ids_observe: Patterns

    @classmethod
    def of(cls, settings: Settings) -> TouchSettings:
        """Those among all settings."""
        return cls(*(getattr(settings, name) for name in cls._fields))

    def eligibility(self) -> Eligibility:
        """A new one: to Client.judged_by another object means other patterns."""
        observed = Observed(
            moves=self.moves == "on",
            topics_move=self.topics_move,
            topics=self.topics_observe,
            client_ids=self.client_ids_observe,
        )
        return Eligibility(
            self.topics_include, self.topics_exclude, self.client_ids_include, self.client_ids_exclude, observed
        )


def _ages_of(settings: Settings) -> Ages:
    return Ages.of_ms(settings.metadata_soft_age_ms, settings.metadata_max_age_ms, settings.metadata_max_idle_ms)


class Realm:
    """Nothing in it is another identity's. Between `run` and `close` its records are delivered.

    `asks`: it may ask brokers for metadata and producer ids, since its `connector` logs in where they want a login.
    """

    def __init__(self, shared: Shared, connector: Connector, stats: MetricRegistry, *, asks: bool) -> None:
        settings, rng, journal = shared.settings, shared.rng, shared.journal
        self._asks = asks
        self._journal_topic = settings.journal_topic
        self.departing: set[Departing] = set()
        """Of its clients that are gone."""

        # Brokers, and what waits for them.
        throttling = Throttling(merges=settings.merge_across_client_ids, patience=settings.delivery_timeout_ms / 1000)
        self.accumulator = Accumulator(shared.pool, settings.batch_size, settings.batch_max_size, throttling)
        cluster = Cluster(self.accumulator, shared.described)
        cluster.avoid(frozenset(settings.brokers_avoid))
        cache = MetadataCache(
            _ages_of(settings),
            settings.metadata_max_topics,
            settings.metadata_refresh_group_size,
            rng,
            shared.described,
        )
        shared.caches.add(cache)
        addresses = BrokerAddresses(cluster, settings.bootstrap_servers, rng)
        updater = MetadataUpdater(cluster, cache, addresses, connector, settings, stats, rng, journal)
        reachability = Reachability(cluster, cache, updater, shared.versions)
        self.view = BrokerView(
            cluster, cache, shared.caches, updater, shared.versions, addresses, reachability, connector
        )
        self._producer_ids = (
            ProducerIdRequests(
                self.accumulator.ids, addresses, connector, settings, stats, rng, lambda: self.accumulator.was_used
            )
            if settings.enable_idempotence and asks
            else None
        )

        # A record's way: handler → accumulator → dispatcher → delivery.
        on_switch = journal.choice if journal is not None else None
        partitioners = self._partitioners = TopicPartitioners(settings, stats, rng, cluster, on_switch)
        delivery = self._delivery = Delivery(
            self.accumulator, settings, stats, updater.leader_changed, partitioners.acknowledged, rng, journal
        )
        self.dispatcher = Dispatcher(
            settings, stats, self.accumulator, cluster, updater, delivery, reachability, connector, rng
        )
        self.deadlines = Deadlines(stats, throttling, self.accumulator.drop_done)
        classifier = BatchClassifier(
            shared.eligibility,
            cluster.is_internal,
            cluster.has_choice,
            delivery.splits,
            settings.max_decompressed_bytes,
            stats,
        )
        ledger = None
        if journal is not None and settings.journal_ledger:
            ledger = Ledger(journal, cluster, keys=settings.journal_ledger_keys)
        self.handler = ProduceHandler(
            self.accumulator,
            classifier,
            partitioners.of,
            cluster,
            updater,
            self.deadlines,
            settings,
            stats,
            shared.turns,
            IdempotentSample(cluster.has_choice, stats, rng),
            Observer(
                cluster,
                updater,
                settings,
                stats,
                # Of their own, so that those that really choose, and what is counted of them, are not disturbed.
                lambda now: TopicPartitioners(now, MetricRegistry(), Random(rng.getrandbits(64)), cluster),
                journal,
            ),
            RackTraffic(cluster, stats, journal) if settings.knows_racks else None,
            ledger,
        )
        self.metadata = MetadataHandler(cache, updater, shared.departed, settings.request_timeout_ms / 1000, stats)

    def change(self, settings: Settings, eligibility: Eligibility) -> None:
        """What is live of these counts from now on."""
        self.handler.classifier.eligibility = eligibility
        self.handler.linger = settings.linger_ms / 1000
        self.dispatcher.change(settings)
        self._partitioners.change(settings)
        self.handler.observer.change(settings)
        self.view.cache.ages.become(_ages_of(settings))
        self.view.cluster.avoid(frozenset(settings.brokers_avoid))
        self._delivery.avoided(settings.brokers_avoid)

    @property
    def busy(self) -> bool:
        """Records of clients are in a broker's hands, or their fate is waited for. The journal waits for its own."""
        return self.deadlines.has_clients or self.accumulator.in_flight_bytes > self._journal_in_flight()

    def _journal_in_flight(self) -> int:
        """Bytes of rows in a broker's hands; clients' records that want the same acks of that topic count with them."""
        topic = self.accumulator.topics.get(self._journal_topic)
        if topic is None:
            return 0
        queues = (queue for root in topic.acked_by_all.values() for queue in root.family())
        return sum(queue.in_flight.size for queue in queues if queue.in_flight is not None)

    @property
    def at_rest(self) -> bool:
        """Nothing of it waits, is on its way, or is being asked."""
        busy = len(self.deadlines) > 0 or self.accumulator.in_flight_bytes > 0
        waits = self.accumulator.queued_batches > 0 or len(self.departing) > 0
        return not (busy or waits or self.view.updater.asking)

    def run(self) -> Iterator[Coroutine[None, None, None]]:
        """What must run for as long as the realm lives; none of it ends by itself."""
        if self._asks:
            yield self.view.updater.run()
        if self._producer_ids is not None:
            yield self._producer_ids.run()
        yield self.dispatcher.run()

    def close(self) -> None:
        """End its connections. What is still queued stays unsent, and nobody is told."""
        self.view.caches.discard(self.view.cache)
        self.dispatcher.close()
        self.view.updater.close()
        self.deadlines.close()
