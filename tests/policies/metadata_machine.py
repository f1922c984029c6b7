"""Random lives of metadata requests, against a simple model: what each waits for, and why a name may be asked for.

Each name of a query has a reason: since it was last asked for, somebody began to wait for it, or it was found wrong or
due. Whoever waits is told once, unless it left before; and in the end nobody waits, and nothing is asked for.
"""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from forebay_policies import metadata_requests
from forebay_policies.metadata_cache import NEVER, CachedTopic
from forebay_policies.metadata_requests import MetadataQuery
from forebay_policies.missing_topics import TRIES
from tests.policies.metadata_kit import GROUP, MAX_BACKOFF, SOFT, Bench, topic_id

NAMES = [f"t{number}" for number in range(6)]
MAX_TOPICS = 4
BROKERS, ALL = "the brokers", "all topics"

Thing = str | bytes


class Client:
    """One that waits, and fails where it is told what it does not wait for."""

    def __init__(self) -> None:
        self.waits_for: dict[Thing, float] = {}
        """Each with the time after which it must have been asked for."""
        self.asked_at = NEVER
        """When the request left that is being answered."""

    def _told(self, thing: Thing) -> None:
        assert self.waits_for.pop(thing) < self.asked_at

    def topic_told(self, name: str, known: CachedTopic) -> None:
        assert known.name == name
        self._told(name)

    def id_told(self, topic_id: bytes, known: CachedTopic | None) -> None:
        assert known is None or known.topic.topic_id == topic_id
        self._told(topic_id)

    def all_told(self, topics: list[CachedTopic]) -> None:
        self._told(ALL)

    def brokers_told(self) -> None:
        self._told(BROKERS)


class Records:
    """A produce request that waits for one topic."""

    def __init__(self, name: str, waiting: list[Records]) -> None:
        self.name = name
        self._waiting = waiting
        waiting.append(self)

    def ready(self) -> None:
        """Fails where it does not wait any more."""
        self._waiting.remove(self)


