"""A realm for each login: which logins share one, what realms know of each other, and how they end."""

from __future__ import annotations

import asyncio
import gc
from random import Random
from time import monotonic
from typing import Any

import pytest
import structlog

from forebay_policies.buffer_pool import BufferPool
from forebay_policies.departed_brokers import DepartedBrokers
from forebay_policies.described_topic import DescribedTopics
from forebay_policies.identities import KEPT_S
from forebay_policies.loop_turns import LoopTurns
from forebay_policies.response_memory import ResponseMemory
from forebay_proxy.brokers.broker_addresses import BrokerAddresses
from forebay_proxy.brokers.broker_versions import BrokerVersions
from forebay_proxy.brokers.connector import Connector
from forebay_proxy.brokers.metadata_updater import MetadataUpdater
from forebay_proxy.brokers.upstream_connection import UpstreamConnection
from forebay_proxy.clients.gateway import Gateway
from forebay_proxy.clients.listener import Listener
from forebay_proxy.clients.listener_ports import ListenerPorts
from forebay_proxy.config.kinds import ListenerAddress, SecurityProtocol
from forebay_proxy.config.secret import Secret
from forebay_proxy.config.settings import HostPort
from forebay_proxy.logs import RateLimited, get_logger
from forebay_proxy.metrics.registry import MetricRegistry
from forebay_proxy.realms import realms
from forebay_proxy.realms.realm import Realm, Shared, TouchSettings
from forebay_proxy.realms.realms import AGAIN_S, ClientRealms, Membership
from forebay_proxy.security.authenticator import AuthenticationFailed
from forebay_proxy.security.logins import BearerLogin, DelegatedLogin, PasswordLogin, Token
from tests.kit import fakes_proxy as fakes
from tests.kit.app import settings
from tests.kit.event_loop import in_loop, turns, until
from tests.kit.ports import LOOPBACK, free_run
from tests.kit.wire import keyed


class Land:
    """Realms that nobody asks anything, since no broker is there."""

    def __init__(self, most: int = 10, protocol: SecurityProtocol = "PLAINTEXT") -> None:
        self.stats = MetricRegistry()
        told = settings(
            (),
            free_run(8),
            listeners=(ListenerAddress(protocol, LOOPBACK, free_run(8)),),
            max_identities=most,
            security_protocol="SASL_PLAINTEXT",
        )
        connector = Connector(told, self.stats)
        pool = BufferPool(1 << 20, 4096, 16_384)
        versions = BrokerVersions(lambda node_id: [], connector, RateLimited(get_logger()))
        loop = asyncio.get_running_loop()
        self.shared = Shared(
            told,
            Random(1),
            pool,
            versions,
            LoopTurns(monotonic, loop.call_soon),
            DepartedBrokers(30.0),
            None,
            DescribedTopics(1000),
            TouchSettings.of(told).eligibility(),
        )
        self.home = Realm(self.shared, connector, self.stats, asks=False)
        self.ended: list[asyncio.Task[None]] = []
        self.realms = ClientRealms(self.shared, self.home, connector, self.stats, self.ended.append)
        found = told.client_listeners
        self.listener = Listener(found[0], ListenerPorts(found), shared=False)
        self.gateway = Gateway(told, self.home.view, self.listener, ResponseMemory(), set())

    def join(self, user: str, password: str = "secret") -> Membership:
        member = self.realms.join(PasswordLogin("PLAIN", user, Secret(password)), self.gateway)
        assert member is not None
        return member

    def identities(self) -> float:
        return self.stats.value("forebay_identities")


@in_loop
async def test_the_same_login_is_one_realm_and_any_other_is_another() -> None:
    land = Land()
    alice, again = land.join("alice"), land.join("alice")
    assert (alice.handler, alice.metadata, alice.gateway) == (again.handler, again.metadata, again.gateway)
    others = [land.join("alice", "other"), land.join("bob"), land.join("alic", "esecret")]
    principals = {member.principal for member in (alice, *others)}
    handlers = {id(member.handler) for member in (alice, *others)}
    assert (len(principals), len(handlers), land.identities()) == (4, 4, 4)
    assert not any("secret" in principal.replace("alic/", "") for principal in principals)
    land.realms.close()


@in_loop
async def test_processes_know_a_login_by_different_names() -> None:
    """What stands in for the password cannot be looked up in a table of passwords."""
    one, other = Land(), Land()
    assert one.join("alice").principal != other.join("alice").principal
    one.realms.close()
    other.realms.close()


