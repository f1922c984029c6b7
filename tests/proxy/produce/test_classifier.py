"""design.md's table of eligibility, line by line, over whole Produce requests."""

from __future__ import annotations

import pytest

from forebay_codecs import produce_request
from forebay_codecs.compression import GZIP, NONE
from forebay_codecs.record_batch import ClientBatch
from forebay_policies.eligibility import Eligibility
from forebay_policies.own_choices import CHOOSE_PARTITIONS_THEMSELVES
from forebay_proxy.metrics.registry import MetricRegistry
from forebay_proxy.produce.classifier import BatchClassifier, ClassifiedRequest, InspectedBatch
from tests.codecs.message_oracle import messages
from tests.codecs.record_oracle import Record, decode_batch, decode_section, encode_section, seal
from tests.kit.wire import Batches, batch, keyed, null_key, old_produce, produce, transactional

CAP = 10_000
MIXED = [*keyed("a"), *null_key("b"), *keyed("c"), *null_key("d")]


class Desk:
    def __init__(self) -> None:
        self.stats = MetricRegistry()
        eligibility = Eligibility(("*",), ("raw*",), ("*",), CHOOSE_PARTITIONS_THEMSELVES)
        self.classifier = BatchClassifier(
            eligibility,
            lambda name: name == "inner",
            lambda name: name != "single",
            lambda name: name != "refused",
            CAP,
            self.stats,
        )

    def classify(self, *batches: Batches) -> ClassifiedRequest:
        frame = produce(1, *batches)[4:]
        return self.classifier.classify(frame, self.inspect(frame))

    def inspect(self, frame: bytes) -> list[InspectedBatch]:
        request = produce_request.parse(frame)
        return self.classifier.inspect(frame, request, request.topics)

    def topics(self, frame: bytes) -> list[str]:
        """Of the batches that may be touched."""
        return [entry.topic for entry in self.inspect(frame[4:]) if entry.reason is None]

    def reasons(self) -> dict[str, float]:
        counters = self.stats.take().counters
        return {labels[0]: n for (name, labels), n in counters.items() if name == "forebay_batches_in_total" and n}


def records(batch_: ClientBatch) -> list[Record]:
    return decode_section(batch_.section, batch_.record_count, batch_.base_timestamp)


class TestWholeRequests:
    @pytest.mark.parametrize(
        ("frame", "reason"),
        [
            (transactional(produce(1, ("ponds", 0, batch(null_key("a"))))), "transactional"),
            (produce(1, ("ponds", 0, batch(null_key("a"))), client_id="connector-producer-x-0"), "client_excluded"),
            (produce(1, ("raw-ponds", 0, batch(null_key("a")))), "topic_excluded"),
            (produce(1, ("inner", 0, batch(null_key("a")))), "internal_topic"),
            (produce(1, ("__consumer_offsets", 0, batch(null_key("a")))), "internal_topic"),
            (produce(1, ("ponds", 0, batch(null_key("a"), producer_id=0))), "idempotent"),
            (produce(1, ("ponds", 0, seal(encode_section(null_key("a")), count=1, attributes=0x10))), "transactional"),
            (
                produce(1, ("ponds", 0, seal(encode_section(null_key("a")), count=1, attributes=0x20))),
                "unknown_attributes",
            ),
            (produce(1, ("ponds", 0, batch(null_key("a"), magic=1))), "unknown_attributes"),
            (produce(1, ("ponds", 0, b"")), "unknown_attributes"),
            (produce(1, ("ponds", 0, batch(null_key("a")) + batch(null_key("b")))), "unknown_attributes"),
        ],
    )
    def test_goes_on_as_it_came(self, frame: bytes, reason: str) -> None:
        desk = Desk()
        assert desk.topics(frame) == []
        desk.classifier.count_untouched(desk.inspect(frame[4:]))
        assert desk.reasons() == {reason: 1}

    def test_each_batch_is_looked_at_by_itself(self) -> None:
        batches = [("ponds", 0, batch(null_key("a"))), ("raw", 0, batch(keyed("b"))), ("lakes", 1, batch(keyed("c")))]
        assert Desk().topics(produce(1, *batches)) == ["ponds", "lakes"]

    def test_a_request_without_topics_has_nothing_to_touch(self) -> None:
        assert Desk().topics(produce(1)) == []


