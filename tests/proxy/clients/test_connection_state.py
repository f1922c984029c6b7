"""A client connection's life without sockets: every phase, every hold, every way it can end."""

from __future__ import annotations

import itertools

import pytest
import structlog

from forebay_policies.hold_reason import HoldReason
from forebay_proxy.clients.connection_state import ENDINGS, Cause, ConnectionState, Phase
from forebay_proxy.logs import RateLimited, get_logger
from forebay_proxy.metrics.registry import MetricRegistry
from forebay_proxy.metrics.traffic import TrafficMetrics

ENDS = [Phase.LEAVING, Phase.CLOSING, Phase.ABORTED, Phase.CLOSED]

REFUSED = "forebay_frames_refused_total"
ERRORS = "forebay_errors_total"
PROTOCOL = (ERRORS, ("client", "protocol"))
BROKE = ("warning", "closing a client that broke the protocol")
NOT_OFFERED = ("warning", "closing a client that asks for what is not offered")

Counted = set[tuple[str, tuple[str, ...]]]
ROWS: dict[Cause, tuple[Phase, tuple[str, str] | None, Counted]] = {
    Cause.CLIENT_LEFT: (Phase.CLOSED, None, set()),
    Cause.CLIENT_CUT_OFF: (Phase.CLOSED, None, {(ERRORS, ("client", "connection_lost"))}),
    Cause.CLIENT_DONE: (Phase.LEAVING, None, set()),
    Cause.MALFORMED: (Phase.LEAVING, BROKE, {(REFUSED, ("malformed",)), PROTOCOL}),
    Cause.TOO_LARGE: (Phase.LEAVING, BROKE, {(REFUSED, ("too_large",)), PROTOCOL}),
    Cause.UNKNOWN_API: (Phase.LEAVING, NOT_OFFERED, {(REFUSED, ("unknown_api",)), PROTOCOL}),
    Cause.UNSUPPORTED_VERSION: (Phase.LEAVING, NOT_OFFERED, {(REFUSED, ("unsupported_version",)), PROTOCOL}),
    Cause.STALLED: (
        Phase.ABORTED,
        ("warning", "closing a client whose request does not go on"),
        {(REFUSED, ("stalled",)), PROTOCOL},
    ),
    Cause.NOT_TAKEN: (
        Phase.ABORTED,
        ("warning", "closing a client that does not take its answers in time"),
        {(REFUSED, ("not_taken",)), PROTOCOL},
    ),
    Cause.RECORDS_REFUSED: (Phase.LEAVING, ("warning", "acks=0 records refused, closing the client"), set()),
    Cause.NO_ANSWER: (Phase.CLOSING, None, set()),
    Cause.NO_ROOM: (
        Phase.CLOSING,
        ("warning", "closing a client whose answer waits for others to read theirs"),
        {(REFUSED, ("no_room",)), PROTOCOL},
    ),
    Cause.BROKER_UNKNOWN: (Phase.LEAVING, ("info", "a client must come again to reach its broker"), set()),
    Cause.BROKER_UNREACHABLE: (
        Phase.CLOSING,
        ("warning", "no connection to the broker for a client"),
        {(ERRORS, ("upstream", "connect"))},
    ),
    Cause.BROKER_LOST: (
        Phase.CLOSING,
        ("info", "broker closed a client's connection"),
        {(ERRORS, ("upstream", "connection_lost"))},
    ),
    Cause.BROKER_DEAF: (
        Phase.ABORTED,
        ("warning", "a broker does not read what a client sent before it left: given up"),
        {(ERRORS, ("upstream", "connection_lost"))},
    ),
    Cause.LOGIN_LOST: (Phase.CLOSING, None, set()),
    Cause.SESSION_OVER: (Phase.LEAVING, ("info", "a client must log in again"), set()),
    Cause.LOGIN_REFUSED: (Phase.LEAVING, ("warning", "closing a client whose login was refused"), set()),
    Cause.LOGIN_TIMED_OUT: (Phase.CLOSING, ("warning", "closing a client that does not log in"), set()),
    Cause.BROKER_MALFORMED: (
        Phase.ABORTED,
        ("error", "broker broke the protocol"),
        {(ERRORS, ("upstream", "protocol"))},
    ),
    Cause.NOT_ADMITTED: (Phase.CLOSING, None, set()),
    Cause.TOLD_TO_CLOSE: (Phase.CLOSING, None, set()),
    Cause.TOO_OLD: (Phase.CLOSING, None, set()),
    Cause.TOLD_TO_ABORT: (Phase.ABORTED, None, set()),
}


def reached(phase: Phase) -> ConnectionState:
    state = ConnectionState()
    if phase is Phase.DRAINING:
        state.drain()
    elif phase is not Phase.OPEN:
        state.end(phase, 10.0)
    assert state.phase is phase
    return state