@in_loop
async def test_brokers_are_known_to_all_and_nothing_else_is() -> None:
    land = Land()
    land.listener.open_bootstrap(lambda node_id: asyncio.Protocol())
    alice, bob = land.join("alice"), land.join("bob")
    land.home.view.cluster.learn(1, "one", 9092, 0.0)
    realms = list(land.realms)
    assert [list(realm.view.cluster.nodes) for realm in realms] == [[1], [1]]
    realms[0].view.cluster.learn(2, "two", 9092, 0.0)
    assert [sorted(realm.view.cluster.nodes) for realm in (land.home, *realms)] == [[1, 2]] * 3
    realms[0].view.cluster.learn(2, "moved", 9093, 0.0)
    assert {realm.view.cluster.nodes[2].host for realm in (land.home, *realms)} == {"moved"}
    realms[0].view.cluster.set_down(realms[0].view.cluster.nodes[1], down=True)
    assert not realms[1].view.cluster.nodes[1].down, "each finds out by itself"
    later = land.join("carol")
    assert sorted(list(land.realms)[2].view.cluster.nodes) == [1, 2]
    assert len({id(member.metadata) for member in (alice, bob, later)}) == 3
    land.realms.close()
    land.listener.close()
    await turns(5)


@in_loop
async def test_who_has_topics_made_or_moved_tells_all_caches() -> None:
    land = Land()
    member = land.join("alice")
    caches = [land.home.view.cache, *(realm.view.cache for realm in land.realms)]
    for gateway in (land.gateway, member.gateway):
        before = [cache._valid_from for cache in caches]
        gateway.topics_changed(1, "127.0.0.1")
        assert all(cache._valid_from > was for cache, was in zip(caches, before, strict=True))
    land.realms.close()


@pytest.mark.parametrize(
    ("protocol", "becomes"), [("SASL_PLAINTEXT", "records go on untouched"), ("PLAINTEXT", "login is refused")]
)
@in_loop
async def test_beyond_the_most_nobody_is_let_in_and_it_is_told(protocol: SecurityProtocol, becomes: str) -> None:
    land = Land(most=1, protocol=protocol)
    alice = land.join("alice")
    with structlog.testing.capture_logs() as logs:
        assert land.realms.join(PasswordLogin("PLAIN", "bob", Secret("x")), land.gateway) is None
    assert [(line["event"], line["most"]) for line in logs] == [(f"too many identities, a client's {becomes}", 1)]
    alice.leave()
    land.realms.sweep(100.0)
    land.join("bob")  # an idle one makes room
    assert land.identities() == 1
    land.realms.close()


@in_loop
async def test_a_login_that_was_refused_once_counts_again_as_brokers_accept_it_but_not_each_time() -> None:
    land = Land()
    member, now = land.join("alice"), monotonic()
    (home,) = land.realms._realms.values()

    def refused_after(s: float) -> bool:
        home.wake(ALICE, now + s, land.ended.append)
        return member.refused

    for began in (AGAIN_S, 2 * AGAIN_S + 1):
        home.connector._told_refusal(HostPort("k1", 9093), "PLAIN", "the users' directory is away")
        assert refused_after(began - 1)
        assert not refused_after(began + 1)
    land.realms.close()


@in_loop
async def test_a_token_that_was_accepted_stands_in_for_one_that_is_good_for_longer_and_was_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    presented = list[str]()
    present = Connector.present

    def noted(connector: Connector, login: BearerLogin) -> None:
        presented.append(login.token.reveal())
        present(connector, login)

    land = Land()
    land.join("alice")
    monkeypatch.setattr(Connector, "present", noted)
    (home,) = land.realms._realms.values()
    old, new = (BearerLogin("alice", Secret(name), "", until) for name, until in (("old", 1e9), ("new", 2e9)))
    home.wake(new, 0.0, land.ended.append)

    def refused() -> None:
        home.connector._told_refusal(HostPort("k1", 9093), "OAUTHBEARER", "an unknown key")

    refused()
    home.wake(old, AGAIN_S - 1, land.ended.append)
    land.realms.sweep(AGAIN_S)
    assert presented == ["new"]
    home.wake(old, AGAIN_S, land.ended.append)
    land.realms.sweep(3 * AGAIN_S)
    assert presented == ["new", "old"], "which is not refused"
    refused()
    for seconds in range(int(3 * AGAIN_S), int(6 * AGAIN_S)):
        land.realms.sweep(seconds)
    assert presented == ["new", "old", "new"]
    refused()
    land.realms.sweep(9 * AGAIN_S)
    assert presented == ["new", "old", "new"], "once"
    land.realms.close()


