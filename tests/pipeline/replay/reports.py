"""Replays' results and reports, made up."""

from __future__ import annotations

import msgspec

from forebay_pipeline.replay.results import Measured, ReplayReport, Result
from forebay_pipeline.replay.settings import read_grid, variants


def result(average_ms: float, p99_ms: float, requests: int = 100, **settings: str) -> Result:
    return Result(
        settings=settings,
        average_ms=average_ms,
        p50_ms=average_ms / 2,
        p99_ms=p99_ms,
        batch_bytes=1000.0,
        batch_records=10.0,
        requests=requests,
        skew=1.0,
        gini=0.0,
        pool_peak_bytes=4096,
        records=1000,
    )


GRID = read_grid(
    [
        "partitioner=adaptive,expected_wait linger.ms=-1,5 batch.size=16384,65536 partitioner.min.share=0.01"
        " partitioner.adaptive.partitioning.enable=true,false buffer.memory=67108864"
    ]
)


def report(recommended: int) -> ReplayReport:
    found = variants({}, GRID)
    results = [
        msgspec.structs.replace(result(8.0 - number / 10, 20.0, requests=7, **each.named), p50_ms=1.0)
        for number, each in enumerate(found)
    ]
    return ReplayReport(
        source="recorded",
        results=results,
        present=0,
        recommended=recommended,
        reason="Because.\nOf it.",
        assumed=["all is well"],
        measured=Measured(average_ms=8.1, p50_ms=1.2, p99_ms=20.5, records=1000),
        records=1000,
        seconds=60.0,
        seed=1,
    )
