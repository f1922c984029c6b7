"""What the commands print that change a running Forebay."""

from __future__ import annotations

import pytest

from forebay_proxy.commands import steer
from forebay_proxy.config.sources import Sources, load
from forebay_proxy.security.renewals import SECRETS


def test_a_reload_names_what_has_changed() -> None:
    nothing = {"generation": 3, "changes": {}, "renewed": [], "not_renewed": {}}
    told = steer.reloaded({**nothing, "changes": {"topics.include": "* → a"}})
    assert told.splitlines() == ["topics.include: * → a", "In force in all workers, as generation 3."]
    assert steer.reloaded(nothing) == "No setting has changed: generation 3 stays in force."


def test_a_reload_names_what_was_renewed_and_what_could_not_be() -> None:
    outcomes = {"renewed": ["admin endpoint", "listener ssl"], "not_renewed": {"x": "it is empty"}}
    told = steer.reloaded({"generation": 3, "changes": {}, **outcomes})
    assert told.splitlines()[1:] == [
        "Certificates and secrets renewed of admin endpoint, listener ssl.",
        "Not renewed, so those in use stay: x: it is empty",
    ]


def test_what_no_worker_has_said_is_not_known() -> None:
    outcomes = {"renewed": [], "not_renewed": {SECRETS: "no answer within 10 s"}}
    told = steer.reloaded({"generation": 3, "changes": {}, **outcomes})
    assert told.splitlines()[1:] == ["Not known of certificates and secrets: no answer within 10 s; the log will say"]


@pytest.mark.parametrize(
    ("written", "ms"), [("250ms", 250), ("90s", 90_000), ("30m", 1_800_000), ("2h", 7_200_000), (" 1d ", 86_400_000)]
)
def test_times_are_written_with_their_unit(written: str, ms: int) -> None:
    assert steer.milliseconds(written) == ms


@pytest.mark.parametrize("written", ["", "30", "m", "-5m", "1.5h", "30 m", "30min", "9999999999s"])
def test_other_times_are_refused(written: str) -> None:
    with pytest.raises(ValueError, match="such as 30m"):
        steer.milliseconds(written)


def test_an_override_is_asked_for_as_it_is_written() -> None:
    asked = steer.override(["linger.ms=5", "topics.exclude = a=b,c"], "a test", None)
    assert asked == {"settings": {"linger.ms": "5", "topics.exclude": "a=b,c"}, "reason": "a test"}
    assert steer.override(["linger.ms="], "a test", 5)["for_ms"] == 5
    asked = steer.override(["topics.exclude+=a=b", "topics.move += c", "topics.exclude=d"], "a test", None)
    assert asked["settings"] == {"topics.exclude+": "a=b", "topics.move+": "c", "topics.exclude": "d"}
    with pytest.raises(ValueError, match=r"linger: must be NAME=VALUE or NAME\+=VALUE"):
        steer.override(["linger"], "a test", None)
    with pytest.raises(ValueError, match=r"linger\.ms =2: linger\.ms must be named once"):
        steer.override(["linger.ms=1", "linger.ms =2"], "a test", None)


ROW = {
    "name": "linger.ms",
    "value": "5",
    "reason": "a test",
    "expires_at": 1_764_000_000.0,
    "adds": False,
    "instead_of": "-1",
}


def test_overrides_are_listed_with_their_end_and_reason() -> None:
    told = steer.overrides({"rows": [ROW]}, None).splitlines()
    assert [cell.strip() for cell in told[-1].split("  ") if cell] == [
        "linger.ms",
        "5",
        "-1",
        "2025-11-24 16:00:00Z",
        "a test",
    ]
    adding = {**ROW, "name": "topics.exclude", "adds": True, "instead_of": ""}
    told = steer.overrides({"rows": [adding]}, None).splitlines()
    assert "instead of" not in told[1]
    assert told[-1].startswith(" topics.exclude +=  ")
    assert steer.overrides({"rows": []}, None) == "Nothing is overridden."


def test_they_lie_above_what_the_command_s_sources_say() -> None:
    loaded = load(Sources(assignments=["linger.ms=9"]), ["adaptive"], complete=False)
    told = steer.overlaid(loaded, {"rows": [ROW]})
    assert told.values["linger.ms"] == 5
    assert told.origins["linger.ms"] == "override until 2025-11-24 16:00:00Z: a test"
    assert told.values["topics.include"] == ("*",)


def test_what_adds_leaves_the_others() -> None:
    loaded = load(Sources(assignments=["brokers.avoid=1"]), ["adaptive"], complete=False)
    row = {**ROW, "name": "brokers.avoid", "adds": True}
    told = steer.overlaid(loaded, {"rows": [{**row, "value": "2"}, {**row, "value": "3", "reason": "another"}]})
    assert told.values["brokers.avoid"] == (1, 2, 3)
    until = "override until 2025-11-24 16:00:00Z"
    assert told.origins["brokers.avoid"] == f"{until}: a test; {until}: another"


def test_a_drain_says_what_is_left() -> None:
    left = {"queued_bytes": 5_000, "in_flight_requests": 1, "silent_workers": [], "drained": False}
    assert steer.drained(3, left) == "Broker 3: 5,000 bytes wait or are under way, 1 requests are unanswered."
    assert steer.drained(3, {**left, "silent_workers": [0, 1]}).endswith(
        " unanswered. Worker 0 does not answer. Worker 1 does not answer."
    )
    assert steer.drained(3, {**left, "drained": True}) == "Nothing waits for broker 3, and nothing is under way."
