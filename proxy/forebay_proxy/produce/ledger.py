"""The journal's ledger: what each client sent, where it went and what the client was told (`journal.ledger`).

In: a Produce request when it is sorted, its parts when they are appended, its completion when it is answered. Out: a
LedgerRow for each partition that the request names. Requests that go on as they came are noted when they come: what
they hold and what becomes of them is not looked at here.
"""

from __future__ import annotations

from time import monotonic
from typing import NamedTuple

from forebay_codecs.content_crc import ContentCrc, content_crc
from forebay_codecs.header import printable
from forebay_codecs.produce_request import ProduceRequest
from forebay_policies.journal_rows import LedgerPart, LedgerRow
from forebay_policies.producer_batch import Part
from forebay_proxy.journal.recorder import Journal
from forebay_proxy.produce.client import Client
from forebay_proxy.produce.completion import ProduceCompletion
from forebay_proxy.produce.sorting import Seen, Sorted, Touched


class _Placed(NamedTuple):
    """A part and what its records are, which themselves are not kept."""

    part: Part
    size: int
    movable: bool
    content: ContentCrc

    def row(self) -> LedgerPart:
        part = self.part
        return LedgerPart(
            part.partition,
            part.base_offset,
            part.record_count,
            self.size,
            self.movable,
            self.content.crc,
            self.content.first,
        )


class _Slot:
    """One partition of a request."""

    __slots__ = ("partition", "parts", "reason", "records", "stamped", "topic")

    def __init__(self, seen: Seen) -> None:
        self.topic = seen.topic
        self.partition = seen.partition
        self.reason = seen.reason.value if seen.reason is not None else ""
        self.records = max(0, seen.header.record_count) if seen.header is not None else 0
        self.stamped = 0
        self.parts: list[_Placed] = []


class Entry:
    """One request, until it is answered."""

    __slots__ = ("_ledger", "client", "number", "received_us", "request", "slots")

    def __init__(self, ledger: Ledger, client: Client, request: ProduceRequest, seen: list[Seen]) -> None:
        self._ledger = ledger
        self.client = client
        self.request = request
        self.number = ledger.next_number()
        self.received_us = ledger.now_us()
        self.slots = [_Slot(entry) for entry in seen]

    def sorted(self, found: Sorted) -> None:
        """What was found in its batches."""
        for slot, reason in zip(self.slots, found.reasons, strict=True):
            slot.reason = reason.value
        for number, stamped in found.stamped.items():
            self.slots[number].stamped = stamped

    def appended(self, part: Part, touched: Touched) -> None:
        section = touched.batch.section
        self.slots[touched.slot].parts.append(_Placed(part, len(section), touched.movable, content_crc(section)))

    def answered(self, completion: ProduceCompletion) -> None:
        self._ledger.answered(self, completion)


class Ledger:
    """See the module."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._number = 0

    def next_number(self) -> int:
        self._number += 1
        return self._number

    def now_us(self) -> int:
        return self._journal.time_us(monotonic())

    def arrived(self, client: Client, request: ProduceRequest, seen: list[Seen]) -> Entry:
        return Entry(self, client, request, seen)

    def passed_on(self, client: Client, request: ProduceRequest, seen: list[Seen]) -> None:
        """No batch of it is touched: its answer is the broker's, and is not read."""
        entry = Entry(self, client, request, seen)
        for slot in entry.slots:
            self._write(entry, slot, entry.received_us, -1, None)

    def answered(self, entry: Entry, completion: ProduceCompletion) -> None:
        now_us = self.now_us()
        for slot, fate in zip(entry.slots, completion.fates, strict=True):
            told = fate.response(completion.version)
            self._write(entry, slot, now_us, told.base_offset, told.error_code)

    def _write(self, entry: Entry, slot: _Slot, now_us: int, base_offset: int, error_code: int | None) -> None:
        request = entry.request
        parts = [placed.row() for placed in slot.parts]
        self._journal.write(
            LedgerRow(
                now_us,
                self._journal.worker,
                self._journal.process,
                entry.number,
                entry.received_us,
                entry.client.number,
                printable(request.client_id or ""),
                entry.client.host,
                request.version,
                slot.topic,
                slot.partition,
                request.acks,
                slot.reason,
                slot.records or sum(part.records for part in parts),
                slot.stamped,
                parts,
                base_offset,
                error_code,
            )
        )
