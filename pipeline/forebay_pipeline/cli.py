"""The command `forebay-pipeline <job>`, also for spark-submit: `spark-submit …/forebay_pipeline/cli.py <job>`.

Exit codes: 0 done (and clean), 1 findings, 2 it could not run; see errors.py.
"""

from __future__ import annotations

import importlib
from typing import Final

import click

JOBS: Final = {
    "compact": "compact",
    "partitions": "partitions.command",
    "audit": "audit.command",
    "replay": "replay.command",
    "report": "report.command",
    "runaways": "partitions.runaways",
}
"""Job → its module, whose `command` is loaded when it is asked for."""


class _Jobs(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(JOBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in JOBS:
            return None
        command = importlib.import_module(f"forebay_pipeline.{JOBS[cmd_name]}").command
        assert isinstance(command, click.Command)
        return command


@click.command(cls=_Jobs, context_settings={"help_option_names": ["-h", "--help"]})
def main() -> None:
    """What the proxy did, whether anything was lost, and what other settings would have done."""


if __name__ == "__main__":
    main(prog_name="forebay-pipeline")
