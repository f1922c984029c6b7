"""Sockets go from one side to the other whole, however many, and nobody waits for one who has left."""

from __future__ import annotations

import socket

import pytest

from forebay_proxy.process.handed_sockets import AT_ONCE, close, hand, take


@pytest.mark.parametrize("count", [0, 1, AT_ONCE, AT_ONCE + 1])
def test_all_arrive_and_are_the_same_in_their_order(count: int) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs, socket.create_server(("127.0.0.1", 0)) as one, socket.create_server(("127.0.0.1", 0)) as other:
        sent = [other, *[one] * (count - 1)] if count else []
        hand(ours, sent)
        hand(ours, [one])
        found = take(theirs)
        assert [each.getsockname() for each in found] == [each.getsockname() for each in sent]
        assert not any(each.get_inheritable() for each in found)
        close(found)
        (again,) = take(theirs)
        one.close()
        with again, socket.create_connection(again.getsockname()):  # it listens as long as anybody has it
            pass


def test_who_has_left_hands_nothing_over() -> None:
    ours, theirs = socket.socketpair()
    with theirs:
        ours.sendall((2).to_bytes(4, "big"))
        ours.close()
        with pytest.raises(ConnectionError, match="has left"):
            take(theirs)


def test_who_says_nothing_is_not_waited_for() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.settimeout(0.01)
        with pytest.raises(TimeoutError):
            take(theirs)
