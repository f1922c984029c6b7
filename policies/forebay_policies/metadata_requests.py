"""What to ask brokers for next: one Metadata request in flight, the next one carries all that came meanwhile.

In: what clients and records wait for, what turned out wrong, answers, failures, the time. Out: a query, or when to
look again; calls to those who are served (metadata_waiters). No I/O: the caller sends the query and hands back what
became of it.

    ask_…, want, invalidate ──▶ next_request ──▶ sent ──▶ answered ──▶ settle, for each topic that records go to
    retry_later, ages                ▲             └────▶ failed
                                     └────────────────────────┘

Four kinds of query take turns, so that none starves the others:
1. topics by name, with the brokers, which come with every answer and may be all that is wanted: first those that are
   known to be wrong or due, then of each who waits one in turn (wanted_topics);
2. topics by id, by themselves: brokers that are asked for one do not look at names
   (KafkaApis.handleTopicMetadataRequest), and what they leave out would be taken for topics that are not there;
3. topics that may be created, since the permission stands in the request; a name once in CREATE_AGAIN_S seconds,
   however many clients ask for it. Where that is refused (TOPIC_AUTHORIZATION_FAILED, which a plain question may not
   be), all who wait are told what brokers answer to a plain one;
4. all topics.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from itertools import islice
from typing import Final, Literal, NamedTuple

from forebay_codecs.metadata import Metadata
from forebay_policies.metadata_cache import NEVER, CachedTopic, MetadataCache
from forebay_policies.metadata_refresh import ProducedTopic, RefreshSchedule
from forebay_policies.metadata_waiters import ClientWaiters, MetadataWaiter, RecordWaiters
from forebay_policies.missing_topics import MissingTopics
from forebay_policies.wanted_topics import WantedTopics

MAX_TOPICS = 2_000
"""In one request. Clients may name any number, and all that comes meanwhile waits for the answer, which takes the loop
tens of milliseconds."""
CREATE_AGAIN_S = 5.0
_UNANSWERED: Final = object()
"""In line for what nobody answered: to put all who wait in line again would cost names times waiters each time."""
DOUBT_S: Final = 5.0
"""An error, a lost leader or a client that asks again so soon after an answer: the broker that gave it lags behind,
another one is asked."""
MAX_CREATED: Final = 10_000
"""Names remembered for that."""

Cause = Literal["new_topic", "error", "connection", "max_age", "client"]
"""Why something is asked for, as the metric has it."""


class MetadataQuery(NamedTuple):
    """One request. `names` None: all topics; no names, no ids: the brokers alone. `creates`: topics may be created.

    Names or ids, never both.

    `elsewhere`: the broker that answered last is not to be asked, what it told has not helped.
    """

    names: list[str] | None
    ids: list[bytes]
    creates: bool
    elsewhere: bool = False


class CreationPauses:
    """A topic's creation is asked for once in CREATE_AGAIN_S; of MAX_CREATED names, the oldest are forgotten first."""

    def __init__(self) -> None:
        self._asked_at: OrderedDict[str, float] = OrderedDict()
        self._refused: set[str] = set()

    def over(self, name: str, now: float) -> bool:
        """Whether a creation may be asked for now: it was not in the last CREATE_AGAIN_S seconds."""
        return now - self._asked_at.get(name, NEVER) >= CREATE_AGAIN_S

    def begin(self, name: str, now: float) -> None:
        """Its creation is asked for at `now`."""
        self._asked_at[name] = now
        self._asked_at.move_to_end(name)
        self._refused.discard(name)
        if len(self._asked_at) > MAX_CREATED:
            self._refused.discard(self._asked_at.popitem(last=False)[0])

    def cancel(self, name: str) -> None:
        """Its creation was not asked for after all."""
        self._asked_at.pop(name, None)

    def refuse(self, name: str) -> None:
        """The user may not create it."""
        if name in self._asked_at:
            self._refused.add(name)

    def refused(self, name: str) -> bool:
        """Whether its creation was, when it was last asked for."""
        return name in self._refused


