"""Which clients are held and why, in an App that runs."""

from __future__ import annotations

from forebay_codecs.api_keys import PRODUCE
from forebay_proxy.clients.held import MOST, held
from tests.kit.app import running
from tests.kit.event_loop import in_loop, until
from tests.kit.fake_broker import FakeCluster
from tests.kit.wire import batch, keyed, produce


@in_loop
async def test_who_has_too_much_under_way_is_named_with_the_reason() -> None:
    settings = {"client_max_in_flight_requests": 2}
    async with FakeCluster({"ponds": [0, 0]}) as cluster, running(cluster.bootstrap, **settings) as forebay:
        cluster[0].holds(PRODUCE)
        client, _ = await forebay.client(0), await forebay.client(0)
        client.send(*(produce(number, ("ponds", 0, batch(keyed("x")))) for number in range(2)))
        connections = forebay.app._connections
        await until(lambda: held(connections)["reasons"] == {"in flight": 1})  # before that, they wait for metadata
        told = held(connections)
        assert (told["connections"], told["held"]) == (2, 1)
        assert [(row["holds"], row["unanswered"]) for row in told["some"]] == [(["in flight"], 2)]
        assert len(held(list(connections) * 200)["some"]) == MOST
        cluster[0].releases(PRODUCE)