def test_a_topic_whose_name_is_too_long_for_kafka_is_left_to_the_broker() -> None:
    names = {"n" * 249: True, "n" * 250: False}
    for name, touched in names.items():
        assert bool(Desk().topics(produce(1, (name, 0, batch(null_key("a")))))) == touched


class TestTouched:
    @pytest.mark.parametrize("codec", [NONE, GZIP])
    def test_null_key_records_may_move(self, codec: int) -> None:
        desk = Desk()
        (touched,) = desk.classify(("ponds", 4, batch(null_key("a", "b"), codec))).touched
        assert (touched.slot, touched.topic, touched.partition) == (0, "ponds", 4)
        assert (touched.movable, touched.whole) == (True, True)
        assert records(touched.batch) == null_key("a", "b")
        assert desk.reasons() == {"null_key": 1}

    def test_keyed_records_stay(self) -> None:
        desk = Desk()
        (touched,) = desk.classify(("ponds", 4, batch(keyed("a", "b")))).touched
        assert (touched.movable, touched.whole) == (False, True)
        assert desk.reasons() == {"keyed": 1}

    def test_an_empty_key_is_a_key(self) -> None:
        (touched,) = Desk().classify(("ponds", 0, batch([Record(b"", b"v")]))).touched
        assert not touched.movable

    @pytest.mark.parametrize("codec", [NONE, GZIP])
    def test_mixed_records_are_split_in_their_order(self, codec: int) -> None:
        desk = Desk()
        kept, free = desk.classify(("ponds", 4, batch(MIXED, codec))).touched
        assert [(part.movable, part.whole, part.slot) for part in (kept, free)] == [(False, False, 0), (True, False, 0)]
        assert records(kept.batch) == keyed("a", "c")
        assert records(free.batch) == null_key("b", "d")
        assert desk.reasons() == {"mixed": 1}

    def test_or_go_whole_where_their_topic_is_refused(self) -> None:
        desk = Desk()
        (touched,) = desk.classify(("refused", 4, batch(MIXED))).touched
        assert (touched.movable, touched.whole) == (False, True)
        assert records(touched.batch) == MIXED
        assert desk.reasons() == {"mixed": 1}


class TestOfOnePartition:
    @pytest.mark.parametrize("records_", [null_key("a", "b"), keyed("a"), MIXED])
    def test_nothing_moves_and_nothing_is_split(self, records_: list[Record]) -> None:
        (touched,) = Desk().classify(("single", 0, batch(records_))).touched
        assert (touched.movable, touched.whole) == (False, True)
        assert records(touched.batch) == records_


