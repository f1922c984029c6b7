"""Of a name's addresses, those that failed come last."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from forebay_proxy.brokers.tried_addresses import AGAIN_S, GIVEN_UP_S, MOST, TriedAddresses


class Tried:
    """Addresses of one name, that answer or fail as told."""

    def __init__(self) -> None:
        self.now = 1.0
        self.addresses = TriedAddresses(lambda: self.now)

    def answers(self, address: str) -> None:
        with self.addresses.trying("kafka", 9092, address):
            pass

    def fails(self, address: str, error: BaseException | None = None, after: float = 0.001) -> None:
        with suppress(BaseException), self.addresses.trying("kafka", 9092, address):
            self.now += after
            raise error or ConnectionError

    def order(self, *addresses: str, port: int = 9092) -> str:
        return "".join(self.addresses.in_order("kafka", port, addresses))


def test_none_has_failed_and_the_resolver_has_its_way() -> None:
    assert Tried().order("b", "a", "b", "c") == "bac"


def test_the_one_that_failed_last_comes_last_until_it_answers() -> None:
    it = Tried()
    it.fails("a")
    it.fails("b")
    assert it.order("a", "b", "c") == "cab"
    it.fails("a")
    assert it.order("a", "b", "c") == "cba"
    it.answers("a")
    assert it.order("a", "b", "c") == "acb"
    assert it.order("a", "b", "c", port=9093) == "abc"


def test_after_a_minute_the_resolver_has_its_way_again_and_one_attempt_finds_out() -> None:
    it = Tried()
    for address in "abc":
        it.fails(address)
    it.answers("a")
    assert it.order("b", "c", "a") == "abc"
    it.now += AGAIN_S
    assert it.order("b", "c", "a") == "bca"
    with it.addresses.trying("kafka", 9092, "b"):
        assert it.order("b", "c", "a") == "cab"
    assert it.order("b", "c", "a") == "bca"


def test_one_that_was_given_up_has_failed_if_it_took_long() -> None:
    it = Tried()
    it.fails("a", asyncio.CancelledError(), after=GIVEN_UP_S / 2)
    assert it.order("a", "b") == "ab"
    it.fails("a", asyncio.CancelledError(), after=GIVEN_UP_S)
    assert it.order("a", "b") == "ba"


def test_not_all_that_ever_failed_are_remembered() -> None:
    it = Tried()
    for number in range(MOST + 1):
        it.fails(f"{number}")
    assert len(it.addresses._failed) == MOST
    assert it.addresses.in_order("kafka", 9092, ["1", "0"]) == ["0", "1"]
