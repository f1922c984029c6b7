"""Whether metrics are pushed, and of which processes: a real Forebay's, all workers added up."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterable
from time import monotonic

import pytest
from prometheus_client.metrics_core import Metric as Family

from forebay_proxy.config.settings import HostPort, Settings
from forebay_proxy.errors import StartError
from forebay_proxy.metrics.registry import MetricRegistry
from forebay_proxy.process.exporting import otlp_export
from tests.kit.event_loop import in_loop, until
from tests.kit.fake_broker import FakeCluster
from tests.kit.forebay import ForebayProcess
from tests.kit.otlp_collector import HANGS_S, collecting, told
from tests.kit.ports import LOOPBACK
from tests.kit.wire import WireClient, batch, keyed, produce

RECORDS = ("forebay_records_total", frozenset({("fate", "kept")}))


async def no_families() -> Iterable[Family]:
    return ()


def settings(endpoint: str) -> Settings:
    address = HostPort(LOOPBACK, 9092)
    return Settings(bootstrap_servers=(address,), listen=HostPort(LOOPBACK, 19092), otlp_endpoint=endpoint)


def test_without_an_address_nothing_is_pushed() -> None:
    assert otlp_export(settings(""), no_families, MetricRegistry()) is None


def test_what_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "forebay_proxy.metrics.otlp", raising=False)
    monkeypatch.setitem(sys.modules, "opentelemetry.exporter.otlp.proto.http.metric_exporter", None)
    with pytest.raises(
        StartError,
        match=r"^otlp\.endpoint: opentelemetry.* is missing: pip install '\.\[otlp\]' in a clone of Forebay$",
    ):
        otlp_export(settings("http://localhost:4318/v1/metrics"), no_families, MetricRegistry())


@in_loop
async def test_all_workers_are_in_one_export_and_a_collector_that_hangs_holds_up_nobody() -> None:
    async with FakeCluster({"ponds": [0]}) as cluster:
        with collecting() as there:
            forebay = ForebayProcess(
                ",".join(map(str, cluster.bootstrap)),
                [0],
                settings={"workers": "2", "otlp.endpoint": there.url, "otlp.interval.ms": "1000"},
            )
            await asyncio.to_thread(forebay.start)
            try:
                for number in range(4):
                    await send(forebay, number)
                await until(lambda: there.exports and told(there.exports[-1]).get(RECORDS) == 4)
                assert told(there.exports[-1])["forebay_workers", frozenset()] == 2
                there.answers.clear()
                taken = len(there.exports)
                await until(lambda: len(there.exports) > taken)
                await send(forebay, 9)
                began = monotonic()
            except BaseException:
                forebay.kill()
                raise
            await asyncio.to_thread(forebay.stop)
            assert monotonic() - began < HANGS_S / 2


async def send(forebay: ForebayProcess, number: int) -> None:
    client = await WireClient.connect(forebay.node_port(0))
    client.send(produce(number, ("ponds", 0, batch(keyed("a")))))
    await client.receives(number)
    client.close()
