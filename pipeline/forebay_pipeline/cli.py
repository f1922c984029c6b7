"""The command `forebay-pipeline <job>`; under spark-submit: `spark-submit …/forebay_pipeline/cli.py <job>`.

Exit codes: 0 success, 1 findings, 2 the job could not run, 3 no findings, but not all could be checked.
"""

from __future__ import annotations

import importlib
import sys
from typing import Final

import click

from forebay_pipeline.errors import COULD_NOT_RUN

JOBS: Final = {
    "compact": "compact",
    "maintain": "maintain",
    "rollup": "rollups.command",
    "partitions": "partitions.command",
    "audit": "audit.command",
    "replay": "replay.command",
    "report": "report.command",
    "runaways": "partitions.runaways",
    "watch": "watch.command",
    "pack": "pack",
}
"""Job → the module that has its `command`."""


class _Jobs(click.Group):
    """Imports a job's module only when that job is run, so that `--help` stays fast."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(JOBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in JOBS:
            return None
        try:
            command = importlib.import_module(f"forebay_pipeline.{JOBS[cmd_name]}").command
        except ImportError as error:
            click.echo(f"forebay-pipeline: {' '.join(str(error).split())}: {_mended_by(error)}", err=True)
            sys.exit(COULD_NOT_RUN)
        assert isinstance(command, click.Command)
        return command


def _mended_by(error: ImportError) -> str:
    if (error.name or "").partition(".")[0] == "distutils":
        return "Spark 3.5 knows no Python newer than 3.11"
    return "pip install '.[pipeline]' in a clone of Forebay"


@click.command(cls=_Jobs, context_settings={"help_option_names": ["-h", "--help"]})
def main() -> None:
    """Analyse the proxy's journal: what it did, whether anything was lost, what other settings would have done."""


if __name__ == "__main__":
    main(prog_name="forebay-pipeline")