class Tokens:
    """Whose have ended."""

    def __init__(self) -> None:
        self.ended: list[str] = []

    async def of(self, owner: str) -> Token:
        raise ConnectionError(owner)

    def refused(self, owner: str) -> bool:
        return False

    def end(self, owner: str) -> None:
        self.ended.append(owner)


@in_loop
async def test_a_delegation_token_ends_with_its_realm() -> None:
    land, tokens = Land(), Tokens()
    login = DelegatedLogin("SCRAM-SHA-512", "alice", tokens)
    member = land.realms.join(login, land.gateway)
    assert member is not None
    member.leave()
    await until(lambda: all(realm.at_rest for realm in land.realms))
    land.realms.sweep(monotonic())
    assert tokens.ended == [], "whoever comes back soon finds it"
    land.realms.sweep(monotonic() + KEPT_S)
    assert tokens.ended == ["alice"]
    land.realms.close()


@in_loop
async def test_one_that_is_forgotten_leaves_nothing_behind() -> None:
    land = Land()
    await turns()
    tasks, gauges = len(asyncio.all_tasks()), land.stats.take().gauges
    for _ in range(3):
        member = land.join("alice")
        await turns()
        assert len(asyncio.all_tasks()) > tasks
        member.leave()
        await until(lambda: all(realm.at_rest for realm in land.realms))
        land.realms.sweep(monotonic())
        land.realms.sweep(monotonic() + KEPT_S)
        await turns(5)
        assert len(asyncio.all_tasks()) == tasks
        assert land.stats.take().gauges == gauges
        assert land.shared.caches == {land.home.view.cache}
        assert len(land.shared.pool._lingering) == 1
    assert [task for task in land.ended if not task.cancelled()] == []


class Leaving:
    """Records without acks, of a client that is gone."""

    def abort(self) -> None:
        raise NotImplementedError


@in_loop
async def test_what_clients_that_left_have_sent_without_acks_is_waited_for() -> None:
    land = Land()
    member = land.join("alice")
    await until(lambda: all(realm.at_rest for realm in land.realms))
    (realm,) = land.realms
    leaving = Leaving()
    realm.departing.add(leaving)
    member.leave()
    now = monotonic()
    for seconds in (0.0, KEPT_S):
        land.realms.sweep(now + seconds)
    assert land.identities() == 1
    realm.departing.discard(leaving)
    for seconds in (KEPT_S, 2 * KEPT_S):
        land.realms.sweep(now + seconds)
    assert land.identities() == 0
    land.realms.close()


