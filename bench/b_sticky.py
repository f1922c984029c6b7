"""b. KIP-480's comparison, round robin against sticky, directly and in Forebay."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from bench.producer_performance import Load, Result, fetch, produce
from bench.report import Section, Table
from bench.rig import KAFKA, TOPIC, Watch, brokers, forebay, shown
from bench.wired import codecs
from tests.kit.kafka import KafkaCluster

TITLE: Final = "KIP-480's comparison: round robin against sticky"
ROUND_ROBIN: Final = "2.3.1"
STICKY: Final = "2.8.2"
PARTITIONS: Final = 16
RATE: Final = 1_000
SIZE: Final = 72
LINGER_MS: Final = "1000"

LINGERING: Final = {"linger.ms": LINGER_MS}
# Where Forebay lingers, a second's requests are under way: the client must be ready for that, and Forebay, too.
PIPELINING: Final = {"max.in.flight.requests.per.connection": str(RATE)}
FOR_PIPELINING: Final = {"client_max_in_flight_requests": str(RATE)}


class Way(NamedTuple):
    """A line of the table: a client, what it is told, and Forebay's settings, if it goes through."""

    name: str
    client: str
    props: Mapping[str, str]
    settings: Mapping[str, str] | None = None


WAYS: Final = (
    Way("client 2.3.1 (round robin) lingers, directly", ROUND_ROBIN, LINGERING),
    Way("client 2.8.2 (sticky) lingers, directly", STICKY, LINGERING),
    Way("client 2.3.1 lingers, through Forebay, round_robin", ROUND_ROBIN, LINGERING, {"partitioner": "round_robin"}),
    Way("client 2.3.1 lingers, through Forebay, sticky", ROUND_ROBIN, LINGERING, {"partitioner": "sticky"}),
    *(
        Way(
            f"Forebay lingers for client 2.3.1, {name}",
            ROUND_ROBIN,
            PIPELINING,
            {"partitioner": name, "linger_ms": LINGER_MS, **FOR_PIPELINING},
        )
        for name in ("round_robin", "sticky", "adaptive")
    ),
    Way("neither lingers longer than it must, Forebay's defaults", ROUND_ROBIN, {}, {}),
)
PUBLISHED: Final = (("KIP-480: round robin", 1017), ("KIP-480: sticky", 204))


class Run(NamedTuple):
    """`requests` are what the brokers saw."""

    result: Result
    requests: float


def run(short: bool) -> Section:
    fetch()
    records = 4_000 if short else 20_000
    with brokers(PARTITIONS) as cluster:
        produce(STICKY, cluster.bootstrap, TOPIC, Load(1_000, RATE, SIZE))
        runs = {way.name: _run(cluster, way, records) for way in WAYS}
    return Section("b", TITLE, [_what(records), _table(runs), WHY])


def _run(cluster: KafkaCluster, way: Way, records: int) -> Run:
    load = Load(records, RATE, SIZE, way.props)
    if way.settings is None:
        result = produce(way.client, cluster.bootstrap, TOPIC, load)
        return Run(result, result.requests)
    with forebay(cluster, **way.settings) as proxy:
        produce(way.client, proxy.bootstrap, TOPIC, Load(1_000, RATE, SIZE))
        with Watch(proxy) as did:
            result = produce(way.client, proxy.bootstrap, TOPIC, load)
    return Run(result, did.requests)


def _table(runs: Mapping[str, Run]) -> Table:
    rows: list[list[object]] = [
        [
            name,
            shown(result.average),
            *(f"{number:,.0f}" for number in (result.p50, result.p99)),
            f"{requests:,.0f}",
            f"{result.records / requests:.1f}",
        ]
        for name, (result, requests) in runs.items()
    ]
    rows += [[name, "", "", f"{p99:,}", "", ""] for name, p99 in PUBLISHED]
    return Table(["who lingers, who spreads", "average ms", "p50", "p99", "requests to brokers", "records each"], rows)


def _what(records: int) -> str:
    return (
        f"One producer, {RATE:,} records/s without a key ({records:,} of {SIZE} bytes), {PARTITIONS} partitions on"
        f" three brokers of Kafka {KAFKA}, acks=1, batch.size 16 KB, a linger of {LINGER_MS} ms; codecs {codecs()}."
        f" Kafka's own ProducerPerformance, whose {ROUND_ROBIN} spreads round robin and whose {STICKY} sticks, as the"
        " KIP compares. The KIP does not give its records' size; at this one 16 KB come together in 0.2 s, which is its"
        " sticky p99. Published numbers below, from other machines."
    )


WHY: Final = (
    "Where the client itself lingers, Forebay gives nothing back: the second is over before the record reaches it, and"
    " a round robin client fills no batch by then. The KIP's own comparison is made where the batches are: in the"
    " middle lines Forebay lingers for a client that does not. Round robin fills none of sixteen batches within the"
    " second, so all wait for its end; sticky fills one after the other. (A second's requests are under"
    " way then, and must be allowed to be, by the client and by `client.max.in.flight.requests`.) The last line is how"
    " an old client is better set: no linger of its own, Forebay's adaptive one."
)
