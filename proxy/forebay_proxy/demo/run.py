"""`forebay demo`: the same old-style load directly to three embedded brokers, then through Forebay, twice: once with
each of two partitioners.

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
from collections.abc import Coroutine, Sequence
from typing import Any, Final, NamedTuple

import uvloop
from rich.console import Console

from forebay_codecs.api_keys import PRODUCE
from forebay_codecs.errors import Malformed
from forebay_proxy.demo.forebay import ForebayFailed, running_forebay
from forebay_proxy.demo.load import VALUE_SIZES, LoadCounts, LoadPlan, measure_capacity, run_load
from forebay_proxy.demo.mock_cluster import MockCluster, MockClusterError, MockClusterUnavailable
from forebay_proxy.demo.reader import read_stored
from forebay_proxy.demo.report import Leg, comparison, nothing_lost_line, progress

BROKERS: Final = 3
SLOW_BROKER: Final = 1
SLOW_BROKER_RTT_MS: Final = 20
_FEWEST_CLIENTS: Final = 3
_LATE_S: Final = 0.02
"""As late as the slow broker is. On an idle machine the load is 1 ms late."""
_OFFERED: Final = 0.4
"""Of what the machine bears: the rest is for what else runs there, which may become more while the demo does."""


class DemoOptions(NamedTuple):
    """`rate` in records/s over all clients; `seconds` of measuring a leg, behind `warm_up` seconds.

    By default the slow broker is just too slow for its third: with one request in flight, a connection carries 50
    records/s at 20 ms, and 24 clients offer 55/s on each. That is where old producers suffer, and what Forebay is for.
    At half the rate nobody waits, and a proxy can only add to the latency. The rest (brokers, load, Forebay) has room
    to spare on two idle cores: what is shown is not how fast Python is. On a machine that bears less there are fewer
    clients, each as fast (`fitting`); how much it bears is measured for `calibration` seconds, 0: not at all.
    """

    rate: float = 4000
    clients: int = 24
    partitions: int = 6
    warm_up: float = 3
    seconds: float = 6
    calibration: float = 1.5
    seed: int = 794
    partitioners: tuple[str, ...] = ("adaptive", "expected_wait")

    def fitting(self, capacity: float) -> DemoOptions:
        """With as many clients as offer 0.4 of `capacity` records/s: all 24 from 10,000/s on, 12 at 5,000/s."""
        each = self.rate / self.clients
        clients = min(self.clients, max(_FEWEST_CLIENTS, int(_OFFERED * capacity / each)))
        return self._replace(clients=clients, rate=each * clients)


def leader(partition: int) -> int:
    """The partitions go round: 0 and 3 on broker 1, 1 and 4 on broker 2, 2 and 5 on broker 3."""
    return 1 + partition % BROKERS


def run_demo(options: DemoOptions | None = None, console: Console | None = None) -> int:
    """Run the demo and print it to `console`. Returns an exit code, 0 if nothing was lost; prints what fails."""
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
        if options.calibration and options.partitioners:
            async with running_forebay(cluster.bootstrap) as bootstrap:
                capacity = await _capacity(bootstrap, cluster, options)
            options = options.fitting(capacity)
            console.print(_what_is_borne(options, capacity), highlight=False)
        console.print(_what_is_compared(options), highlight=False)
        legs = [await _leg("directly", "directly", cluster.bootstrap, cluster, options, console)]
        forebay_cpu = []
        for partitioner in options.partitioners:
            before = _children_cpu()
            async with running_forebay(cluster.bootstrap, ["--set", f"partitioner={partitioner}"]) as bootstrap:
                console.print(f"Forebay listens on {bootstrap}", highlight=False)
                name = f"Forebay, {partitioner}"
                legs.append(await _leg(name, partitioner, bootstrap, cluster, options, console))
            forebay_cpu.append(_children_cpu() - before)
    slow = frozenset(p for p in range(options.partitions) if leader(p) == SLOW_BROKER)
    console.print(comparison(legs, options.partitions, slow))
    for leg in legs:
        console.print(nothing_lost_line(leg), highlight=False, soft_wrap=True)
    console.print(_what_it_took(legs, forebay_cpu), highlight=False)
    if (late := max(leg.result.late for leg in legs)) > _LATE_S:
        console.print(
            f"The machine is too busy for latencies to mean much: the load itself came {late * 1000:,.0f} ms late.",
            style="yellow",
            highlight=False,
            soft_wrap=True,
        )
    return 0 if all(leg.nothing_lost for leg in legs) else 1


def _create_topic(cluster: MockCluster, topic: str, partitions: int) -> None:
    cluster.create_topic(topic, partitions)
    for partition in range(partitions):
        cluster.set_partition_leader(topic, partition, leader(partition))


async def _capacity(bootstrap: str, cluster: MockCluster, options: DemoOptions) -> float:
    """Records/s through Forebay when no broker is slow: all that takes CPU in the demo takes part."""
    topic = "demo-calibration"
    _create_topic(cluster, topic, options.partitions)
    warm_up = options.calibration / 3
    plan = LoadPlan(topic, options.partitions, options.clients, options.rate, warm_up, options.calibration - warm_up)
    return await measure_capacity(bootstrap, plan)


async def _leg(
    name: str, topic: str, bootstrap: str, cluster: MockCluster, options: DemoOptions, console: Console
) -> Leg:
    """Offer the load to `bootstrap`, to a new topic; then count what the brokers have."""
    topic = f"demo-{topic}"
    _create_topic(cluster, topic, options.partitions)
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


def _what_is_borne(options: DemoOptions, capacity: float) -> str:
    full = DemoOptions._field_defaults["rate"]
    less = "" if options.rate >= full else f" (on an idle machine: {full:,})"
    return (
        f"As fast as it goes, {capacity:,.0f} records/s pass through Forebay here now; "
        f"the demo offers {options.rate:,.0f}{less}.\n"
    )


def _what_is_compared(options: DemoOptions) -> str:
    carried = 1000 / SLOW_BROKER_RTT_MS
    offered = options.rate / options.clients / BROKERS
    times = 1 + len(options.partitioners)
    return f"""\
Three brokers on 127.0.0.1 (librdkafka's mock cluster, not Kafka itself);
broker {SLOW_BROKER} holds each of its answers back for {SLOW_BROKER_RTT_MS} ms.

The same load {times} times: {options.clients} old producers offer {options.rate:,.0f} records/s of
{VALUE_SIZES[0]}–{VALUE_SIZES[-1]} bytes, without a key, to {options.partitions} partitions drawn at random: Produce v3,
acks=1, no linger, one record a request, one request in flight a connection.
To broker {SLOW_BROKER} a connection carries {carried:.0f} records/s, and is offered {offered:.0f}.
Latency counts from the moment a record is due.
{options.warm_up:g} s of warm-up, then {options.seconds:g} s measured.
"""


def _what_it_took(legs: Sequence[Leg], forebay_cpu: Sequence[float]) -> str:
    generator = ", ".join(f"{leg.result.cpu:.0%}" for leg in legs)
    forebay = ", ".join(f"{seconds:.1f}" for seconds in forebay_cpu)
    return f"The load generator took {generator} of a core" + (
        f"; Forebay took {forebay} s of CPU." if forebay else "."
    )


def _children_cpu() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime
