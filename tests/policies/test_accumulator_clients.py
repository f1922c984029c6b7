"""Records of one client that stay on a partition keep their order, though its batches differ in codec and so in lane.

librdkafka and the Python clients send a batch uncompressed where compressing does not pay: none, lz4, none.
"""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from forebay_codecs.compression import GZIP, LZ4, NONE
from forebay_policies.producer_batch import Lane
from tests.policies.accumulator_kit import Bench
from tests.policies.batches import FakeOwner


def kept(codec: int) -> Lane:
    return Lane(acks=-1, codec=codec, movable=False)


def test_a_clients_batches_leave_in_order_whatever_their_codecs() -> None:
    bench = Bench()
    owner = FakeOwner(client="a")
    for value, codec in (b"1", NONE), (b"2", LZ4), (b"3", NONE):
        bench.append(0, value, lane=kept(codec), owner=owner)
    bench.flush()
    assert bench.send_all(1) == [[b"1"], [b"2"], [b"3"]]
    bench.assert_empty()


def test_a_later_batch_that_is_full_does_not_overtake_an_earlier_one_that_lingers() -> None:
    bench = Bench()
    owner = FakeOwner(client="a")
    bench.append(0, b"1", lane=kept(NONE), owner=owner)
    bench.append(0, bytes(20_000), lane=kept(LZ4), owner=owner)
    assert [len(values[0] or b"") for values in bench.send_all(1)] == [1]
    bench.flush()
    assert [len(values[0] or b"") for values in bench.send_all(1)] == [20_000]


def test_other_clients_batches_go_on_growing() -> None:
    bench = Bench()
    a, b = FakeOwner(client="a"), FakeOwner(client="b")
    for _ in range(3):
        bench.append(0, b"a", lane=kept(NONE), owner=a)
        bench.append(0, b"b", lane=kept(LZ4), owner=b)
    bench.flush()
    assert bench.send_all(1) == [[b"a"] * 3, [b"b"] * 3]


@given(st.lists(st.tuples(st.integers(0, 2), st.sampled_from([NONE, GZIP, LZ4]), st.booleans()), max_size=30))
def test_order_holds_for_every_client(steps: list[tuple[int, int, bool]]) -> None:
    bench = Bench(batch_size=4096, max_size=4096)
    owners = [FakeOwner(client=number) for number in range(3)]
    sent: list[list[bytes]] = [[], [], []]
    left: list[bytes | None] = []
    for number, (client, codec, drain) in enumerate(steps):
        value = b"%d:%d" % (client, number) + bytes(number % 3 * 700)
        bench.append(0, value, lane=kept(codec), owner=owners[client])
        sent[client].append(value)
        if drain:
            left += [value for values in bench.send_all(1) for value in values]
    bench.flush()
    left += [value for values in bench.send_all(1) for value in values]
    for client in range(3):
        assert [value for value in left if value is not None and value.startswith(b"%d:" % client)] == sent[client]
    bench.assert_empty()
