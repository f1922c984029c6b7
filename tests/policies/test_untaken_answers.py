"""What clients have not taken of large answers is bounded, and who does not read holds up his own host only."""

from __future__ import annotations

import pytest

from forebay_policies import untaken_answers
from forebay_policies.inbound_memory import SLOWEST, TICK_S
from forebay_policies.untaken_answers import PATIENCE, UntakenAnswers

MB = 1 << 20


class FakeClient:
    """It asks for an answer of `size` bytes at once, and takes nothing unless told."""

    def __init__(self, answers: UntakenAnswers, host: str, size: int) -> None:
        self.answers = answers
        self.host = host
        self.size = size
        self.untaken = 0
        self.closed = False
        self.client_slow = True
        self.answered = answers.admits(self, size)
        if self.answered:
            self.untaken = size

    def go_on(self) -> None:
        self.answered = True
        self.untaken = self.size

    def not_taken(self) -> None:
        self.closed = True
        self.answers.gone(self)

    def takes(self, size: int) -> None:
        self.untaken -= size
        self.answers.taken(self)


class SlowHosts:
    """Each has clients that take a little more a tick than they must; one that is closed comes again at once."""

    def __init__(self, answers: UntakenAnswers, hosts: int, clients: int, size: int) -> None:
        self.answers = answers
        self.size = size
        self.there = [FakeClient(answers, f"host {host}", size) for _ in range(clients) for host in range(hosts)]
        self.finished = self.closed = 0

    def take_for_a_tick(self) -> None:
        for place, client in enumerate(self.there):
            if client.untaken:
                client.takes(min(client.untaken, 2 * SLOWEST))
                self.finished += not client.untaken
            if client.closed or (client.answered and not client.untaken):
                self.closed += client.closed
                self.there[place] = FakeClient(self.answers, client.host, self.size)
        self.answers.tick()


def answered(clients: list[FakeClient]) -> list[bool]:
    return [client.untaken > 0 for client in clients]


def test_a_host_may_hold_as_much_as_it_leaves_free_and_another_is_answered_at_once() -> None:
    answers = UntakenAnswers(16 * MB)
    crowd = [FakeClient(answers, "crowd", 2 * MB) for _ in range(300)]
    assert sum(answered(crowd)) == 4
    assert answers.total == 8 * MB
    assert FakeClient(answers, "other", 2 * MB).untaken


def test_whose_host_holds_nothing_else_is_answered_however_large_that_is() -> None:
    answers = UntakenAnswers(16 * MB)
    assert answered([FakeClient(answers, "crowd", 40 * MB) for _ in range(2)]) == [True, False]


