"""What makes an audit clean or not."""

from __future__ import annotations

import pytest

from forebay_pipeline.audit.result import AuditResult, Counts, Kind
from forebay_pipeline.errors import CLEAN, FINDINGS, INCOMPLETE


def result(totals: Counts, *incomplete: str) -> AuditResult:
    return AuditResult(
        first_us=None,
        last_us=None,
        rows=0,
        totals=totals,
        clients=[],
        clients_left_out=0,
        topics=[],
        findings=[],
        rows_dropped=0,
        lines_torn=0,
        incomplete=list(incomplete),
        notes=[],
    )


@pytest.mark.parametrize("kind", Kind)
def test_one_record_of_any_kind_is_a_finding(kind: Kind) -> None:
    assert result(Counts(acknowledged=5, present=4, **{kind: 1})).exit_code == FINDINGS


def test_all_else_is_none() -> None:
    others = set(Counts.__struct_fields__) - set(Kind)
    assert others >= {"expired", "compacted", "not_judged", "unacknowledged", "unconfirmed", "not_followed"}
    assert result(Counts(**dict.fromkeys(others, 1))).exit_code == CLEAN


def test_what_was_not_looked_at_may_have_been_lost() -> None:
    assert result(Counts(acknowledged=5, present=5), "A file is not there.").exit_code == INCOMPLETE
    assert result(Counts(acknowledged=5, missing=5), "A file is not there.").exit_code == FINDINGS


def test_findings_add_up() -> None:
    assert Counts(missing=1, altered=20, duplicated=300, expired=4000).findings == 321