class MetadataMachine(RuleBasedStateMachine):
    @initialize(there=st.sets(st.sampled_from(NAMES)))
    def start(self, there: set[str]) -> None:
        self._max_topics = metadata_requests.MAX_TOPICS
        metadata_requests.MAX_TOPICS = MAX_TOPICS
        self.now = 1000.0
        self.bench = Bench(dict.fromkeys(there, 1))
        self.requests = self.bench.requests
        self.query: MetadataQuery | None = None
        self.asked_at = NEVER
        self.clients: list[Client] = []
        self.records: list[Records] = []
        self.reasons: set[str] = set()
        self.to_create: set[str] = set()
        self.started: dict[str, float] = {}
        """When a topic's creation was last begun with."""

    def teardown(self) -> None:
        if not hasattr(self, "requests"):
            return
        try:
            self._settle_all()
        finally:
            metadata_requests.MAX_TOPICS = self._max_topics

    def _settle_all(self) -> None:
        if self.query is not None:
            self.answer()
        for _ in range(40 + TRIES * len(NAMES)):
            self.ask()
            if self.query is not None:
                self.answer()
            elif self.records:
                self.now = max(self.now, self.requests.next_wake(self.now))
            else:
                break
        assert self._waited_for() == set()
        assert self.records == []
        for _ in range(3):  # a little later something may be due by its age
            self.ask()
            if self.query is None:
                break
            self.answer()
        assert self.query is None
        assert not any(name in self.requests._wanted or name in self.requests._new for name in NAMES)
        assert self.requests._doubted <= self.bench.produced.keys()

    # Waiting

    @rule(
        names=st.lists(st.sampled_from(NAMES), max_size=4, unique=True),
        ids=st.lists(st.sampled_from(NAMES), max_size=2, unique=True),
        others=st.sets(st.sampled_from([BROKERS, ALL])),
        anew=st.booleans(),
        creates=st.booleans(),
    )
    def client_comes(self, names: list[str], ids: list[str], others: set[str], *, anew: bool, creates: bool) -> None:
        client = Client()
        fresh_since = self.now if anew else NEVER
        self.clients.append(client)
        client.waits_for = dict.fromkeys([*names, *map(topic_id, ids), *others], fresh_since)
        for name in names:
            if creates and self.requests.may_create(name, self.now):
                assert self.now - self.started.get(name, NEVER) >= metadata_requests.CREATE_AGAIN_S
                self.started[name] = self.now
                self.to_create.add(name)
            self.reasons.add(name)
            self.requests.ask_topic(name, fresh_since, client, self.now, creates=creates)
        for name in ids:
            self.requests.ask_id(topic_id(name), fresh_since, client)
        if ALL in others:
            self.requests.ask_all(fresh_since, client)
        if BROKERS in others:
            self.requests.ask_brokers(fresh_since, client)

    @precondition(lambda self: self.clients)
    @rule(data=st.data())
    def client_leaves(self, data: st.DataObject) -> None:
        client = data.draw(st.sampled_from(self.clients))
        self.requests.drop(NAMES, [topic_id(name) for name in NAMES], client)
        self.clients.remove(client)
        for name in self.to_create & client.waits_for.keys() - self._waited_for():
            self.to_create.remove(name)
            del self.started[name]
            assert self.requests.may_create(name, self.now), "nobody was asked to"

    def _waited_for(self) -> set[Thing]:
        return {thing for client in self.clients for thing in client.waits_for}

    @rule(name=st.sampled_from(NAMES))
    def records_come(self, name: str) -> None:
        records = Records(name, self.records)
        if self.requests.want(name, records.ready, self.now) is None:
            self.reasons.add(name)
        else:
            self.requests.settle(name, self.now, usable=True)

    @precondition(lambda self: self.records)
    @rule(data=st.data())
    def records_leave(self, data: st.DataObject) -> None:
        records = data.draw(st.sampled_from(self.records))
        self.requests.forget(records.name, records.ready)
        self.records.remove(records)

    # What happens to topics

    @rule(name=st.sampled_from(NAMES))
    def topic_is_made_or_deleted(self, name: str) -> None:
        if self.bench.there.pop(name, None) is None:
            self.bench.there[name] = 1

    @rule(names=st.lists(st.sampled_from(NAMES), max_size=2))
    def found_wrong(self, names: list[str]) -> None:
        self.requests.invalidate(names, "error", self.now)
        self.reasons.update(names)

    @precondition(lambda self: self.bench.produced)
    @rule(data=st.data())
    def leader_is_missing(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(self.bench.produced)))
        self.requests.retry_later(name, self.now)
        self.reasons.add(name)

    @rule(seconds=st.sampled_from([0.01, 0.1, 1.0, 10.0, SOFT]))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds

    # Asking

    @precondition(lambda self: self.query is None)
    @rule()
    def ask(self) -> None:
        knows = self.bench.cache.knows
        due = {name for name in NAMES if knows(name) and self.bench.cache._topics[name].refresh_at <= self.now}
        due |= {name for name, topic in self.bench.produced.items() if topic.updated_at + 300.0 <= self.now}
        if not self.requests.checks_ages(self.now):
            due = set()
        by_clients = self._waited_for()
        by_records = {records.name for records in self.records}
        self.query = self.requests.next_request(self.now)
        self.now += 0.01
        self.reasons |= due
        if self.query is None:
            assert by_clients == set()
            assert not by_records or self.requests.next_wake(self.now) <= self.now + MAX_BACKOFF
            return
        self.requests.sent(self.query, self.now)
        self.asked_at = self.now
        names = self.query.names
        assert names is None or len(names) <= MAX_TOPICS
        assert len(self.query.ids) <= MAX_TOPICS
        assert {topic_id(name) for name in NAMES} >= set(self.query.ids)
        assert set(self.query.ids) <= by_clients
        if self.query.creates:
            assert set(names or ()) <= self.to_create
            self.to_create -= set(names or ())
            assert not self.query.ids
        elif names is not None:
            assert set(names) <= self.reasons
            for name in names:
                assert name in by_clients | by_records or name in self.bench.produced or knows(name)
            assert len(due & set(names) - by_clients - by_records) <= 2 * GROUP
            self.reasons -= set(names)
        else:
            assert ALL in by_clients or self.bench.cache.all_due(self.now)

    @precondition(lambda self: self.query is None)
    @rule(names=st.lists(st.sampled_from(NAMES), max_size=4, unique=True), anew=st.booleans(), creates=st.booleans())
    def client_comes_before_the_answer(self, names: list[str], anew: bool, creates: bool) -> None:
        self.ask()
        self.client_comes(names, [], set(), anew=anew, creates=creates)
        if self.query is not None:
            self.answer()

    @precondition(lambda self: self.query is not None)
    @rule()
    def answer(self) -> None:
        assert self.query is not None
        query, self.query = self.query, None
        self.now += 0.01
        for client in self.clients:
            client.asked_at = self.asked_at
        self.bench.answer(query, self.now, self.asked_at)
        served = {*(query.names if query.names is not None else self.bench.there)}
        # Who came too early is asked for again, and records for which the topic may still turn up.
        for client in self.clients:
            assert all(since >= self.asked_at for name, since in client.waits_for.items() if name in served)
            self.reasons.update(served & client.waits_for.keys())
        self.reasons.update(records.name for records in self.records if records.name in served)

    @precondition(lambda self: self.query is not None)
    @rule()
    def fail(self) -> None:
        assert self.query is not None
        query, self.query = self.query, None
        self.requests.failed(query)
        self.reasons.update(query.names or ())
        if query.creates:
            self.to_create |= set(query.names or ()) & self._waited_for()