class TestEndings:
    @pytest.mark.parametrize("cause", Cause, ids=lambda cause: cause.name)
    def test_each_is_answered_logged_and_counted_as_the_table_says(self, cause: Cause) -> None:
        phase, line, counted = ROWS[cause]
        ending = ENDINGS[cause]
        stats = MetricRegistry()
        metrics = TrafficMetrics(stats)
        before = stats.take().counters
        with structlog.testing.capture_logs() as logs:
            if ending.event:
                ending.log(RateLimited(get_logger()), ending.event, client="somebody")
        if ending.metric is not None:
            ending.metric(metrics)
        now = stats.take().counters
        assert ending.phase is phase
        assert [(entry["log_level"], entry["event"], entry["client"]) for entry in logs] == (
            [(*line, "somebody")] if line is not None else []
        )
        assert {key for key, value in now.items() if value != before[key]} == counted

    def test_the_table_has_every_cause_and_every_cause_a_row_here(self) -> None:
        assert set(ENDINGS) == set(ROWS) == set(Cause)

    def test_only_the_client_itself_takes_the_transport_away(self) -> None:
        assert [cause for cause in Cause if ENDINGS[cause].phase is Phase.CLOSED] == [
            Cause.CLIENT_LEFT,
            Cause.CLIENT_CUT_OFF,
        ]


class TestPhases:
    @pytest.mark.parametrize(("before", "end"), list(itertools.product(Phase, ENDS)), ids=lambda phase: phase.name)
    def test_an_end_is_entered_from_every_phase_before_it_and_never_left_backwards(
        self, before: Phase, end: Phase
    ) -> None:
        state = reached(before)
        if before is Phase.CLOSED:
            with pytest.raises(RuntimeError, match="after CLOSED"):
                state.end(end, 20.0)
        else:
            assert state.end(end, 20.0) == (end > before)
        assert state.phase is max(before, end)
        assert not state.taking
        assert state.over == (state.phase >= Phase.ABORTED)

    @pytest.mark.parametrize("phase", [Phase.OPEN, Phase.DRAINING])
    def test_what_is_not_an_end_cannot_be_entered_as_one(self, phase: Phase) -> None:
        with pytest.raises(RuntimeError, match="is not an end"):
            ConnectionState().end(phase, 10.0)

    @pytest.mark.parametrize("before", Phase, ids=lambda phase: phase.name)
    def test_only_an_open_connection_drains_and_a_closed_one_must_not(self, before: Phase) -> None:
        state = reached(before)
        if before is Phase.CLOSED:
            with pytest.raises(RuntimeError, match="closed"):
                state.drain()
        else:
            assert state.drain()
            assert state.phase is max(before, Phase.DRAINING)

    def test_a_request_that_the_broker_has_begun_to_receive_is_passed_on_before_a_drain_holds(self) -> None:
        state = ConnectionState()
        state.passing = True
        assert not state.drain()
        assert state.taking
        assert state.passed()
        assert not state.passing

    @pytest.mark.parametrize("phase", [Phase.OPEN, *ENDS], ids=lambda phase: phase.name)
    def test_where_nothing_drains_a_passed_request_is_not_the_last(self, phase: Phase) -> None:
        state = reached(phase)
        state.passing = True
        assert not state.passed()

    def test_how_long_it_leaves_counts_from_the_first_end(self) -> None:
        state = ConnectionState()
        assert state.leaving_for(100.0) == 0
        state.end(Phase.LEAVING, 100.0)
        state.end(Phase.CLOSING, 103.0)
        assert state.leaving_for(105.0) == 5


class TestHolds:
    @pytest.mark.parametrize("why", HoldReason)
    def test_a_held_connection_takes_nothing_until_it_is_released(self, why: HoldReason) -> None:
        state = ConnectionState()
        assert state.taking
        assert state.hold(why)
        assert not state.taking
        assert state.release(why)
        assert state.taking

    def test_it_is_read_again_when_the_last_of_its_reasons_has_gone(self) -> None:
        state = ConnectionState()
        assert state.hold(HoldReason.CONNECTING)
        assert not state.hold(HoldReason.IN_FLIGHT)
        assert not state.hold(HoldReason.IN_FLIGHT)
        assert not state.release(HoldReason.IN_FLIGHT)
        assert not state.taking
        assert state.release(HoldReason.CONNECTING)

    def test_a_reason_that_does_not_hold_it_releases_nothing_else(self) -> None:
        state = ConnectionState()
        assert state.release(HoldReason.CLIENT_SLOW)
        state.hold(HoldReason.BROKER_SLOW)
        assert not state.release(HoldReason.CLIENT_SLOW)
        assert state.holds == {HoldReason.BROKER_SLOW}

    @pytest.mark.parametrize("end", ENDS, ids=lambda phase: phase.name)
    @pytest.mark.parametrize("why", sorted(set(HoldReason) - {HoldReason.CLOSING}), ids=lambda why: why.name)
    def test_from_its_end_on_it_is_held_for_good(self, end: Phase, why: HoldReason) -> None:
        state = ConnectionState()
        state.hold(why)
        state.end(end, 10.0)
        assert not state.release(why)
        assert not state.hold(why)
        assert not state.release(why)

    @pytest.mark.parametrize("end", [Phase.ABORTED, Phase.CLOSED])
    def test_nothing_is_taken_once_it_is_over_whatever_is_released(self, end: Phase) -> None:
        state = reached(end)
        assert not any(state.release(why) for why in HoldReason)