@in_loop
async def test_one_that_begins_while_the_process_leaves_asks_nobody_about_records_without_a_leader(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    land = Land()
    land.realms.retire()
    land.join("alice")
    (realm,) = land.realms
    asked: list[object] = []
    monkeypatch.setattr(MetadataUpdater, "invalidate", lambda updater, names, why: asked.append(names))
    fakes.append(realm.accumulator, realm.accumulator.topic("ponds").queue(0), keyed("late"))
    realm.accumulator.flush_all(monotonic())
    await turns()
    assert asked == []
    land.realms.close()


class Asked:
    """What a broker is asked for a proof, and says in the end."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.times = 0
        self.says: asyncio.Future[UpstreamConnection] = asyncio.get_running_loop().create_future()
        monkeypatch.setattr(BrokerAddresses, "of", lambda *_: [HostPort(LOOPBACK, 1)])
        monkeypatch.setattr(Connector, "open", self._open)

    async def _open(self, host: str, port: int) -> UpstreamConnection:
        self.times += 1
        return await asyncio.shield(self.says)


ALICE = PasswordLogin("PLAIN", "alice", Secret("secret"))


class TestProofs:
    @in_loop
    @pytest.mark.parametrize("error", [AuthenticationFailed, ConnectionError])
    async def test_all_who_come_meanwhile_share_one(
        self, error: type[OSError], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        land, asked = Land(), Asked(monkeypatch)
        askers = [asyncio.ensure_future(land.realms.prove(ALICE)) for _ in range(30)]
        other = asyncio.ensure_future(land.realms.prove(PasswordLogin("PLAIN", "alice", Secret("another"))))
        await until(lambda: asked.times == 2)
        await turns()
        askers[0].cancel()
        askers.append(asyncio.ensure_future(land.realms.prove(ALICE)))
        await turns()
        asked.says.set_exception(error("no"))
        said = await asyncio.gather(*askers, other, return_exceptions=True)
        assert [type(each) for each in said] == [asyncio.CancelledError] + [error] * 31
        assert asked.times == 2
        land.realms.close()

    @in_loop
    async def test_each_is_taken_where_it_is_and_who_comes_later_asks_anew(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        land, asked = Land(), Asked(monkeypatch)
        askers = [asyncio.ensure_future(land.realms.prove(ALICE)) for _ in range(3)]
        await until(lambda: asked.times)
        asked.says.set_result(UpstreamConnection("a broker", 1.0, land.stats))
        await asyncio.gather(*askers)
        assert asked.times == 1
        await land.realms.prove(ALICE)
        assert asked.times == 2
        land.realms.close()

    @in_loop
    @pytest.mark.parametrize("refused", [False, True])
    async def test_a_broker_that_hangs_is_not_waited_for(self, refused: bool, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(realms, "BESIDE_S", 0.0)
        land, hangs = Land(), asyncio.Event()
        asked: list[int] = []

        async def opened(self: Connector, host: str, port: int) -> UpstreamConnection:
            asked.append(port)
            if len(asked) == 1:
                await hangs.wait()
            if refused:
                raise AuthenticationFailed("no")
            return UpstreamConnection("a broker", 1.0, land.stats)

        monkeypatch.setattr(Connector, "open", opened)
        addresses = [HostPort("hangs.example", 1), HostPort("answers.example", 2)]
        monkeypatch.setattr(BrokerAddresses, "of", lambda self, node_id: list(addresses))
        tasks = len(asyncio.all_tasks())
        said = await asyncio.gather(land.realms.prove(ALICE), return_exceptions=True)
        assert [type(each) for each in said] == [AuthenticationFailed if refused else type(None)]
        assert asked == [1, 2]
        await until(lambda: len(asyncio.all_tasks()) == tasks)
        land.realms.close()

    @in_loop
    @pytest.mark.parametrize("second", [None, ConnectionError("lost"), AuthenticationFailed("no")])
    async def test_of_two_that_answer_at_once_one_that_takes_it_will_do(
        self, second: Exception | None, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(realms, "BESIDE_S", 0.0)
        land, both = Land(), asyncio.Event()
        faults: list[dict[str, Any]] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, fault: faults.append(fault))
        asked: list[int] = []

        async def opened(self: Connector, host: str, port: int) -> UpstreamConnection:
            asked.append(port)
            await both.wait()
            if port == 1 and second is not None:
                raise second
            return UpstreamConnection("a broker", 1.0, land.stats)

        monkeypatch.setattr(Connector, "open", opened)
        addresses = [HostPort("a.example", port) for port in (1, 2, 3)]
        monkeypatch.setattr(BrokerAddresses, "of", lambda self, node_id: list(addresses))
        proof = asyncio.ensure_future(land.realms.prove(ALICE))
        await until(lambda: len(asked) == 2)
        await turns(20)
        assert asked == [1, 2], "no third beside two"
        both.set()
        await proof
        del proof
        gc.collect()
        assert faults == []
        land.realms.close()

    @in_loop
    async def test_a_refusal_counts_that_nobody_waits_for_any_more(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Or who always leaves in time would have a broker asked each time."""
        land, asked = Land(), Asked(monkeypatch)
        faults: list[dict[str, Any]] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, fault: faults.append(fault))
        asker = asyncio.ensure_future(land.realms.prove(ALICE))
        await until(lambda: asked.times)
        asker.cancel()
        await turns()
        asked.says.set_exception(AuthenticationFailed("no"))
        await turns(5)
        with pytest.raises(AuthenticationFailed):
            await land.realms.prove(ALICE)
        assert asked.times == 1
        gc.collect()
        assert faults == []
        land.realms.close()

    @in_loop
    async def test_none_goes_on_once_the_realms_are_closed(self, monkeypatch: pytest.MonkeyPatch) -> None:
        land, asked = Land(), Asked(monkeypatch)
        tasks = len(asyncio.all_tasks())
        asker = asyncio.ensure_future(land.realms.prove(ALICE))
        await until(lambda: asked.times)
        land.realms.close()
        await until(lambda: len(asyncio.all_tasks()) == tasks)
        assert asker.cancelled()
