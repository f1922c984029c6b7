"""What turns the fates of a client's records into one response.

In: one Produce request of a client, then what became of each of its runs (a run: records of one client partition
that travelled together; a mixed batch has two). Out, once, when the last run is told or the time is up: the response
in the client's version, with exactly the client's partitions. acks=0 has no response: a refusal closes the connection,
as a broker does.

Offsets: records that stayed on their partition get base_offset + their place in the batch; if any record of the
client's partition was moved, or its batch was split, its base_offset is −1, the protocol's "unknown". The first error
of a partition wins.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Final, Protocol

from forebay_codecs import error_codes, produce_response
from forebay_codecs.old_error_codes import known_to
from forebay_codecs.produce_response import PartitionResponse
from forebay_policies import retry
from forebay_policies.producer_batch import RecordRun, run_overhead
from forebay_policies.throttling import CLIENT_ID

UNKNOWN_OFFSET = -1
HIGHEST_OFFSET = 1 << 62
"""Beyond any log. With a place in a batch added, what is admitted stays an int64."""

ANSWERED_AT_ONCE: Final = 512
"""Partitions whose answers are put together at once, which takes a millisecond."""

JOURNAL: Final = ("", "forebay-journal")
"""`ProduceCompletion.client` of the journal's own records: no client waits for them, and the journal itself counts what
it loses."""

RecordErrors = list[tuple[int, str | None]]
OnDone = Callable[["ProduceCompletion", bytes | None], None]


class Requester(Protocol):
    """Whoever waits for the response."""

    @property
    def left(self) -> bool:
        """It waits no more: its connection has ended."""


class Fate:
    """What is known of one of the client's partitions."""

    __slots__ = (
        "base_offset",
        "error_code",
        "error_message",
        "log_append_time",
        "log_start_offset",
        "partition",
        "perhaps_appended",
        "record_errors",
        "runs",
        "scattered",
    )

    def __init__(self, partition: int) -> None:
        self.partition = partition
        self.runs = 0
        """Runs whose fate is still open."""
        self.perhaps_appended = False
        """At least one run is appended, or may be: the client must not be told of a refusal."""
        self.scattered = False
        """Its records do not stand one after the other where the client put them."""
        self.error_code = error_codes.NONE
        self.error_message: str | None = None
        self.record_errors: RecordErrors = []
        self.base_offset = UNKNOWN_OFFSET
        self.log_append_time = -1
        self.log_start_offset = -1

    def response(self, version: int) -> PartitionResponse:
        """In terms of a client that speaks Produce `version`."""
        error_code = self.error_code
        failed = error_code != error_codes.NONE
        if failed:
            belied = self.perhaps_appended and retry.refusal(error_code)
            error_code = known_to(version, error_codes.REQUEST_TIMED_OUT if belied else error_code)
        return PartitionResponse(
            self.partition,
            error_code,
            UNKNOWN_OFFSET if self.scattered or failed else self.base_offset,
            self.log_append_time,
            UNKNOWN_OFFSET if self.scattered else self.log_start_offset,  # else it may be another partition's
            self.record_errors,
            self.error_message,
        )


