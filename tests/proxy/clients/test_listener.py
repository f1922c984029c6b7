"""Which port a broker has, and what becomes of it when the port cannot be had."""

from __future__ import annotations

import asyncio
import socket
from typing import Any

import pytest
import structlog

from forebay_proxy.clients.listener import Listener, plain_address
from forebay_proxy.clients.listener_ports import ListenerPorts
from forebay_proxy.config.kinds import MAX_PORT
from forebay_proxy.config.settings import HostPort
from forebay_proxy.errors import StartError
from forebay_proxy.inherited import Inherited
from tests.kit.app import settings
from tests.kit.event_loop import in_loop, soon, turns, until
from tests.kit.ports import LOOPBACK, accepts, free_port, free_run
from tests.proxy.test_keepalive import Connected, kept_alive


class Door:
    def __init__(self, port: int, inherited: Inherited | None = None, **changed: Any) -> None:
        self.port = port
        self.came: list[int | None] = []
        self.transports: list[asyncio.BaseTransport] = []
        told = settings((HostPort(LOOPBACK, 1),), port, **changed)
        (found,) = told.client_listeners
        self.listeners = Listener(found, ListenerPorts([found]), shared=told.workers > 1, inherited=inherited)

    def open(self) -> None:
        self.listeners.open_bootstrap(self.accept)

    def accept(self, node_id: int | None) -> asyncio.Protocol:
        self.came.append(node_id)
        return Connected(self.transports)

    async def knock(self, port: int) -> None:
        before = len(self.came)
        _, writer = await soon(asyncio.open_connection(LOOPBACK, port))
        await until(lambda: len(self.came) > before)
        writer.close()


@pytest.mark.parametrize(
    ("told", "plain"),
    [("::ffff:10.1.2.3", "10.1.2.3"), ("10.1.2.3", "10.1.2.3"), ("::1", "::1"), ("::ffff:1", "::ffff:1"), ("", "")],
)
def test_an_ipv4_client_is_told_an_ipv4_address(told: str, plain: str) -> None:
    assert plain_address(told) == plain


@in_loop
async def test_broker_n_is_behind_the_port_after_the_nth_or_where_it_was_put() -> None:
    elsewhere = free_port()
    door = Door(free_run(4), node_ports={1: elsewhere})
    door.open()
    for node_id in (0, 1, 2):
        assert door.listeners.open_node(node_id)
        assert door.listeners.open_node(node_id)  # twice is as good as once
    await door.listeners.ready()
    for port in (door.port, door.port + 1, elsewhere, door.port + 3):
        await door.knock(port)
    assert door.came == [None, 0, 1, 2]
    door.listeners.close()
    await turns()


@in_loop
async def test_connections_to_every_port_are_kept_alive() -> None:
    door = Door(free_run(2))
    door.open()
    assert door.listeners.open_node(0)
    await door.listeners.ready()
    clients = [await soon(asyncio.open_connection(LOOPBACK, port)) for port in (door.port, door.port + 1)]
    await until(lambda: len(door.transports) == 2)
    assert [kept_alive(transport.get_extra_info("socket")) for transport in door.transports] == [True, True]
    for _, writer in clients:
        writer.close()
    door.listeners.close()
    await turns()


@in_loop
async def test_a_socket_is_bound_when_open_returns() -> None:
    door = Door(free_run(2))
    door.open()
    assert door.listeners.open_node(0)
    assert accepts(door.port + 1)
    door.listeners.close()
    await turns()


@in_loop
async def test_a_port_that_is_taken_is_said_once_and_tried_again() -> None:
    door = Door(free_run(2))
    door.open()
    with socket.socket() as squatter, structlog.testing.capture_logs() as logs:
        squatter.bind((LOOPBACK, door.port + 1))
        squatter.listen()
        assert not door.listeners.open_node(0)
        assert not door.listeners.open_node(0)
        assert door.listeners.without_port == {0}
    assert [(line["log_level"], line["node"]) for line in logs] == [("error", 0)]
    assert door.listeners.open_node(0)
    assert not door.listeners.without_port
    door.listeners.close()
    await turns()


