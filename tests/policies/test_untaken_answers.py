"""What clients have not taken of large answers is bounded, and who does not read holds up his own host only."""

from __future__ import annotations

from forebay_policies.untaken_answers import UntakenAnswers

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
        if answers.admits(self, size):
            self.untaken = size

    def go_on(self) -> None:
        self.untaken = self.size

    def not_taken(self) -> None:
        self.closed = True
        self.answers.gone(self)

    def takes(self, size: int) -> None:
        self.untaken -= size
        self.answers.taken(self)


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