def test_any_number_of_hosts_that_do_not_read_hold_one_answer_more_than_the_limit_at_most() -> None:
    answers = UntakenAnswers(16 * MB)
    hosts = [FakeClient(answers, f"host {number}", 2 * MB) for number in range(1000)]
    assert (sum(answered(hosts)), answers.total) == (9, 18 * MB)
    reads = FakeClient(answers, "reads", 2 * MB)
    for _ in range(2 * 1000 // 9 + 2):
        answers.tick()
        assert answers.total <= 18 * MB
    assert reads.untaken


def test_who_takes_his_answer_makes_room_in_order_of_arrival() -> None:
    answers = UntakenAnswers(3 * MB)
    first, second, third = clients = [FakeClient(answers, "crowd", 2 * MB) for _ in range(3)]
    first.takes(MB)
    assert answered(clients) == [True, False, False]
    first.takes(MB)
    assert answered(clients) == [False, True, False]
    answers.gone(third)
    answers.gone(second)
    assert (answers.total, third.untaken) == (0, 0)


def test_who_takes_nothing_is_closed_where_others_wait_and_who_takes_some_is_not() -> None:
    answers = UntakenAnswers(8 * MB)
    stuck, slow, waits = [FakeClient(answers, "crowd", 2 * MB) for _ in range(3)]
    answers.tick()
    assert (stuck.closed, waits.untaken) == (False, 0)
    slow.takes(100_000)
    answers.tick()
    assert (stuck.closed, slow.closed, waits.untaken) == (True, False, 2 * MB)


def test_whose_answer_waits_behind_a_slower_one_is_not_closed() -> None:
    answers = UntakenAnswers(4 * MB)
    behind, waits = [FakeClient(answers, "crowd", 2 * MB) for _ in range(2)]
    behind.client_slow = False
    for _ in range(10):
        answers.tick()
    assert (behind.closed, waits.untaken) == (False, 0)


def test_where_nobody_waits_nobody_is_closed() -> None:
    answers = UntakenAnswers(8 * MB)
    stuck = FakeClient(answers, "crowd", 2 * MB)
    assert answers.admits(stuck, 7 * MB), "it does not wait for itself"
    for _ in range(100):
        answers.tick()
    assert not stuck.closed


def test_a_tick_finds_what_was_taken_without_a_word() -> None:
    answers = UntakenAnswers(4 * MB)
    quick, waits = [FakeClient(answers, "crowd", 3 * MB) for _ in range(2)]
    quick.untaken = 0
    answers.tick()
    assert (quick.closed, waits.untaken, answers.total) == (False, 3 * MB, 3 * MB)


@pytest.mark.parametrize(
    ("hosts", "clients"),
    [(12, 1), (12, 50), (40, 1), (40, 50)],
    ids=["most are answered", "others of theirs wait", "most wait", "others of these wait"],
)
def test_who_takes_his_at_once_waits_briefly_however_many_hosts_take_theirs_slowly(hosts: int, clients: int) -> None:
    answers = UntakenAnswers(32 * MB)
    slow = SlowHosts(answers, hosts, clients, 7 * MB // 2)
    for _ in range(40):
        slow.take_for_a_tick()
    for _ in range(10):
        bystander = FakeClient(answers, "reads", 7 * MB // 2)
        waited = 0
        while not bystander.answered and waited < 60:
            slow.take_for_a_tick()
            waited += 1
        assert waited * TICK_S <= 1.5
        bystander.takes(bystander.untaken)
        assert answers.total <= 32 * MB + slow.size


def test_of_those_that_take_theirs_slowly_some_get_to_the_end() -> None:
    answers = UntakenAnswers(MB)
    slow = SlowHosts(answers, 40, 1, 128 * 1024)
    for _ in range(200):
        slow.take_for_a_tick()
    assert slow.closed
    assert slow.finished > 10


def test_what_is_slow_is_closed_beyond_half_of_the_limit_and_of_the_host_first_that_holds_most() -> None:
    answers = UntakenAnswers(8 * MB)
    one, two, other = [FakeClient(answers, host, 2 * MB) for host in ("crowd", "crowd", "other")]
    late = FakeClient(answers, "late", 4 * MB)
    for client in (one, two, other):
        client.client_slow = False
    waits = FakeClient(answers, "waits", 2 * MB)
    for _ in range(PATIENCE):
        late.takes(SLOWEST)
        answers.tick()
    assert [client.closed for client in (one, two, other, late)] == [False] * 4
    late.takes(SLOWEST)
    answers.tick()
    assert [client.closed for client in (one, two, other, late)] == [True, False, False, False]
    assert waits.answered, "and nobody else is closed"


def test_one_of_each_host_goes_on_in_turn() -> None:
    answers = UntakenAnswers(2 * MB)
    first = FakeClient(answers, "first", 3 * MB)
    crowd = [FakeClient(answers, "crowd", 3 * MB) for _ in range(2)]
    others = [FakeClient(answers, host, 3 * MB) for host in ("second", "third")]
    for client, then in zip([first, crowd[0], *others], [crowd[0], *others, crowd[1]], strict=True):
        assert not then.answered
        client.takes(3 * MB)
        assert then.answered


def test_answers_larger_than_half_of_the_limit_get_to_the_end_too() -> None:
    """Else of such a cluster nobody with a slow line would ever learn all topics while others ask for them."""
    answers = UntakenAnswers(8 * MB)
    clients = [FakeClient(answers, f"host {number}", 5 * MB) for number in range(10)]
    for _ in range(20):
        for client in clients:
            if client.answered and not client.closed and client.untaken:
                client.takes(MB // 4)
        answers.tick()
    assert [client.untaken for client in clients if client.answered and not client.closed].count(0) == 1


def test_a_smaller_answer_is_not_behind_one_of_the_same_host_that_finds_no_room() -> None:
    answers = UntakenAnswers(8 * MB)
    holds = FakeClient(answers, "shared", 2 * MB)
    others = [FakeClient(answers, host, 4 * MB) for host in ("first", "second")]
    large, small = FakeClient(answers, "shared", 6 * MB), FakeClient(answers, "shared", 64 * 1024)
    assert (large.answered, small.answered) == (False, False)
    for other in others:
        other.takes(4 * MB)
    assert not large.answered, "it leaves less free than its host would hold"
    assert small.answered
    holds.takes(2 * MB)
    small.takes(64 * 1024)
    assert large.answered


def test_a_client_that_takes_its_answer_while_others_are_told_of_room_makes_room_for_more() -> None:
    answers = UntakenAnswers(2 * MB)
    first = FakeClient(answers, "first", 3 * MB)

    class Quick(FakeClient):
        def go_on(self) -> None:
            super().go_on()
            self.takes(self.size)

    waiting = [Quick(answers, host, 3 * MB) for host in ("second", "third", "fourth")]
    first.takes(3 * MB)
    assert all(client.answered for client in waiting)
    assert answers.total == 0


class Counted(FakeClient):
    """Counts how often anybody looks where a client is, which is done whenever one is thought of."""

    looks = 0

    @property
    def host(self) -> str:
        Counted.looks += 1
        return self._host

    @host.setter
    def host(self, host: str) -> None:
        self._host = host


@pytest.mark.parametrize("waiting", [0, 2_000])
def test_a_tick_takes_no_longer_than_there_are_clients(waiting: int) -> None:
    answers = UntakenAnswers(2_000 * MB)
    clients = [Counted(answers, f"host {number % 100}", MB) for number in range(1_990)]
    clients += [Counted(answers, f"waits {number % 1_000}", 20 * MB) for number in range(waiting)]
    for _ in range(PATIENCE + 2):
        for client in clients:
            if client.untaken:
                client.untaken -= 2 * SLOWEST  # without a word
        Counted.looks = 0
        answers.tick()
        assert Counted.looks < 20 * len(clients)
    assert any(client.closed for client in clients) == (waiting > 0)


def test_so_many_hosts_with_slow_clients_are_remembered_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(untaken_answers, "MOST_REMEMBERED", 2)
    answers = UntakenAnswers(MB)
    for host in ("one", "two", "three"):
        stuck, waits = [FakeClient(answers, each, 2 * MB) for each in (host, "waits")]
        for _ in range(2):
            answers.tick()
        assert stuck.closed
        waits.takes(2 * MB)
    assert list(answers._closed) == ["two", "three"]
