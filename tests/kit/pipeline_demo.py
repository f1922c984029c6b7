"""`make pipeline-demo`: the demo's traffic through Forebay with the journal on, then all jobs of the pipeline.

In: seconds of traffic (120). Out: what each job says, and the path of the report, build/pipeline-demo/report.html; exit
code 1 where a job failed or the audit found anything. Three brokers of Kafka 4.3.1 on this machine, one of which holds
each produce response for 20 ms, in turn; all of them are gone when it ends.
"""

from __future__ import annotations

import random
import shutil
import subprocess
import sys
from contextlib import ExitStack
from typing import Final

import click
import uvloop

from forebay_proxy.demo.load import LoadCounts, LoadPlan, LoadResult, run_load
from tests.kit.forebay import ForebayProcess
from tests.kit.paths import JARS, ROOT
from tests.kit.slow_cluster import cluster_with_slow_broker

SLOW_MS: Final = 20
TOPIC: Final = "demo"
PARTITIONS: Final = 6
FOLDER: Final = ROOT / "build" / "pipeline-demo"
GRID: Final = "partitioner=adaptive,expected_wait,uniform linger.ms=-1,5"


@click.command()
@click.option("--seconds", type=click.IntRange(5), default=120, show_default=True, help="of traffic")
@click.option("--rate", type=click.IntRange(1), default=3_000, show_default=True, help="records a second")
def main(seconds: int, rate: int) -> None:
    shutil.rmtree(FOLDER, ignore_errors=True)
    FOLDER.mkdir(parents=True)
    with ExitStack() as stack:
        cluster = stack.enter_context(cluster_with_slow_broker(SLOW_MS))
        cluster.create_topic(TOPIC, PARTITIONS)
        settings = {"journal.dir": str(FOLDER / "journal"), "journal.ledger": "true", "journal.roll.ms": "30000"}
        click.echo(
            f"{rate:,} records/s for {seconds} s through Forebay; broker 0 answers after {SLOW_MS} ms, in turn …"
        )
        with ForebayProcess(cluster.bootstrap, cluster.nodes, settings=settings) as forebay:
            result = _traffic(forebay.bootstrap, seconds, rate)
        click.echo(f"{result.acknowledged:,} records acknowledged, {result.failed:,} not\n")
        codes = [_job(*words) for words in _jobs(cluster.internal)]
    click.echo(f"\nThe report: {FOLDER / 'report.html'}")
    sys.exit(int(any(codes)))


def _traffic(bootstrap: str, seconds: int, rate: int) -> LoadResult:
    plan = LoadPlan(TOPIC, PARTITIONS, 24, rate, 0.0, seconds)
    return uvloop.run(run_load(bootstrap, plan, random.Random(794), LoadCounts()))


def _jobs(bootstrap_servers: str) -> list[list[str]]:
    raw, journal, jars = str(FOLDER / "journal"), str(FOLDER / "parquet"), ["--jars", str(JARS / "spark-kafka")]
    audit, replay, page = (str(FOLDER / name) for name in ("audit.json", "replay.json", "report.html"))
    brokers = ["--bootstrap-servers", bootstrap_servers]
    toml = str(FOLDER / "recommended.toml")
    return [
        ["compact", "--journal", raw, "--output", journal],
        ["partitions", "--journal", journal],
        ["audit", "--journal", journal, "--settle", "0", *brokers, "--output", audit, *jars],
        ["replay", "--journal", journal, "--grid", GRID, "--output", replay, "--toml", toml],
        ["runaways", "--journal", raw, "--once", "--late", "0", "--output", str(FOLDER / "runaways")],
        ["report", "--journal", journal, "--audit", audit, "--replay", replay, "--output", page],
    ]


def _job(*words: str) -> int:
    click.secho(f"\n$ forebay-pipeline {' '.join(words)}", bold=True)
    return subprocess.run([sys.executable, "-m", "forebay_pipeline.cli", *words], stdin=subprocess.DEVNULL).returncode


if __name__ == "__main__":
    main()