class MetadataRequests:
    """Whoever waits is served by one answer or dropped; what nobody waits for is asked for only if it is known and due.

    `produced` is a live view of the topics that records go to. `backoff` and `max_backoff` are in seconds; `group_size`
    is how many topics are refreshed together because of their age. `on_wanted` is called, with the cause, whenever
    there may be more to ask for than before; it may only take note. All times are in seconds of the caller's clock.
    """

    def __init__(
        self,
        cache: MetadataCache,
        produced: Mapping[str, ProducedTopic],
        backoff: float,
        max_backoff: float,
        group_size: int,
        on_wanted: Callable[[Cause], None],
    ) -> None:
        self._cache = cache
        self._produced = produced
        self._backoff = backoff
        self._on_wanted = on_wanted
        self._clients = ClientWaiters()
        self._records = RecordWaiters()
        self._missing = MissingTopics(backoff, max_backoff)
        self._wanted = WantedTopics()
        self._new = WantedTopics()
        """To be created."""
        self._retry_at: dict[str, float] = {}
        self._brokers_due = True
        self._all_due = False
        self._creations = CreationPauses()
        self._refresh = RefreshSchedule(cache, produced, backoff, group_size)
        self._in_flight: frozenset[str] = frozenset()
        self._doubted: set[str] = set()
        """Topics with which the last answer has not helped."""
        self._kinds = (self._named, self._identified, self._created, self._everything)
        self._turn = 0

    # Records

    def want(self, name: str, ready: Callable[[], None], now: float, *, anew: bool = False) -> CachedTopic | None:
        """Records wait for a topic that the cluster does not have; `settle` calls `ready`.

        Returns what the cache has of the topic, if that will do: it is not asked for then, and the caller settles it.
        `anew`: nothing that is known of it will do.
        """
        self._records.add(name, ready)
        if name in self._wanted:
            self._wanted.add(name, ready)
        if anew:
            self._cache.invalidate(name, now)
        known = self._cache.find(name, now)
        if known is not None and not known.error:
            return known
        ask_at = self._missing.ask_at(name, now)
        if ask_at > now:
            self._retry_at.setdefault(name, ask_at)
        elif name not in self._wanted:
            self._ask_for(name)
        self._on_wanted("new_topic")
        return None

    def forget(self, name: str, ready: Callable[[], None]) -> None:
        """These records wait no more: whoever forgets one name forgets all that `ready` waits for."""
        self._records.drop(name, ready)
        self._wanted.leave(ready)
        self._discard(name)

    def wanted_by_records(self, name: str) -> bool:
        """Whether any records wait for the topic."""
        return name in self._records

    def settle(self, name: str, now: float, *, usable: bool) -> bool:
        """Brokers told of a topic, and the cluster knows it. `usable`: it has partitions.

        Calls those whose records wait, unless the topic may still turn up: then it is asked for again. Returns whether
        they were called.
        """
        if name not in self._records:
            return False
        if not usable and not self._missing.missed(name, now):
            self.retry_later(name, now)
            return False
        self._records.call(name)
        return True

    def retry_later(self, name: str, now: float) -> None:
        """Ask again, not at once: a topic without a leader must not be asked for in a circle."""
        self._retry_at.setdefault(name, now + self._backoff)

    def invalidate(self, names: Iterable[str], cause: Cause, now: float) -> None:
        """What is known of these topics (none: of the brokers) is wrong.

        Topics that no records go to are asked for when a client asks, or again if they are being asked for.
        """
        names = list(names)
        for name in names:
            self._cache.invalidate(name, now)
            told = self._produced.get(name)
            if told is not None and now - told.updated_at < DOUBT_S:
                self._doubted.add(name)
        if not names:
            self._brokers_due = True
        self._wanted.add_first([name for name in names if name in self._produced or name in self._in_flight])
        self._on_wanted(cause)

    # Clients

    def ask_topic(self, name: str, fresh_since: float, waiter: MetadataWaiter, now: float, *, creates: bool) -> None:
        """A topic, as brokers tell of it when asked after `fresh_since`. `creates`: that may create it."""
        self._clients.add_name(name, waiter, fresh_since)
        begins = creates and self.may_create(name, now)
        if begins:
            self._creations.begin(name, now)
        created = begins or name in self._new
        asked = created or name in self._in_flight
        if created:
            self._new.add(name, waiter)
        if name in self._wanted:
            self._wanted.add(name, waiter)
        elif not asked:
            self._ask_for(name)
        if begins or not asked:
            self._on_wanted("client")

    def may_create(self, name: str, now: float) -> bool:
        """Whether it is time to ask (again) for its creation."""
        return self._creations.over(name, now)

    def creation_refused(self, name: str) -> bool:
        """Whether its creation was refused when it was last asked for."""
        return self._creations.refused(name)

    def ask_id(self, topic_id: bytes, fresh_since: float, waiter: MetadataWaiter) -> None:
        """A topic by its id (16 bytes), as brokers tell of it when asked after `fresh_since`."""
        self._clients.add_id(topic_id, waiter, fresh_since)
        self._on_wanted("client")

    def ask_all(self, fresh_since: float, waiter: MetadataWaiter) -> None:
        """All topics, as brokers tell of them when asked after `fresh_since`."""
        self._clients.for_all.add(waiter, fresh_since)
        self._on_wanted("client")

    def ask_brokers(self, fresh_since: float, waiter: MetadataWaiter) -> None:
        """The brokers alone, from any answer to a request that left after `fresh_since`."""
        self._clients.for_brokers.add(waiter, fresh_since)
        self._on_wanted("client")

    def drop(self, names: Iterable[str], ids: Iterable[bytes], waiter: MetadataWaiter) -> None:
        """It waits no more, for `names` and `ids` nor for anything else."""
        names = list(names)
        for name in self._clients.drop(names, ids, waiter):
            if name in self._new:
                self._new.discard(name)
                self._creations.cancel(name)
        for name in self._new.leave(waiter):
            self._new.add(name, _UNANSWERED)  # others wait for it, or it was told meanwhile that there is none
        self._wanted.leave(waiter)
        for name in names:
            self._discard(name)

    # What to ask for

    def checks_ages(self, now: float) -> bool:
        """Whether `next_request` will look at what is due by its age, of all topics."""
        return now >= self._refresh.check_at

    def next_request(self, now: float) -> MetadataQuery | None:
        """What to ask for now, to be followed by `answered` or `failed`; None: nothing before `next_wake`."""
        if self.checks_ages(now):
            self._add_due(now)
        for name in [name for name, at in self._retry_at.items() if at <= now]:
            del self._retry_at[name]
            self._ask_for(name)
            self._doubted.add(name)  # the last answer told of no leader, or not of the topic
        for turn in range(self._turn, self._turn + len(self._kinds)):
            query = self._kinds[turn % len(self._kinds)]()
            if query is not None:
                self._turn = turn + 1
                self._in_flight = frozenset(query.names or ())
                elsewhere = not self._doubted.isdisjoint(self._in_flight) or self._clients.ask_again(
                    query.names, query.ids, now - DOUBT_S
                )
                self._doubted -= self._in_flight
                return query._replace(elsewhere=elsewhere)
        self._turn = 0
        return None

    def next_wake(self, now: float) -> float:
        """Until when there is nothing to ask for, unless `on_wanted` is called before. May be past."""
        due_at = self._refresh.next_check(now)
        return min(due_at, min(self._retry_at.values(), default=due_at))

    def sent(self, query: MetadataQuery, now: float) -> None:
        """It leaves now: whatever becomes of it, what it asks for is not due again for a soft age."""
        self._refresh.postpone(query.names or [], now)

    def answered(
        self,
        query: MetadataQuery,
        metadata: Metadata,
        found: Mapping[str, CachedTopic],
        asked_at: float,
        now: float,
    ) -> None:
        """Tells the clients who are served. What they do then may ask for more.

        `found` is what the cache made of `metadata`, the answer; `asked_at` is when the query was sent.
        """
        self._in_flight = frozenset()
        self._refresh.brokers_told(now)
        for name, known in found.items():
            self._retry_at.pop(name, None)
            if not known.error:
                self._missing.found(name)
        self._clients.tell_brokers(asked_at)
        for name in self._clients.tell_topics(found, asked_at):
            self._ask_for(name)
        self._clients.tell_ids(query.ids, metadata.topics, found, asked_at)
        if query.names is None:
            self._clients.tell_all(list(found.values()), asked_at)
        if query.creates:
            self._refused([name for name in query.names or () if name not in found])

    def failed(self, query: MetadataQuery) -> None:
        """Nobody answered it. What still matters when the next query is made is asked for again."""
        self._in_flight = frozenset()
        if query.creates:
            for name in query.names or ():
                if name in self._clients.by_name:
                    self._new.add(name, _UNANSWERED)
        elif query.names is not None and not query.ids:
            for name in query.names:
                self._wanted.add(name, _UNANSWERED)
            self._brokers_due = True
            self._turn = 0  # of the others each keeps its turn: what brokers fail at is asked for again after them

    def _ask_for(self, name: str) -> None:
        """All who wait for it now stand in line for it, if anybody does. Who comes later gets in line by itself."""
        waiters = [*self._clients.waiting(name), *self._records.waiting(name)]
        for waiter in waiters:
            self._wanted.add(name, waiter)
        if not waiters:
            self._wanted.add_first((name,))

    def _refused(self, names: Iterable[str]) -> None:
        """Their creation. One that is known is so to another broker."""
        for name in names:
            self._creations.refuse(name)
            if name in self._clients.by_name:
                if self._cache.knows(name):
                    self._doubted.add(name)
                self._ask_for(name)

    def _discard(self, name: str) -> None:
        """Unless somebody waits, or it is to be asked for whoever waits: it may be known to be wrong."""
        if self._waited_for(name):
            return
        if name not in self._produced:
            self._wanted.discard(name)
            self._doubted.discard(name)
        elif name in self._wanted:
            self._wanted.add(name, _UNANSWERED)  # it may have stood in the line of who has left alone

    def _waited_for(self, name: str) -> bool:
        return name in self._clients.by_name or name in self._records

    def _add_due(self, now: float) -> None:
        """Puts what is due among what is wanted, though clients may keep asking for more."""
        due = self._refresh.check(now)
        self._wanted.add_first(due.names)
        self._brokers_due = self._brokers_due or due.brokers
        self._all_due = due.all_topics
        if due.names or self._brokers_due or self._all_due:
            self._on_wanted("max_age")

    def _named(self) -> MetadataQuery | None:
        names: list[str] = []
        while self._wanted and not names:
            taken = self._wanted.take(MAX_TOPICS)
            names = [name for name in taken if self._matters(name)]
            if len(names) < len(taken):
                self._doubted.difference_update(set(taken).difference(names))
        if not (names or self._brokers_due or self._clients.for_brokers):
            return None
        self._brokers_due = False
        return MetadataQuery(names, [], creates=False)

    def _identified(self) -> MetadataQuery | None:
        ids = list(islice(self._clients.by_id, MAX_TOPICS))
        return MetadataQuery([], ids, creates=False) if ids else None

    def _created(self) -> MetadataQuery | None:
        """Though whoever asked for it may have been told by now that there is no such topic."""
        names = self._new.take(MAX_TOPICS)
        return MetadataQuery(names, [], creates=True) if names else None

    def _everything(self) -> MetadataQuery | None:
        if not (self._all_due or self._clients.for_all):
            return None
        self._all_due = False
        return MetadataQuery(None, [], creates=False)

    def _matters(self, name: str) -> bool:
        """A client or records wait for it, or it is known and to be refreshed."""
        return self._waited_for(name) or name in self._produced or self._cache.knows(name)
