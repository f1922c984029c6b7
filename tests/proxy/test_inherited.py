"""Sockets are found by their addresses, and shared."""

from __future__ import annotations

import socket

from forebay_proxy.inherited import Inherited


def listening(port: int = 0) -> socket.socket:
    return socket.create_server(("127.0.0.1", port), reuse_port=True)


def test_all_of_an_address_are_taken_once_and_the_rest_is_closed() -> None:
    with listening() as one, listening(one.getsockname()[1]) as two, listening() as other:
        inherited = Inherited([one, other, two])
        assert inherited.take(socket.AF_INET6, one.getsockname()) == []
        assert inherited.take(socket.AF_INET, one.getsockname()) == [one, two]
        assert inherited.take(socket.AF_INET, one.getsockname()) == []
        inherited.close()
        assert other.fileno() == -1
        assert one.fileno() >= 0
        assert two.fileno() >= 0


def test_each_address_is_shared_by_itself() -> None:
    with listening() as a1, listening(a1.getsockname()[1]) as a2, listening() as b:
        assert Inherited([a1, a2, b]).shares(2) == [[a1, b], [a2]]
        assert Inherited([a1, a2, b]).shares(1) == [[a1, a2, b]]
        assert Inherited([a1, a2, b]).shares(3) == [[a1, b], [a2], []]
