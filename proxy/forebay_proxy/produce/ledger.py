"""The journal's ledger: what each client sent, where it went and what the client was told (`journal.ledger`).

In: a Produce request when it is classified, its runs when they are appended, its completion when it is answered. Out: a
LedgerRow for each partition that the request names. Requests that go on as they came are noted when they come: what
they hold and what becomes of them is not looked at here.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from time import monotonic
from typing import Final, NamedTuple

from forebay_codecs.content_crc import ContentCrc, Keys, content_crc, content_keys
from forebay_codecs.header import printable
from forebay_codecs.produce_request import ProduceRequest
from forebay_policies.eligibility import LONGEST_NAME
from forebay_policies.hold_reason import HoldReason
from forebay_policies.journal_rows import LONGEST_CLIENT_ID, VERSION, LedgerPart, LedgerRow
from forebay_policies.producer_batch import RecordRun
from forebay_proxy.brokers.cluster import Cluster
from forebay_proxy.journal.recorder import ROWS_A_TURN, Journal
from forebay_proxy.produce.classifier import ClassifiedRequest, InspectedBatch, TouchedBatch
from forebay_proxy.produce.client import Client
from forebay_proxy.produce.completion import ProduceCompletion

_ROW_BYTES: Final = 512
_KEY_BYTES: Final = 40
"""Of what a row and the hash of a key take until they are written, and about as many then."""


class _Placed(NamedTuple):
    """A run and what its records are, which themselves are not kept."""

    run: RecordRun
    size: int
    movable: bool
    content: ContentCrc
    keys: Keys | None

    def row(self) -> LedgerPart:
        run = self.run
        return LedgerPart(
            run.partition,
            run.base_offset,
            run.record_count,
            self.size,
            self.movable,
            self.content.crc,
            self.content.first,
            self.content.first_xxh64,
            self.keys.hashes if self.keys is not None else None,
            self.keys.tombstones if self.keys is not None else None,
        )


class _Slot:
    """One partition of a request."""

    __slots__ = ("partition", "reason", "records", "runs", "stamped", "topic")

    def __init__(self, inspected: InspectedBatch) -> None:
        self.topic = inspected.topic
        self.partition = inspected.partition
        self.reason = inspected.reason.value if inspected.reason is not None else ""
        self.records = max(0, inspected.header.record_count) if inspected.header is not None else 0
        self.stamped = 0
        self.runs: list[_Placed] = []

    @property
    def keys(self) -> int:
        """How many hashes of keys it holds."""
        return sum(len(placed.keys.hashes) for placed in self.runs if placed.keys is not None)


class Entry:
    """One request, until it is answered."""

    __slots__ = ("_ledger", "client", "client_id", "number", "received_us", "request", "slots", "user")

    def __init__(
        self, ledger: Ledger, client: Client, request: ProduceRequest, inspected: list[InspectedBatch]
    ) -> None:
        self._ledger = ledger
        self.client = client
        self.user = client.user
        """As whom it was served when it sent this: it may have left, or log in again, by the time it is answered."""
        self.request = request
        self.client_id = printable(request.client_id or "")[:LONGEST_CLIENT_ID]
        self.number = ledger.next_number()
        self.received_us = ledger.now_us()
        self.slots = [_Slot(entry) for entry in inspected]

    def classified(self, first: int, found: ClassifiedRequest) -> None:
        """What was found in its batches from slot `first` on."""
        for slot, reason in zip(self.slots[first : first + len(found.reasons)], found.reasons, strict=True):
            slot.reason = reason.value
        for passed in found.untouched:  # a message set says how many records it has once it is a batch
            self.slots[passed.slot].records = passed.records
        for number, stamped in found.stamped.items():
            self.slots[number].stamped = stamped

    def appended(self, run: RecordRun, touched: TouchedBatch) -> None:
        """The records of `touched` were appended as `run`. Only their size and checksum are kept."""
        section = touched.batch.section
        keys = content_keys(section) if self._ledger.keys and not touched.movable else None
        self.slots[touched.slot].runs.append(_Placed(run, len(section), touched.movable, content_crc(section), keys))

    def answered(self, completion: ProduceCompletion) -> None:
        """The request is over: write its rows."""
        self._ledger.answered(self, completion)


class Ledger:
    """Writes one row for each partition of each request, once it is answered. `keys`: with hashes of records' keys."""

    def __init__(self, journal: Journal, cluster: Cluster, *, keys: bool = False) -> None:
        self.keys = keys
        self._journal = journal
        self._cluster = cluster
        self._held: dict[Client, int] = {}
        """Clients that wait until so many of their requests are written."""

    def next_number(self) -> int:
        """The number of a request: from 1, one after the other, within this process."""
        self._journal.ledger_requests += 1
        return self._journal.ledger_requests

    def now_us(self) -> int:
        """Microseconds since 1970, by the journal's clock."""
        return self._journal.time_us(monotonic())

    def arrived(self, client: Client, request: ProduceRequest, inspected: list[InspectedBatch]) -> Entry:
        """Begin the entry of a request that the proxy answers. Nothing is written yet."""
        return Entry(self, client, request, inspected)

    def passed_on(self, client: Client, request: ProduceRequest, inspected: list[InspectedBatch]) -> None:
        """No batch of it is touched: its answer is the broker's, and is not read."""
        entry = Entry(self, client, request, inspected)
        self._write(entry, self._untold(entry))

    def answered(self, entry: Entry, completion: ProduceCompletion) -> None:
        """Write a row for each partition of the request, with what the client was told of it."""
        self._write(entry, self._told(entry, completion, self.now_us()))

    def _write(self, entry: Entry, rows: Iterator[LedgerRow]) -> None:
        """Of many partitions turn by turn, for which its client waits: so each has only so many that wait."""
        count = len(entry.slots)
        if count <= ROWS_A_TURN:
            for row in rows:
                self._journal.write(row)
            return
        client = entry.client
        client.hold(HoldReason.JOURNAL)
        self._held[client] = self._held.get(client, 0) + 1
        size = count * _ROW_BYTES + _KEY_BYTES * sum(slot.keys for slot in entry.slots)
        self._journal.write_many(rows, count, size, partial(self._written, client))

    def _written(self, client: Client, dropped: int) -> None:
        self._journal.ledger_rows += dropped  # numbers that are not there
        self._held[client] -= 1
        if not self._held[client]:
            del self._held[client]
            client.release(HoldReason.JOURNAL)

    def _untold(self, entry: Entry) -> Iterator[LedgerRow]:  # a generator expression would be a list once compiled
        for slot in entry.slots:
            yield self._row(entry, slot, entry.received_us, -1, None)

    def _told(self, entry: Entry, completion: ProduceCompletion, now_us: int) -> Iterator[LedgerRow]:
        for slot, fate in zip(entry.slots, completion.fates, strict=True):
            told = fate.response(completion.version)
            yield self._row(entry, slot, now_us, told.base_offset, told.error_code)

    def _row(self, entry: Entry, slot: _Slot, now_us: int, base_offset: int, error_code: int | None) -> LedgerRow:
        request = entry.request
        parts = [placed.row() for placed in slot.runs]
        topic = self._cluster.topics.get(slot.topic)
        journal = self._journal
        journal.ledger_rows += 1
        return LedgerRow(
            now_us,
            journal.worker,
            journal.process,
            entry.number,
            entry.received_us,
            entry.client.number,
            entry.client_id,
            entry.client.host,
            request.version,
            slot.topic[:LONGEST_NAME],
            slot.partition,
            request.acks,
            slot.reason,
            slot.records or sum(part.records for part in parts),
            slot.stamped,
            parts,
            base_offset,
            error_code,
            VERSION,
            journal.ledger_rows,
            topic.topic_id if topic is not None else "",
            entry.user,
        )
