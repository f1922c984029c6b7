"""The API over HTTP: what it answers, whom it refuses, and that nothing can be changed by it."""

from __future__ import annotations

import asyncio

import aiohttp
import pytest

from forebay_policies.own_choices import TopicChoices
from forebay_proxy.commands import command_config, explain
from forebay_proxy.commands.admin_endpoint import AdminError, by_url
from forebay_proxy.config.secret import Secret
from forebay_proxy.console.entry import PREFIX
from forebay_proxy.metrics.clients_seen import SeenClient
from forebay_proxy.metrics.topics_seen import SeenTopic
from tests.kit.event_loop import in_loop
from tests.proxy.console.seen import Seen
from tests.proxy.console.served import served

NAMES = ("overview", "brokers", "topics", "clients", "history", "events", "config")


@in_loop
async def test_the_overview() -> None:
    seen = Seen()
    stats = seen.source.stats
    stats.gauge_of_brokers("forebay_broker_up", lambda: {1: 1, 2: 0})
    stats.histogram("forebay_added_latency_seconds", path="merged").observe(0.003)
    seen.source.clients = [
        SeenClient("till-7", "h", None, None, 3, requests={1: 1}),
        SeenClient("app", "h", None, None),
    ]
    seen.source.topics = [SeenTopic("ponds")]
    stats.counter("forebay_errors_total", side="upstream", kind="authentication").value += 1
    seen.step()
    await seen.closely()
    async with served(seen) as forebay:
        forebay.unready = "draining"
        status, told = await forebay.get(f"{PREFIX}overview")
    assert status == 200
    assert (told["brokers"], told["ready"], told["workers"]) == ({"known": 2, "up": 1}, False, 2)
    assert (told["clients"], told["topics"]) == ({"connected": 1, "known": 2, "full": False, "too_old": 1}, 1)
    assert told["added"]["p99"] == pytest.approx(0.003)
    assert [problem["kind"] for problem in told["problems"]] == [
        "not_ready",
        "login_refused",
        "broker_down",
        "too_old",
    ]


@in_loop
async def test_before_anything_was_seen_there_is_an_answer_to_everything() -> None:
    async with served(Seen()) as forebay:
        for name in NAMES:
            status, _ = await forebay.get(PREFIX + name)
            assert status == 200, name


@in_loop
async def test_history_of_one_thing() -> None:
    seen = Seen()
    for _ in range(3):
        seen.step()
    async with served(seen) as forebay:
        _, told = await forebay.get(f"{PREFIX}history?seconds=3&points=10")
        assert told["times"] == [1_000_001, 1_000_002, 1_000_003]
        assert len(told["values"]) == len(told["columns"])
        _, told = await forebay.get(f"{PREFIX}history?of=topic&key=nowhere")
        assert told["values"] == []
        for wrong in ("of=x", "points=0", "seconds=3601", "x=1"):
            assert (await forebay.get(f"{PREFIX}history?{wrong}"))[0] == 400


@in_loop
async def test_events_settings_and_explanations() -> None:
    seen = Seen()
    seen.collector.events.add(5, "info", "ready", "takes clients")
    async with served(seen) as forebay:
        _, told = await forebay.get(f"{PREFIX}events")
        assert told["rows"] == [{"at": 5, "severity": "info", "kind": "ready", "text": "takes clients", "times": 1}]
        _, told = await forebay.get(f"{PREFIX}config?q=ling")
        assert [row["name"] for row in told["rows"]] == ["linger.ms"]
        _, told = await forebay.get(f"{PREFIX}explain?topic=ponds&client_id=till-7")
        assert told == {"text": "till-7 ponds"}
        assert (await forebay.get(f"{PREFIX}explain"))[0] == 400


@in_loop
async def test_an_explanation_says_what_was_seen_of_the_client() -> None:
    seen = Seen()
    seen.source.clients = [
        SeenClient("till-7", "10.0.0.1", None, None, choices={"ponds": TopicChoices(12, 50, [3, 7])}),
        SeenClient("till-8", "10.0.0.1", None, None, choices={"ponds": TopicChoices(12, 1, [3, 7])}),
        SeenClient(None, "10.0.0.1", None, None, choices={"ponds": TopicChoices(12, 50, [3])}),
    ]
    await seen.closely()
    async with served(seen) as forebay:
        _, told = await forebay.get(f"{PREFIX}explain?topic=ponds&client_id=till-7")
        assert told["text"].splitlines()[1] == (
            "Seen from 10.0.0.1: its records without a key keep to 2 of 12 partitions, so it looks as if it picks them"
            " itself."
        )
        _, told = await forebay.get(f"{PREFIX}explain?topic=ponds&client_id=")
        assert "keep to 1 of 12 partitions" in told["text"]
        for query in ("topic=ponds&client_id=till-8", "topic=lakes&client_id=till-7", "topic=ponds"):
            _, told = await forebay.get(f"{PREFIX}explain?{query}")
            assert len(told["text"].splitlines()) == 1

        endpoint = by_url(forebay.url, command_config.read(None))
        online = await asyncio.to_thread(explain.asked, endpoint, "till-7", "ponds")
        assert online["text"].startswith("till-7 ponds\nSeen from")
        with pytest.raises(AdminError, match="topic must be given"):
            await asyncio.to_thread(explain.asked, endpoint, "till-7", "")


@in_loop
async def test_what_cannot_be_asked_is_said() -> None:
    async with served(Seen()) as forebay:
        for name in (*NAMES, "explain"):
            status, told = await forebay.get(f"{PREFIX}{name}?nonsense=1")
            assert (status, "nonsense" in told["error"]) == (400, True), name


@in_loop
async def test_a_stranger_learns_nothing() -> None:
    async with served(Seen()) as forebay:
        for path in ("/", f"{PREFIX}overview", f"{PREFIX}stream"):
            assert (await forebay.get(path, Host="evil.example"))[0] == 403
            assert (await forebay.get(path, Origin="http://evil.example"))[0] == 403
        for path in ("/", f"{PREFIX}overview"):
            assert (await forebay.get(path, Host="forebay.example.net"))[0] == 200


@in_loop
async def test_only_whom_the_endpoint_admits() -> None:
    async with served(Seen(), admin_bearer_token=Secret("sesame")) as forebay:
        for name in (*NAMES, "explain", "stream"):
            assert (await forebay.get(PREFIX + name))[0] == 401, name
        assert (await forebay.get(f"{PREFIX}overview", Authorization="Bearer sesame"))[0] == 200
        assert (await forebay.get("/"))[0] == 200  # which shows nothing, and asks for the token


@in_loop
async def test_nothing_can_be_changed() -> None:
    async with served(Seen()) as forebay, aiohttp.ClientSession() as session:
        for method in ("POST", "PUT", "DELETE", "PATCH"):
            for path in ("/", *(PREFIX + name for name in (*NAMES, "explain", "stream"))):
                async with session.request(method, forebay.url + path) as response:
                    assert response.status == 405


@in_loop
async def test_answers_are_not_kept_by_anybody() -> None:
    async with (
        served(Seen()) as forebay,
        aiohttp.ClientSession() as session,
        session.get(f"{forebay.url}{PREFIX}overview") as response,
    ):
        assert response.headers["Cache-Control"] == "no-store"
        assert response.headers["X-Content-Type-Options"] == "nosniff"
