"""What may be held of requests that are not whole: who waits, who goes on, who is closed."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from forebay_policies.inbound_memory import READ, SLOWEST, SMALL, TICK_S, WHY, InboundMemory

MB = 1 << 20
PATIENCE = 60.0


class FakeClient:
    def __init__(self, inbound_memory: InboundMemory, size: int = 100 * MB, party: int | None = 0) -> None:
        self.inbound_memory = inbound_memory
        self.party = party
        self.size = size
        self.received = 0
        self.gathered = 0
        self.held_here = False
        self.held_elsewhere = False
        self.closed = False
        self.unread = 0

    @property
    def held(self) -> bool:
        return self.held_here or self.held_elsewhere

    def hold(self, why: str) -> None:
        assert why == WHY
        assert not self.held_here
        self.held_here = True

    def release(self, why: str) -> None:
        assert why == WHY
        assert self.held_here
        self.held_here = False

    def pending(self) -> int:
        return self.unread

    def stalled(self) -> None:
        assert not self.closed
        self.closed = True

    def sends(self, size: int) -> None:
        assert not self.held
        self.received += size
        self.gathered += size
        self.inbound_memory.arriving(self, self.gathered, max(1, self.size - self.gathered))

    def finishes(self) -> None:
        self.gathered = 0
        self.inbound_memory.arrived(self)


class Bench:
    def __init__(self, limit: int = MB) -> None:
        self.inbound_memory = InboundMemory(limit, PATIENCE)
        self.now = 0.0

    def client(self, size: int = 0, of: int = 100 * MB, party: int | None = 0) -> FakeClient:
        """It has sent `size` bytes of a request of so many."""
        client = FakeClient(self.inbound_memory, of, party)
        if size:
            client.sends(size)
        return client

    def passes(self, seconds: float) -> None:
        for _ in range(int(seconds / TICK_S)):
            self.now += TICK_S
            self.inbound_memory.tick(self.now)


def test_within_the_limit_nobody_is_held() -> None:
    bench = Bench(4 * READ)
    clients = [bench.client(READ) for _ in range(4)]
    assert [client.held for client in clients] == [False] * 4
    for client in clients:
        client.finishes()
    assert bench.inbound_memory.total == 0


def test_beyond_the_limit_clients_are_held_and_go_on_in_their_order_as_there_is_room() -> None:
    bench = Bench(2 * READ)
    first, second, third, fourth, fifth = clients = [bench.client(READ) for _ in range(5)]
    assert [client.held for client in clients] == [False, False, False, True, True]  # the third goes on beyond it
    first.finishes()
    second.finishes()
    assert [client.held for client in (fourth, fifth)] == [True, True]  # three reads are held still, room is for two
    third.finishes()
    assert [client.held for client in (fourth, fifth)] == [False, True]
    fourth.finishes()
    assert not fifth.held


def test_who_has_least_to_come_goes_on_first() -> None:
    """Hundreds announce 50 MB and send the half of what they ever send; behind them comes an honest request."""
    bench = Bench(2 * READ)
    giants = [bench.client(READ, of=50 * MB) for _ in range(200)]
    for giant in giants:
        giant.unread = READ
    honest = bench.client(READ, of=2 * READ)
    assert not honest.held
    assert [giant.held for giant in giants[2:]] == [True] * 198
    larger, smaller = bench.client(READ, of=4 * READ), bench.client(READ, of=3 * READ)
    assert [larger.held, smaller.held] == [True, True]
    honest.finishes()
    assert [larger.held, smaller.held] == [True, False]


def test_a_giant_that_trickles_in_goes_on_alone_and_in_nobody_elses_way() -> None:
    bench = Bench(4 * READ)
    giant = bench.client(5 * READ)
    for _ in range(int(PATIENCE / TICK_S)):
        giant.sends(SLOWEST)
        giant.unread = SLOWEST  # which comes while it is held
        for _ in range(10):
            honest = bench.client(SMALL, of=4 * SMALL)
            assert giant.held
            honest.sends(SMALL)
            honest.finishes()
            assert not giant.held
        bench.passes(TICK_S)
        other = bench.client(SMALL, of=4 * SMALL)
        bench.passes(TICK_S)  # it is held when it is looked at
        other.finishes()
    assert not giant.closed


def test_a_giant_that_pretends_to_go_on_is_closed_though_others_interrupt_it() -> None:
    bench = Bench(READ)
    giant = bench.client(2 * READ)
    for _ in range(3):
        bench.client(SMALL, of=4 * SMALL).finishes()
        bench.passes(TICK_S)
    honest = bench.client(SMALL, of=4 * SMALL)
    bench.passes(TICK_S)
    assert giant.closed
    assert not honest.held


def test_whoever_goes_on_and_cannot_gives_way() -> None:
    """Its answers are not read, say: to end it for that is not for here."""
    bench = Bench(READ)
    bench.client(READ)
    blocked = bench.client(READ, of=READ + 1)
    blocked.held_elsewhere = True
    honest = bench.client(SMALL, of=4 * SMALL)
    honest.unread = 1
    assert honest.held
    bench.passes(TICK_S)
    assert not honest.held


def test_the_next_request_of_whoever_goes_on_is_one_like_any_other() -> None:
    bench = Bench(READ)
    bench.client(READ)
    client = bench.client(SMALL, of=4 * SMALL)
    honest = bench.client(SMALL, of=8 * SMALL)
    assert honest.held
    client.gathered = 0
    client.size = MB
    client.sends(SMALL)  # the end of its request, and the beginning of another
    assert client.held
    assert not honest.held


def test_those_that_were_held_and_left_are_not_remembered() -> None:
    bench = Bench(READ)
    giant = bench.client(2 * READ)
    for _ in range(1000):
        client = bench.client(10)
        assert client.held
        client.finishes()
    assert len(bench.inbound_memory._turns) < 200
    giant.finishes()
    assert bench.inbound_memory.total == bench.inbound_memory.held == 0


def test_one_is_always_read_so_a_request_larger_than_the_limit_gets_through() -> None:
    bench = Bench(READ)
    giant = bench.client(READ)
    for _ in range(20):
        giant.sends(READ)
    other = bench.client(10)
    assert other.held
    giant.finishes()
    assert not other.held


def test_whole_requests_that_wait_count_up_to_half_of_the_limit() -> None:
    bench = Bench(4 * READ)
    waiting = bench.client()
    bench.inbound_memory.set_waiting(waiting, 1, 20 * READ)
    assert bench.inbound_memory.next_read(0) == READ
    clients = [bench.client(READ) for _ in range(4)]
    assert [client.held for client in clients] == [False, False, False, True]
    assert bench.inbound_memory.total == 24 * READ
    bench.inbound_memory.set_waiting(waiting, 1, 0)
    assert not clients[3].held
    assert bench.inbound_memory.total == 4 * READ


def test_a_broker_whose_clients_requests_wait_holds_them_and_nobody_else() -> None:
    bench = Bench(16 * READ)
    waiting = [bench.client(party=1) for _ in range(9)]
    for client in waiting[:4]:
        bench.inbound_memory.set_waiting(client, 1, READ)
    assert not bench.client(READ, party=1).held
    bench.inbound_memory.set_waiting(waiting[4], 1, READ)  # more than are left of eight
    assert [bench.inbound_memory.next_read(party) for party in (0, 1, None)] == [READ, SMALL, READ]
    held = [bench.client(SMALL, of=READ, party=1) for _ in range(3)]
    assert [client.held for client in held] == [True] * 3
    assert not any(bench.client(SMALL, party=party).held for party in (0, 2, None))
    for client in waiting[5:]:  # they come in small pieces, or had been read
        bench.inbound_memory.set_waiting(client, 1, READ)
    assert not bench.client(READ, party=2).held, "of which nothing waits"
    for client in waiting[4:]:
        assert [each.held for each in held] == [True] * 3
        bench.inbound_memory.set_waiting(client, 1, 0)
    assert [each.held for each in held] == [False, True, True], "there is room for one, and no more"
    bench.inbound_memory.set_waiting(held[0], 1, READ)
    held[0].finishes()
    bench.inbound_memory.set_waiting(waiting[0], 1, 0)
    assert [each.held for each in held] == [False, False, True]
    bench.inbound_memory.set_waiting(waiting[1], 1, 0)
    assert [each.held for each in held] == [False, False, False]


def test_two_brokers_that_hang_leave_others_something_though_large_requests_took_a_half_at_once() -> None:
    bench = Bench(64 * READ)
    for party in (1, 2):
        bench.inbound_memory.set_waiting(bench.client(), party, 16 * READ)
    bench.inbound_memory.set_waiting(bench.client(), 3, 4 * READ)
    assert [bench.inbound_memory.next_read(party) for party in (1, 2, 3, 4)] == [SMALL, SMALL, READ, READ]
    bench.inbound_memory.set_waiting(bench.client(), 3, READ)
    assert bench.inbound_memory.next_read(3) == SMALL
    bench.inbound_memory.set_waiting(bench.client(), 4, 4 * READ)
    assert bench.inbound_memory.next_read(4) == READ
    bench.inbound_memory.set_waiting(bench.client(), 1, 32 * READ)
    assert bench.inbound_memory.next_read(4) == SMALL, "more waits than the limit"


def test_those_of_a_broker_are_released_though_no_request_waits_any_more() -> None:
    bench = Bench(8 * READ)
    waiting = bench.client(party=1)
    bench.inbound_memory.set_waiting(waiting, 1, 3 * READ)
    first, second, third = [bench.client(SMALL, of=3 * READ, party=1) for _ in range(3)]
    for client in (first, second, third):
        client.unread = 1
    bench.inbound_memory.set_waiting(waiting, 1, 0)
    assert [client.held for client in (first, second, third)] == [False, True, True]
    first.finishes()
    assert [client.held for client in (second, third)] == [False, True]
    bench.passes(TICK_S)
    assert not third.held


def test_whoever_goes_on_and_whose_broker_is_crowded_gives_way() -> None:
    bench = Bench(4 * READ)
    bench.client(4 * READ)
    client = bench.client(SMALL, of=2 * READ, party=1)
    other = bench.client(SMALL, of=3 * READ)
    assert [client.held, other.held] == [False, True]
    bench.inbound_memory.set_waiting(bench.client(), 1, 2 * READ)
    client.sends(SMALL)
    assert [client.held, other.held] == [True, False]
    client.finishes()
    assert not client.held


def test_who_is_held_for_a_broker_is_not_closed_for_it_unless_it_sends_no_more() -> None:
    bench = Bench(4 * READ)
    bench.inbound_memory.set_waiting(bench.client(), 1, 2 * READ)
    honest, hoarder = [bench.client(SMALL, of=READ, party=1) for _ in range(2)]
    honest.unread = 1
    bench.passes(PATIENCE + 2)
    assert [honest.closed, hoarder.closed] == [False, True]
    assert bench.inbound_memory.held == 1


def test_who_comes_anew_is_not_read_once_more_waits_than_the_limit_at_the_port_that_he_comes_to() -> None:
    bench = Bench(4 * READ)

    def newcomer(party: int) -> FakeClient:
        client = bench.client(party=party)
        if bench.inbound_memory.shut(party):
            bench.inbound_memory.came(client)
        return client

    left = [bench.client(party=1) for _ in range(5 * READ // SMALL)]
    for client in left[: 4 * READ // SMALL]:
        assert not newcomer(1).held
        bench.inbound_memory.set_waiting(client, 1, SMALL)
    for client in left[4 * READ // SMALL :]:
        bench.inbound_memory.set_waiting(client, 1, SMALL)
    assert not newcomer(0).held
    first, second, third = [newcomer(1) for _ in range(3)]
    assert [client.held for client in (first, second, third)] == [True] * 3
    second.finishes()
    assert bench.inbound_memory.held == 2
    read = bench.client(SMALL)
    bench.inbound_memory.came(read)
    assert not read.held, "it was read before it was to be held"
    read.finishes()
    bench.passes(PATIENCE + 2)
    assert not first.closed, "it may have nothing to say"
    for client in left:
        bench.inbound_memory.set_waiting(client, 1, 0)
    assert [client.held for client in (first, second, third)] == [False] * 3


def test_what_is_passed_on_at_once_takes_no_memory_and_is_not_held() -> None:
    bench = Bench(READ)
    bench.inbound_memory.set_waiting(bench.client(), 1, 2 * READ)
    client = bench.client()
    bench.inbound_memory.arriving(client, 0, 0)
    assert not client.held


def test_without_a_limit_nobody_is_held() -> None:
    bench = Bench(-1)
    assert not any(bench.client(100 * MB).held for _ in range(100))
    assert bench.inbound_memory.next_read(0) == READ


def test_thousands_that_each_read_once_exceed_the_limit_by_no_more_than_a_small_read_each() -> None:
    bench = Bench(4 * READ)
    for _ in range(2000):
        bench.client(bench.inbound_memory.next_read(0))
    assert bench.inbound_memory.total <= 4 * READ + 2000 * SMALL


def test_a_read_takes_what_there_is_room_for() -> None:
    bench = Bench(2 * READ)
    assert bench.inbound_memory.next_read(0) == READ
    client = bench.client(2 * READ - 10_000)
    assert bench.inbound_memory.next_read(0) == 10_000
    client.sends(9_000)
    assert bench.inbound_memory.next_read(0) == SMALL
    client.finishes()
    assert bench.inbound_memory.next_read(0) == READ


def test_what_rests_makes_reads_smaller_and_holds_nobody() -> None:
    bench = Bench(2 * READ)
    for _ in range(4):
        bench.inbound_memory.arriving(bench.client(), 0, 0, READ)
    assert bench.inbound_memory.next_read(0) == SMALL
    assert not bench.client(READ).held
    (first, *_) = bench.inbound_memory._arriving
    for client in list(bench.inbound_memory._arriving):
        bench.inbound_memory.arrived(client)
    assert bench.inbound_memory.resting == 0
    assert not first.held


def test_a_request_that_stalls_closes_its_client_after_a_while() -> None:
    bench = Bench()
    stalled, opaque = bench.client(100), bench.client()
    bench.inbound_memory.arriving(opaque, 0, 0)
    bench.passes(int(PATIENCE))
    assert not stalled.closed
    assert not opaque.closed
    bench.passes(3)
    assert stalled.closed
    assert opaque.closed
    assert bench.inbound_memory.total == 0


def test_a_slow_and_steady_request_is_waited_for_however_long_it_takes() -> None:
    bench = Bench(100 * MB)
    steady = bench.client(1)
    for _ in range(int(10 * PATIENCE / TICK_S)):
        steady.sends(SLOWEST)
        bench.passes(TICK_S)
    assert not steady.closed


def test_one_byte_a_second_is_no_progress() -> None:
    bench = Bench()
    loris = bench.client(1)
    for _ in range(int(PATIENCE) + 3):
        if not loris.closed:
            loris.sends(1)
        bench.passes(1)
    assert loris.closed


def test_a_pause_is_forgiven_once_it_is_over() -> None:
    bench = Bench(100 * MB)
    client = bench.client(1)
    for _ in range(5):
        bench.passes(int(PATIENCE) - 5)
        client.sends(SLOWEST)
        bench.passes(1)
    assert not client.closed


def test_time_for_which_a_client_is_not_read_does_not_count() -> None:
    bench = Bench()
    client = bench.client(1)
    client.held_elsewhere = True
    bench.passes(10 * int(PATIENCE))
    client.held_elsewhere = False
    bench.passes(5)
    assert not client.closed


def test_where_memory_is_short_the_stalled_are_closed_at_once_the_longest_stalled_first() -> None:
    bench = Bench(4 * READ)
    first = bench.client(READ)
    bench.passes(1)
    others = [bench.client(READ) for _ in range(3)]
    bench.passes(2)
    honest = bench.client(READ)
    assert first.closed
    assert [client.closed for client in others] == [False] * 3
    assert not honest.held


def test_a_stalled_client_that_holds_up_others_is_closed_at_the_next_look() -> None:
    bench = Bench(READ)
    bench.client(READ)
    bench.client(READ)
    honest = bench.client(READ)
    honest.unread = 1
    assert honest.held
    bench.passes(2)
    assert not honest.held
    assert not honest.closed


def test_a_held_client_stalls_where_it_has_not_sent_more_meanwhile() -> None:
    bench = Bench(READ)
    first, hoarder, honest = bench.client(2 * READ, of=3 * READ), bench.client(1), bench.client(1)
    honest.unread = 1
    assert hoarder.held
    assert honest.held
    for _ in range(4):
        first.sends(SLOWEST)
        bench.passes(TICK_S)
    assert hoarder.closed
    assert honest.held
    assert not honest.closed


def test_thousands_that_stall_hold_nobody_up_for_longer_than_it_takes_to_see_it() -> None:
    bench = Bench(64 * READ)
    hoarders = [bench.client(READ) for _ in range(1000)]
    honest = bench.client(READ)
    honest.unread = 1
    assert honest.held
    bench.passes(2 * TICK_S)
    assert not honest.held
    assert not honest.closed
    assert all(hoarder.closed for hoarder in hoarders)


def test_a_held_client_that_leaves_gives_its_memory_back() -> None:
    bench = Bench(READ)
    first, second, third = bench.client(READ), bench.client(READ), bench.client(READ)
    assert third.held
    third.finishes()
    assert (bench.inbound_memory.total, bench.inbound_memory.held) == (2 * READ, 0)
    first.finishes()
    second.finishes()
    assert bench.inbound_memory.total == 0


@given(
    st.lists(st.tuples(st.integers(0, 8), st.sampled_from(["send", "finish", "wait", "done", "tick"])), max_size=120)
)
def test_there_is_never_a_deadlock_and_every_byte_is_given_back(steps: list[tuple[int, str]]) -> None:
    bench = Bench(4 * READ)
    clients = [bench.client(party=number % 3) for number in range(9)]
    waiting = set[FakeClient]()
    for number, what in steps:
        client = clients[number]
        if what == "tick":
            bench.passes(1)
        elif what == "done":
            waiting.discard(client)
            bench.inbound_memory.set_waiting(client, client.party, 0)
        elif client.closed or client.held:
            continue
        elif what == "send":
            client.sends(READ)
        elif what == "finish":
            client.finishes()
        elif client not in waiting and not client.gathered:
            waiting.add(client)
            bench.inbound_memory.set_waiting(client, client.party, READ)
        held = [client for client in clients if client.held and not client.closed]
        assert bench.inbound_memory.held == len(held)
        reading = [client for client in clients if client.gathered and not client.held and not client.closed]
        parties = {client.party for client in waiting}
        assert not held or reading or parties & {client.party for client in held}
    for client in waiting:
        bench.inbound_memory.set_waiting(client, client.party, 0)
    for client in clients:
        client.finishes()
    assert (bench.inbound_memory.total, bench.inbound_memory.held) == (0, 0)
    assert not any(client.held for client in clients)
    assert not bench.inbound_memory._waits_of


@given(
    st.lists(st.integers(2 * SMALL, MB), min_size=2, max_size=8),
    st.lists(st.tuples(st.integers(0, 7), st.booleans()), max_size=400),
)
def test_beyond_the_limit_there_is_a_small_read_of_each_and_one_request(
    sizes: list[int], steps: list[tuple[int, bool]]
) -> None:
    """Each is read as far as it may be, and leaves with its last byte or before. Then the next one comes."""
    bench = Bench(READ)
    clients = [bench.client(of=size) for size in sizes]
    for number, leaves in steps:
        client = clients[number % len(clients)]
        if leaves:
            client.finishes()
            clients[number % len(clients)] = bench.client(of=client.size)
        elif not client.held:
            rest = client.size - client.gathered
            size = min(bench.inbound_memory.next_read(0), rest)
            client.sends(size) if size < rest else client.finishes()
        held = [client for client in clients if client.held]
        assert not held or len([client for client in clients if client.gathered]) > len(held)
        assert bench.inbound_memory.total <= READ + len(sizes) * SMALL + max(sizes)
    for client in clients:
        client.finishes()
    assert (bench.inbound_memory.total, bench.inbound_memory.held) == (0, 0)
