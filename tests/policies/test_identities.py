"""Identities are kept while they are needed, and a little longer; there are never more than there may be."""

from __future__ import annotations

from forebay_policies.identities import Identities, Identity, Life


class Table:
    """`busy` are those with records on their way; `told` is what was called, in order."""

    def __init__(self, most: int = 10) -> None:
        self.told: list[str] = []
        self.busy: set[str] = set()
        self.now = 0.0
        self.all = Identities(most, lambda key: self.told.append(f"rest {key}"), self._forgotten)

    def _forgotten(self, key: str) -> None:
        self.told.append(f"forget {key}")

    def enter(self, key: str) -> Identity:
        found = self.all.enter(key, self.now)
        assert found is not None
        return found

    def leave(self, identity: Identity) -> None:
        self.all.leave(identity, self.now)

    def after(self, seconds: float) -> None:
        self.now += seconds
        self.all.sweep(self.now, self.busy.__contains__)


def test_clients_of_one_key_are_one_identity() -> None:
    table = Table()
    one, other = table.enter("alice"), table.enter("alice")
    assert one is other
    assert (one.clients, len(table.all)) == (2, 1)
    assert table.enter("bob") is not one
    table.leave(one)
    table.after(1000)
    assert (one.life, table.told) == (Life.ACTIVE, [])


def test_after_the_last_client_it_drains_rests_and_is_forgotten() -> None:
    table = Table()
    alice = table.enter("alice")
    table.busy.add("alice")
    table.leave(alice)
    table.after(600)
    assert (alice.life, table.told) == (Life.DRAINING, []), "its records are on their way"
    table.busy.clear()
    table.after(1)
    assert (alice.life, table.told) == (Life.IDLE, ["rest alice"])
    table.after(59)
    assert "alice" in table.all
    table.after(1)
    assert (table.told, len(table.all)) == (["rest alice", "forget alice"], 0)
    assert table.enter("alice") is not alice


def test_one_that_comes_back_in_time_is_the_same() -> None:
    table = Table()
    alice = table.enter("alice")
    for busy in ({"alice"}, set[str]()):
        table.busy = busy
        table.leave(alice)
        table.after(1)
        assert table.enter("alice") is alice
        assert alice.life is Life.ACTIVE
    table.after(120)
    assert table.told == ["rest alice"]


def test_beyond_the_most_only_an_idle_one_makes_room_the_oldest_first() -> None:
    table = Table(most=3)
    alice, bob, carol = (table.enter(key) for key in ("alice", "bob", "carol"))
    assert table.all.enter("dave", 0.0) is None
    table.busy.add("carol")
    table.leave(carol)
    table.leave(bob)
    table.after(1)
    table.leave(alice)
    table.after(1)
    assert table.all.enter("carol", table.now) is carol, "one that is there may be entered, however many there are"
    table.enter("dave")
    table.enter("erin")
    assert table.told == ["rest bob", "rest alice", "forget bob", "forget alice"]
    assert table.all.enter("frank", table.now) is None
    assert len(table.all) == 3
