"""How evenly tasks share Spark's stages, from its event log: in time, and in the records that they read.

`--conf` settings in LOGGED make a job write one; `stages` reads it.
"""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path
from statistics import median
from typing import Any, Final, NamedTuple

LOGGED: Final = {
    "spark.eventLog.enabled": "true",
    "spark.eventLog.rolling.enabled": "false",
    "spark.eventLog.compress": "false",
}
"""And `spark.eventLog.dir`."""


class Task(NamedTuple):
    """What one did."""

    seconds: float
    records: int
    """That it read, from files, topics or other tasks; what is cached counts by blocks."""


class Stage(NamedTuple):
    """A stage's tasks."""

    name: str
    tasks: list[Task]

    @property
    def median_s(self) -> float:
        return median(task.seconds for task in self.tasks)

    @property
    def records(self) -> int:
        return sum(task.records for task in self.tasks)

    @property
    def skew_in_time(self) -> float:
        """How many times the median the longest task takes."""
        return max(task.seconds for task in self.tasks) / self.median_s

    @property
    def skew_in_records(self) -> float:
        """How many times the average the most records are that one reads: of a union's tasks, half may read none."""
        return max(task.records for task in self.tasks) * len(self.tasks) / self.records


def stages(folder: Path) -> list[Stage]:
    """The stages of the one application that logged its events to `folder`."""
    (log,) = folder.iterdir()
    names: dict[int, str] = {}
    tasks: dict[int, list[Task]] = defaultdict(list)
    with log.open() as lines:
        for event in map(json.loads, lines):
            if event["Event"] == "SparkListenerStageCompleted":
                names[event["Stage Info"]["Stage ID"]] = event["Stage Info"]["Stage Name"]
            elif event["Event"] == "SparkListenerTaskEnd" and "Task Metrics" in event:
                tasks[event["Stage ID"]].append(_task(event["Task Metrics"]))
    return [Stage(names[number], tasks[number]) for number in sorted(tasks) if number in names]


def _task(metrics: dict[str, Any]) -> Task:
    read = metrics["Input Metrics"]["Records Read"] + metrics["Shuffle Read Metrics"]["Total Records Read"]
    return Task(metrics["Executor Run Time"] / 1000, read)
