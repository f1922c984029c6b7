"""Facts, made up: a thousand seconds in which all is well, but for what is given."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from forebay_pipeline.advice.change import Change
from forebay_pipeline.advice.facts import BatchUse, BrokerUse, Clients, ClientUse, Facts, TopicUse
from forebay_pipeline.partitions.runaway_windows import Episode
from forebay_pipeline.partitions.summary import Group, MetadataUse, Percentiles, Summary, TopicSkew, WorkerUse
from forebay_proxy.config.settings import Settings
from forebay_proxy.config.sources import Sources, load

SECONDS = 1000
AVERAGE_MS = 10.0

BATCHES = BatchUse(
    batches=200_000,
    requests=100_000,
    runs=800_000,
    records=1_000_000,
    bytes=400_000_000,
    movable_records=800_000,
    movable_bytes=320_000_000,
    full=1000,
    full_linger_us=1_000_000,
    latency_us=round(1_000_000 * AVERAGE_MS * 1000),
    lingering={1: 190_000.0, 2: 180_000.0, 5: 160_000.0, 10: 140_000.0},
)
BROKERS = [
    BrokerUse(leader, 60_000, 300_000, 240_000, latency_us=3_000_000_000, upstream_us=2000) for leader in range(3)
]
TOPICS = {"orders": TopicUse(records=1_000_000, bytes=400_000_000, movable_bytes=320_000_000)}
CLIENTS = Clients()


def client(client_id: str = "till-7", **given: Any) -> ClientUse:
    return ClientUse(
        **{
            "client_id": client_id,
            "principal": "",
            "hosts": 1,
            "requests": 1000,
            "batches": 1000,
            "records": 5000,
            "errors": 0,
            "took_us": None,
            "versions": [7],
            "reasons": {"null_key": 1000},
            **given,
        }
    )


def skew(topic: str = "orders", **given: Any) -> TopicSkew:
    return TopicSkew(
        **{
            "topic": topic,
            "partitions": 6,
            "batches": 200_000,
            "bytes": 400_000_000,
            "largest": 0,
            "largest_share": 0.17,
            "max_to_mean": 1.02,
            "gini": 0.01,
            **given,
        }
    )


def worker(**given: Any) -> WorkerUse:
    return WorkerUse(
        **{
            "worker": 0,
            "starts": 1,
            "seconds": SECONDS,
            "seconds_waited": 0,
            "pool_waits": 0,
            "pool_bytes": 33_554_432,
            "least_available_bytes": 30_000_000,
            "most_queued_bytes": 3_000_000,
            "most_queued_batches": 90,
            "most_in_flight": 5,
            "rows_dropped": 0,
            **given,
        }
    )


def runaway(topic: str = "orders", **given: Any) -> Episode:
    return Episode(
        **{
            "topic": topic,
            "partition": 0,
            "since_us": 0,
            "until_us": 500_000_000,
            "share": 0.5,
            "times_fair": 3.0,
            "wait_us": 60_000.0,
            "others_wait_us": 10_000.0,
            **given,
        }
    )


def summary(**given: Any) -> Summary:
    times = Percentiles(1000, 2000, 3000)
    everything = Group(
        key={},
        batches=BATCHES.batches,
        bytes=BATCHES.bytes,
        records=BATCHES.records,
        bytes_per_batch=2000.0,
        records_per_batch=5.0,
        share=1.0,
        failed=0,
        linger_us=times,
        upstream_us=times,
    )
    return Summary(
        **{
            "journal": "/var/lib/forebay/journal",
            "first_us": 0,
            "last_us": SECONDS * 1_000_000,
            "by": ["topic", "partition"],
            "total": everything,
            "groups": [],
            "groups_left_out": 0,
            "topics": [skew()],
            "topics_left_out": 0,
            "reasons": [],
            "fates": [],
            "runaways": [],
            "runaway_changes_left_out": 0,
            "metadata": MetadataUse(0, 0, None, 0, 0, 0, None, 0, 0),
            "workers": [worker()],
            "racks": None,
            "torn": 0,
            **given,
        }
    )


def facts(**given: Any) -> Facts:
    """`given` are fields of Facts, or of its Summary. Clients sent in all that time, too."""
    own = {name: value for name, value in given.items() if name in Facts._fields}
    others = {name: value for name, value in given.items() if name not in own}
    found = Facts(summary(), BATCHES, BROKERS, TOPICS, clients=CLIENTS)._replace(**own)
    clients = found.clients._replace(last_us=found.clients.last_us or SECONDS * 1_000_000)
    return found._replace(summary=msgspec.structs.replace(found.summary, **others), clients=clients)


def as_forebay_reads(folder: Path, *changes: Change) -> Settings:
    """The proxy's settings from a file into which the snippets of these changes were pasted."""
    path = folder / "forebay.toml"
    lines = ['"bootstrap.servers" = "kafka:9092"', '"listen" = "127.0.0.1:19092"', *(one.toml for one in changes)]
    path.write_text("\n".join(lines) + "\n")
    partitioners = ("adaptive", "expected_wait", "uniform", "sticky", "round_robin")
    return load(Sources(config=str(path)), partitioners).settings
