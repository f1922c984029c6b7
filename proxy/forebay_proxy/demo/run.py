"""`forebay demo`: the same old-style load first directly to three embedded brokers, then through Forebay.

In: what to offer and for how long. Out: progress, one table, and 0 where all was acknowledged and as many records are
there, 1 where not or where something is missing, 128 + the signal's number when it is told to stop.
Needs nothing but the confluent-kafka wheel; every process and port is gone when it returns.

The brokers are librdkafka's mock cluster within this process, the load runs here too, Forebay is a process of its own.
"""

from __future__ import annotations

import asyncio
import random
import resource
import signal
import threading
from collections.abc import Coroutine
from typing import Any, Final, NamedTuple

import uvloop
from rich.console import Console

from forebay_codecs.apis import PRODUCE
from forebay_codecs.errors import Malformed
from forebay_proxy.demo.forebay import ForebayFailed, running_forebay
from forebay_proxy.demo.load import VALUE_SIZES, LoadCounts, LoadPlan, run_load
from forebay_proxy.demo.mock_cluster import MockCluster, MockClusterError, MockClusterUnavailable
from forebay_proxy.demo.reader import read_stored
from forebay_proxy.demo.report import Leg, comparison, nothing_lost_line, progress

BROKERS: Final = 3
SLOW_BROKER: Final = 1
SLOW_BROKER_RTT_MS: Final = 20


class DemoOptions(NamedTuple):
    """`rate` in records/s over all clients; `seconds` of measuring a leg, behind `warm_up` seconds.

    By default the slow broker is just too slow for its third: with one request in flight, a connection carries 50
    records/s at 20 ms, and 24 clients offer 55/s on each. That is where old producers suffer, and what Forebay is for.
    At half the rate nobody waits, and a proxy can only add to the latency. The rest (brokers, load, Forebay) has room
    to spare on two cores: what is shown is not how fast Python is.
    """

    rate: float = 4000
    clients: int = 24
    partitions: int = 6
    warm_up: float = 2
    seconds: float = 10
    seed: int = 794
    through_forebay: bool = True


def leader(partition: int) -> int:
    """The partitions go round: 0 and 3 on broker 1, 1 and 4 on broker 2, 2 and 5 on broker 3."""
    return 1 + partition % BROKERS


def run_demo(options: DemoOptions | None = None, console: Console | None = None) -> int:
    options = options or DemoOptions()
    console = console or Console()
    try:
        return uvloop.run(_until_terminated(_demo(options, console)))
    except MockClusterUnavailable as error:
        console.print(str(error), style="red", markup=False, soft_wrap=True)
    except ForebayFailed as error:
        console.print(f"forebay run: {error}", style="red", markup=False, soft_wrap=True)
    except (OSError, Malformed, MockClusterError) as error:
        console.print(f"the demo failed: {error}", style="red", markup=False, soft_wrap=True)
    except KeyboardInterrupt:
        console.print("stopped")
        return 128 + signal.SIGINT
    except asyncio.CancelledError:
        console.print("stopped")
        return 128 + signal.SIGTERM
    return 1


async def _until_terminated(work: Coroutine[Any, Any, int]) -> int:
    """SIGTERM ends the work as Ctrl-C does: by cancelling it, so that it cleans up."""
    task = asyncio.ensure_future(work)
    loop = asyncio.get_running_loop()
    if threading.current_thread() is not threading.main_thread():
        return await task
    loop.add_signal_handler(signal.SIGTERM, task.cancel)
    try:
        return await task
    finally:
        loop.remove_signal_handler(signal.SIGTERM)


async def _demo(options: DemoOptions, console: Console) -> int:
    with MockCluster(BROKERS) as cluster:
        console.print(_what_is_compared(options), highlight=False)
        legs = [await _leg("directly", cluster.bootstrap, cluster, options, console)]
        if options.through_forebay:
            before = _children_cpu()
            async with running_forebay(cluster.bootstrap) as bootstrap:
                console.print(f"Forebay listens on {bootstrap}", highlight=False)
                legs.append(await _leg("through Forebay", bootstrap, cluster, options, console))
            forebay_cpu = f"; Forebay took {_children_cpu() - before:.1f} s of CPU in all"
        else:
            forebay_cpu = ""
    slow = frozenset(p for p in range(options.partitions) if leader(p) == SLOW_BROKER)
    console.print(comparison(legs, options.partitions, slow))
    for leg in legs:
        console.print(nothing_lost_line(leg), highlight=False, soft_wrap=True)
    generator = ", ".join(f"{leg.result.cpu:.0%}" for leg in legs)
    console.print(f"The load generator took {generator} of a core{forebay_cpu}.", highlight=False)
    return 0 if all(leg.nothing_lost for leg in legs) else 1


async def _leg(name: str, bootstrap: str, cluster: MockCluster, options: DemoOptions, console: Console) -> Leg:
    """Offer the load to `bootstrap`, to a new topic; then count what the brokers have."""
    topic = "demo-" + name.lower().replace(" ", "-")
    cluster.create_topic(topic, options.partitions)
    for partition in range(options.partitions):
        cluster.set_partition_leader(topic, partition, leader(partition))
    cluster.set_broker_rtt(SLOW_BROKER, SLOW_BROKER_RTT_MS)
    cluster.start_request_tracking()
    plan = LoadPlan(topic, options.partitions, options.clients, options.rate, options.warm_up, options.seconds)
    counts = LoadCounts()
    async with progress(console, name, plan, counts):
        result = await run_load(bootstrap, plan, random.Random(options.seed), counts)
    produced = sum(count for (_, api), count in cluster.request_counts().items() if api == PRODUCE)
    cluster.stop_request_tracking()
    cluster.set_broker_rtt(SLOW_BROKER, 0)
    return Leg(name, result, produced, await read_stored(cluster.bootstrap, topic))


def _what_is_compared(options: DemoOptions) -> str:
    carried = 1000 / SLOW_BROKER_RTT_MS
    offered = options.rate / options.clients / BROKERS
    return f"""\
Three brokers on 127.0.0.1 (librdkafka's mock cluster, not Kafka itself);
broker {SLOW_BROKER} holds each of its answers back for {SLOW_BROKER_RTT_MS} ms.

The same load twice: {options.clients} old producers offer {options.rate:,.0f} records/s of
{VALUE_SIZES[0]}–{VALUE_SIZES[-1]} bytes, without a key, to {options.partitions} partitions drawn at random: Produce v3,
acks=1, no linger, one record a request, one request in flight a connection.
To broker {SLOW_BROKER} a connection carries {carried:.0f} records/s, and is offered {offered:.0f}.
Latency counts from the moment a record is due.
{options.warm_up:g} s of warm-up, then {options.seconds:g} s measured.
"""


def _children_cpu() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime
