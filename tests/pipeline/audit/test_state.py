"""How far audits came, in a file: it moves forward only, and is replaced as a whole or not at all."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from forebay_pipeline.audit.state import HORIZON_US, AuditState, Followed, ProcessMark, read_state, write_state
from forebay_pipeline.errors import CannotRun
from forebay_pipeline.storage import Storage

STATE = AuditState(
    only=["a", "b"],
    processes={"here-1": ProcessMark(5, ["1/0/t"])},
    offsets={"t": {0: 10, 1: 20}},
    topic_ids={"t": "id-of-t"},
    dropped={"0/17": 3},
    followed={"here-1": Followed({"ledger": 9, "gauge": 3}, [(1, 7), (9, 9)], 5)},
)


NOTHING: dict[str, Any] = {
    "marks": {},
    "offsets": {},
    "dropped": {},
    "followed": {},
    "torn": {},
    "vanished": [],
    "elsewhere": {},
    "cluster_id": "",
    "topic_ids": {},
    "seen": [],
}


def after(state: AuditState, **told: Any) -> AuditState:
    """An audit that told this, and else nothing."""
    return state.moved_on(**NOTHING | told)


@pytest.fixture
def storage(spark: SparkSession) -> Storage:
    return Storage(spark)


def test_it_is_read_as_it_was_written(storage: Storage, tmp_path: Path) -> None:
    path = tmp_path / "state.json"
    write_state(storage, str(path), AuditState())
    write_state(storage, path.as_uri(), STATE)
    assert read_state(storage, str(path), ["b", "a"]) == STATE
    assert list(tmp_path.iterdir()) == [path]


def test_where_there_is_none_nothing_is_known(storage: Storage, tmp_path: Path) -> None:
    state = read_state(storage, str(tmp_path / "state.json"), ["b", "a"])
    assert (state, state.newest_us) == (AuditState(only=["a", "b"]), None)


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"{", "is not the state of an audit"),
        (b'{"v": 1, "processes": 3}', "is not the state of an audit"),
        (b'{"v": 1, "only": ["\xff"]}', "is not the state of an audit"),
        (b'{"v": 1, "more": ' + b"[" * 5000, "is not the state of an audit"),
        (b"{}", "is not the state of an audit"),
        (b'{"first_us": 1, "rows": 1}', "is not the state of an audit"),
        (b'{"v": 2}', "has version 2, not 1"),
        (b'{"v": 1, "only": ["a"]}', "is for a, not for all topics"),
    ],
)
def test_what_is_no_state_of_this_audit(storage: Storage, tmp_path: Path, content: bytes, why: str) -> None:
    path = tmp_path / "state.json"
    path.write_bytes(content)
    with pytest.raises(CannotRun, match=why):
        read_state(storage, str(path), [])


def test_it_moves_forward_only() -> None:
    marks = {"here-1": ProcessMark(4, ["0/0/t"]), "there-2": ProcessMark(6, [])}
    moved = after(STATE, marks=marks, offsets={"t": {0: 12}})
    assert moved.processes == {"here-1": ProcessMark(5, ["1/0/t"]), "there-2": ProcessMark(6, [])}
    assert (moved.only, moved.offsets, moved.newest_us) == (["a", "b"], {"t": {0: 12}}, 6)
    again = after(moved, marks={"there-2": ProcessMark(6, ["7/0/t"])})
    assert again.processes["there-2"] == ProcessMark(6, ["7/0/t"])


def test_the_cluster_is_remembered_where_it_is_not_told() -> None:
    moved = after(STATE, cluster_id="here")
    assert (STATE.cluster_id, moved.cluster_id, after(moved).cluster_id) == ("", "here", "here")


def test_the_ids_are_those_of_the_topics_that_it_knows_offsets_of() -> None:
    offsets = {"t": {0: 12}, "u": {0: 1}, "old": {0: 1}}
    moved = after(STATE, offsets=offsets, topic_ids={"u": "v", "old": ""})
    assert moved.topic_ids == {"t": "id-of-t", "u": "v"}
    assert after(moved, offsets={"u": {0: 1}}).topic_ids == {"u": "v"}


def test_processes_that_are_long_gone_are_forgotten() -> None:
    followed = {"here-1": Followed({"ledger": 7}, [(1, 7)], 5), "there-2": Followed(last_us=6 + 2 * HORIZON_US)}
    elsewhere = {"old-3": 5, "young-4": 6}
    marks = {"there-2": ProcessMark(6 + HORIZON_US, [])}
    moved = after(STATE, marks=marks, followed=followed, vanished=["a"], elsewhere=elsewhere)
    assert (set(moved.processes), set(moved.followed)) == ({"there-2"}, {"here-1", "there-2"})
    assert moved.elsewhere == elsewhere
    moved = after(moved, marks={"there-2": ProcessMark(6 + 2 * HORIZON_US, [])}, vanished=["b"])
    assert (set(moved.followed), set(moved.elsewhere)) == ({"there-2"}, {"young-4"})
    assert moved.vanished == ["a", "b"]
