"""Jobs run in this process, as a person runs them."""

from __future__ import annotations

from click.testing import CliRunner, Result

from forebay_pipeline.cli import main


def run(job: str, *arguments: object) -> Result:
    """The session of the tests is shared, and its number of shuffles stays what it is."""
    words = [job, *map(str, arguments), "--conf", "spark.sql.shuffle.partitions=2"]
    return CliRunner().invoke(main, words, prog_name="forebay-pipeline")