@in_loop
async def test_where_others_listen_brokers_that_are_new_have_an_address_too() -> None:
    door = Door(free_run(4))
    door.open()
    await door.listeners.ready()
    with socket.socket() as squatter:
        squatter.bind((LOOPBACK, door.port + 3))
        squatter.listen()
        assert not door.listeners.open_node(2)
    door.listeners.close(succeeded=True)
    assert not door.listeners.open_node(2), "it could not be listened for"
    assert door.listeners.open_node(1)
    assert not door.listeners.open_node(MAX_PORT)
    assert not accepts(door.port + 2)


@pytest.mark.parametrize("workers", [1, 2])
@in_loop
async def test_two_brokers_never_share_a_port(workers: int) -> None:
    port = free_run(3)
    door = Door(port, node_ports={7: port + 1}, workers=workers)
    door.open()
    assert door.listeners.open_node(7)
    assert not door.listeners.open_node(0)
    assert not door.listeners.open_node(-1)  # would be the bootstrap port
    assert door.listeners.open_node(1)
    door.listeners.close()
    await turns()


@in_loop
async def test_where_only_those_named_have_a_port_another_broker_is_missed() -> None:
    port = free_run(3)
    door = Door(port, node_ports={0: port + 1}, node_ports_only=True)
    door.open()
    with structlog.testing.capture_logs() as logs:
        assert door.listeners.open_node(0)
        assert not door.listeners.open_node(1)
    assert [line["node"] for line in logs if line["event"].startswith("no port for a broker")] == [1]
    assert door.listeners.without_port == {1}
    assert not accepts(port + 2)
    door.listeners.close()
    await turns()


@in_loop
async def test_a_broker_beyond_the_last_port_has_none() -> None:
    door = Door(free_run(1))
    assert door.listeners.port(65_535 - door.port - 1) == 65_535
    assert door.listeners.port(65_535 - door.port) is None
    assert not door.listeners.open_node(65_535 - door.port)
    assert door.listeners.without_port == {65_535 - door.port}
    door.listeners.close_node(65_535 - door.port)
    assert not door.listeners.without_port, "it has left the cluster"


@in_loop
async def test_a_bootstrap_port_that_is_taken_is_said_in_words() -> None:
    door = Door(free_port())
    with socket.socket() as squatter:
        squatter.bind((LOOPBACK, door.port))
        squatter.listen()
        with pytest.raises(StartError, match=rf"cannot listen on {LOOPBACK}:{door.port}: Address already in use"):
            door.open()


@in_loop
async def test_a_broker_that_left_gives_its_port_back() -> None:
    door = Door(free_run(2))
    door.open()
    assert door.listeners.open_node(0)
    await door.listeners.ready()
    door.listeners.close_node(0)
    await until(lambda: not accepts(door.port + 1))
    assert door.listeners.open_node(0)
    await door.listeners.ready()
    await door.knock(door.port + 1)
    door.listeners.close()
    await turns()


@in_loop
async def test_closed_it_accepts_nobody_and_still_knows_whose_address_is_whose() -> None:
    door = Door(free_run(3))
    door.open()
    assert door.listeners.open_node(0)
    await door.listeners.ready()
    door.listeners.close()
    await until(lambda: not accepts(door.port) and not accepts(door.port + 1))
    assert door.listeners.open_node(0)
    assert not door.listeners.open_node(1)
    assert not accepts(door.port + 2)


@pytest.mark.parametrize("workers", [1, 2])
@in_loop
async def test_what_is_inherited_is_accepted_from_and_whoever_waits_in_it_is_served(workers: int) -> None:
    """Also where it was made by one worker alone, and there are two now."""
    first = Door(free_run(3))
    first.open()
    await first.listeners.ready()
    assert first.listeners.open_node(0)
    await first.listeners.ready()
    handed = [each.dup() for each in first.listeners.sockets]
    assert [each.getsockname()[1] for each in handed] == [first.port, first.port + 1]
    first.listeners.close()
    assert first.listeners.sockets == []
    with socket.create_connection((LOOPBACK, first.port)), socket.create_connection((LOOPBACK, first.port + 1)):
        second = Door(first.port, Inherited(handed), workers=workers)
        second.open()
        await second.listeners.ready()
        assert second.came == []
        await second.listeners.accept()
        assert second.listeners.open_node(0)
        await until(lambda: sorted(second.came, key=str) == [0, None])
    if workers == 2:
        third = Door(first.port, workers=2)
        third.open()
        third.listeners.close()
    second.listeners.close()