class ProduceCompletion:
    """Answers exactly once, when every run of records is told of or the time is up.

    `on_done` gets this and the response frame, which is None for acks=0, and where there are more than ANSWERED_AT_ONCE
    partitions: then `answer_some` is to be called until it has the frame.
    """

    __slots__ = (
        "_answers",
        "_complete",
        "_on_done",
        "_requester",
        "_topics",
        "_when_told",
        "acks",
        "any_refused",
        "client",
        "client_correlation_id",
        "client_id",
        "deadline",
        "done",
        "fates",
        "open_runs",
        "paused",
        "principal",
        "throttle_time_ms",
        "timeout_ms",
        "took",
        "version",
    )

    def __init__(
        self,
        version: int,
        client_correlation_id: int,
        acks: int,
        timeout_ms: int,
        deadline: float,
        on_done: OnDone,
        client: Hashable = None,
        client_id: str | None = CLIENT_ID,
        requester: Requester | None = None,
        principal: str = "",
    ) -> None:
        self._requester = requester
        self.principal = principal
        """Whose records they are (Lane.principal)."""
        self.client = client
        """Who sent the request; records of one client keep their order within a partition."""
        self.client_id = client_id
        """What requests with its records carry where a broker meters clients."""
        self.paused = 0.0
        """Seconds for which its client id had been throttled when it came (Throttling.pause): what has been added
        since counts towards no timeout."""
        self.version = version
        self.client_correlation_id = client_correlation_id
        self.acks = acks
        self.timeout_ms = timeout_ms
        self.deadline = deadline
        """Seconds of the event loop's clock; from then on REQUEST_TIMED_OUT is the answer."""
        self.fates: list[Fate] = []
        self.open_runs = 1
        """One more than the runs whose fate is open, until `all_added`."""
        self._complete = False
        self._answers: list[PartitionResponse] = []
        self.throttle_time_ms = 0
        self.took = -1.0
        """Seconds for which the broker had the run whose fate was told last; −1: not known, or sent again."""
        self.any_refused = False
        """A partition is answered with an error, as far as is known."""
        self.done = False
        self._topics: list[tuple[str, list[Fate]]] = []
        self._on_done: OnDone | None = on_done
        self._when_told: Callable[[], None] | None = None

    @property
    def left(self) -> bool:
        """Most likely nobody hears the answer: the connection that it is for has ended, or its client sends no more."""
        return self._requester is not None and self._requester.left

    def add_topic(self, name: str) -> None:
        """The topic of the partitions added next; topics are answered in this order."""
        self._topics.append((name, []))

    def add_partition(self, partition: int) -> int:
        """A partition of the topic added last. Returns its slot."""
        fate = Fate(partition)
        self._topics[-1][1].append(fate)
        self.fates.append(fate)
        return len(self.fates) - 1

    def add_run(self, slot: int, record_count: int, *, moved: bool, whole: bool) -> RecordRun:
        """A run for the partition at `slot`. `whole`: its record numbers are the client's."""
        fate = self.fates[slot]
        fate.runs += 1
        self.open_runs += 1
        size = run_overhead(len(self.fates))
        return RecordRun(self, slot, record_count, moved=moved, whole=whole, overhead=size)

    def when_told(self, told: Callable[[], None]) -> None:
        """More runs are to be added: `told` is called once the fate of those that there are is known, unless the time
        is up before."""
        if self.open_runs == 1:
            told()
        else:
            self._when_told = told

    def all_added(self) -> None:
        """Nothing is answered before: an early refusal must not answer alone."""
        self._complete = True
        self._settle()

    def acknowledged(self, run: RecordRun, base_offset: int, log_append_time: int, log_start_offset: int) -> None:
        """The batch that holds `run` was appended at `base_offset`."""
        if 0 <= base_offset <= HIGHEST_OFFSET:
            run.base_offset = base_offset + run.first
        if self.done:
            return
        fate = self.fates[run.slot]
        fate.perhaps_appended = True
        if run.moved or not run.whole:
            # Clients count on from the base offset: of a mixed batch in two runs that would name others' records.
            fate.scattered = True
        elif run.base_offset >= 0:
            fate.base_offset = run.base_offset
        fate.log_append_time = log_append_time
        fate.log_start_offset = log_start_offset
        fate.runs -= 1
        self.took = run.took
        self._settle()

    def failed(self, run: RecordRun, error_code: int, message: str | None, record_errors: RecordErrors) -> None:
        """`record_errors` name records of the client's batch; the caller leaves them out where they would not."""
        if self.done:
            return
        fate = self.fates[run.slot]
        fate.perhaps_appended |= not retry.refusal(error_code)
        self._refuse(fate, error_code, message, record_errors)
        fate.runs -= 1
        self.took = -1.0
        self._settle()

    def refuse(self, slot: int, error_code: int, message: str | None) -> None:
        """The partition at `slot` is answered without any of its records being sent."""
        self._refuse(self.fates[slot], error_code, message, [])

    def tell(self, slot: int, response: PartitionResponse) -> None:
        """What a broker answered to the partition at `slot`, which was sent on untouched and had one run."""
        if self.done:
            return
        fate = self.fates[slot]
        if response.error_code != error_codes.NONE:
            self._refuse(fate, response.error_code, response.error_message, response.record_errors)
        fate.base_offset = response.base_offset
        fate.log_append_time = response.log_append_time
        fate.log_start_offset = response.log_start_offset
        fate.runs -= 1
        self.took = -1.0
        self._settle()

    def throttle(self, throttle_time_ms: int) -> None:
        """A broker throttles what it was sent; the client is told the longest time."""
        self.throttle_time_ms = max(self.throttle_time_ms, throttle_time_ms)

    def expire(self) -> None:
        """The time is up: what is still open may or may not be appended."""
        if self.done:
            return
        self.took = -1.0
        for fate in self.fates:
            if fate.runs or not self._complete:
                fate.perhaps_appended = True
                self._refuse(fate, error_codes.REQUEST_TIMED_OUT, "not acknowledged in time", [])
        self._answer()

    def answer_some(self) -> bytes | None:
        """Put together the next answers of a request that is done; the frame, once all are."""
        answers, fates = self._answers, self.fates
        begin = len(answers)
        answers += [fate.response(self.version) for fate in fates[begin : begin + ANSWERED_AT_ONCE]]
        if len(answers) < len(fates):
            return None
        topics = []
        begin = 0
        for name, told in self._topics:
            topics.append((name, answers[begin : begin + len(told)]))
            begin += len(told)
        return produce_response.encode(self.version, self.client_correlation_id, topics, self.throttle_time_ms)

    def _refuse(self, fate: Fate, error_code: int, message: str | None, record_errors: RecordErrors) -> None:
        if fate.error_code == error_codes.NONE:
            self.any_refused = True
            fate.error_code = error_code
            fate.error_message = message
            fate.record_errors = record_errors

    def _settle(self) -> None:
        self.open_runs -= 1
        if self.open_runs <= 1:
            if not self.open_runs:
                self._answer()
            elif self._when_told is not None:
                told, self._when_told = self._when_told, None
                told()

    def _answer(self) -> None:
        self.done = True
        frame = None
        if self.acks != 0 and len(self.fates) <= ANSWERED_AT_ONCE:
            topics = [(name, [fate.response(self.version) for fate in fates]) for name, fates in self._topics]
            frame = produce_response.encode(self.version, self.client_correlation_id, topics, self.throttle_time_ms)
        self._when_told = None
        on_done, self._on_done = self._on_done, None  # whoever is told mostly holds this: no cycle is left to collect
        assert on_done is not None
        on_done(self, frame)
