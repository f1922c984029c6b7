"""Jobs run in this process, as a person runs them."""

from __future__ import annotations

from typing import Final

from click.testing import CliRunner, Result

from forebay_pipeline.cli import main

FEW_SHUFFLES: Final = ("--conf", "spark.sql.shuffle.partitions=2")
"""The session of the tests is shared, and its number of shuffles stays what it is."""


def run(job: str, *arguments: object) -> Result:
    return CliRunner().invoke(main, [job, *map(str, arguments), *FEW_SHUFFLES], prog_name="forebay-pipeline")