class TestLeftToTheBroker:
    @pytest.mark.parametrize(
        ("bad", "reason"),
        [
            (batch(null_key("a"), crc=1), "corrupt"),
            (batch(null_key("a"), last_offset_delta=1), "invalid"),
            (seal(encode_section(null_key("a")), count=2), "invalid"),
            (seal(encode_section(null_key("a")) + b"\0", count=1), "invalid"),
            (seal(b"", count=0), "invalid"),
            (seal(b"no gzip", count=1, attributes=GZIP), "corrupt"),
            (batch(null_key("a" * (CAP + 1)), GZIP), "too_large"),
        ],
    )
    def test_what_cannot_be_opened_goes_on_as_it_came(self, bad: bytes, reason: str) -> None:
        desk = Desk()
        found = desk.classify(("ponds", 0, batch(keyed("a"))), ("ponds", 1, bad), ("ponds", 2, batch(keyed("b"))))
        assert [(entry.slot, bytes(entry.batch)) for entry in found.untouched] == [(1, bad)]
        assert (found.unread, found.refused) == (True, [])
        assert [touched.slot for touched in found.touched] == [0, 2]
        assert desk.reasons() == {"keyed": 2, reason: 1}

    @pytest.mark.parametrize("old", [False, True])
    def test_what_would_have_brokers_refuse_others_records_with_it_goes_on_alone(self, *, old: bool) -> None:
        """They fail at times before 1970 as they compress anew; -1, which is none, they know."""
        desk = Desk()
        for timestamp, touched in ((-5, False), (-1, True)):
            sent = [Record(b"k", b"a", (), 7), Record(b"k", b"b", (), timestamp), Record(b"k", b"c", (), 9)]
            if old:
                frame = old_produce(1, ("ponds", 0, messages(sent)))[4:]
                found = desk.classifier.classify(frame, desk.inspect(frame))
            else:
                found = desk.classify(("ponds", 0, batch(sent, GZIP)))
            assert [decode_batch(bytes(entry.batch)).records for entry in found.untouched] == (
                [] if touched else [sent]
            )
            assert (found.unread, found.records) == (not touched, 3)
        assert desk.reasons() == {"keyed": 1, "invalid": 1}

    def test_what_decompresses_shares_one_limit(self) -> None:
        """In memory they stand beside each other. What came uncompressed is bounded by the frame."""
        large = [batch(null_key("a" * (CAP // 3)), codec) for codec in (NONE, GZIP, GZIP, GZIP, NONE)]
        found = Desk().classify(*[("ponds", index, records) for index, records in enumerate(large)])
        assert [touched.slot for touched in found.touched] == [0, 1, 2, 4]
        assert [entry.slot for entry in found.untouched] == [3]

    @pytest.mark.parametrize("bad", [seal(b"no gzip", count=1, attributes=GZIP), batch(null_key("a" * CAP), GZIP)])
    def test_what_was_decompressed_in_vain_counts_too(self, bad: bytes) -> None:
        """A frame full of them would take as long as if each were let in."""
        fits = batch(null_key("a" * (CAP // 2 - 500)), GZIP)
        too_large = batch(null_key("a" * (CAP // 2 + 500)), GZIP)
        assert [touched.slot for touched in Desk().classify(("ponds", 0, bad), ("ponds", 1, fits)).touched] == [1]
        assert [touched.slot for touched in Desk().classify(("ponds", 0, bad), ("ponds", 1, too_large)).touched] == []


def test_records_of_old_producers_that_only_pass_count_as_untouched_once() -> None:
    desk = Desk()
    old = messages(null_key("a", "b"))
    frame = old_produce(1, ("raw", 0, old))[4:]
    inspected = desk.inspect(frame)
    for count in (True, False):
        desk.classifier.classify(frame, inspected, count=count)
    taken = desk.stats.take()
    assert taken.counters["forebay_records_total", ("untouched",)] == 2
    assert [(topic.name, topic.untouched_records, topic.untouched_bytes) for topic in taken.topics] == [
        ("raw", 2, len(old))
    ]


def test_all_kinds_beside_each_other_keep_their_slots() -> None:
    frame_batches: list[Batches] = [
        ("ponds", 0, batch(keyed("a"))),
        ("ponds", 1, batch(null_key("b"), producer_id=9)),
        ("raw", 0, batch(null_key("c"))),
        ("lakes", 0, batch(null_key("d"), crc=1)),
        ("lakes", 1, batch(MIXED)),
    ]
    found = Desk().classify(*frame_batches)
    assert [touched.slot for touched in found.touched] == [0, 4, 4]
    assert [(entry.slot, entry.topic, bytes(entry.batch)) for entry in found.untouched] == [
        (1, "ponds", frame_batches[1][2]),
        (2, "raw", frame_batches[2][2]),
        (3, "lakes", frame_batches[3][2]),
    ]
