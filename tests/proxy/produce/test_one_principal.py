"""A request with somebody else's records is never written: the process ends instead."""

from __future__ import annotations

import subprocess
import sys

import pytest

from forebay_codecs.api_keys import PRODUCE
from forebay_policies.producer_batch import Lane, RecordRun
from forebay_proxy.produce import one_principal
from tests.kit import fakes_proxy as fakes
from tests.kit.app import running
from tests.kit.event_loop import in_loop, until
from tests.kit.fake_broker import FakeCluster
from tests.kit.paths import ROOT
from tests.kit.wire import batch, keyed, produce
from tests.policies.accumulator_kit import drain

ENDS = """
from forebay_proxy.produce.one_principal import end_process
try:
    end_process("ponds", 3)
finally:
    print("not reached")
"""


def test_the_process_ends_at_once_with_a_line_in_its_log() -> None:
    run = subprocess.run([sys.executable, "-c", ENDS], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert run.returncode == one_principal.EXIT_CODE
    assert "sent as somebody else" in run.stdout + run.stderr
    assert "ponds" in run.stdout + run.stderr
    assert "not reached" not in run.stdout


def test_batches_of_one_principal_pass_and_all_others_do_not(monkeypatch: pytest.MonkeyPatch) -> None:
    ended: list[tuple[str, int]] = []
    monkeypatch.setattr(one_principal, "end_process", lambda topic, partition: ended.append((topic, partition)))
    accumulator = fakes.accumulator()
    topic = fakes.known(accumulator, {"ponds": [0, 0]}).topics["ponds"].queues
    for partition, principal in enumerate(("alice", "bob")):
        owner = fakes.FakeOwner()
        run = RecordRun(owner, 0, 1, moved=False, whole=True)
        lane = Lane(1, 0, movable=False, principal=principal)
        accumulator.append(topic.queue(partition), lane, run, fakes.client_batch(keyed("x")), 0.0)
    accumulator.flush_all(0.0)
    drained = drain(accumulator, 0)
    one_principal.ensure_one_principal("alice", drained[:1])
    one_principal.ensure_one_principal("bob", drained[1:])
    assert ended == []
    one_principal.ensure_one_principal("alice", drained)
    one_principal.ensure_one_principal("", drained)
    assert ended == [("ponds", 1), ("ponds", 0), ("ponds", 1)]


@in_loop
async def test_a_sender_looks_before_it_writes(monkeypatch: pytest.MonkeyPatch) -> None:
    """A client that is somebody else by the time it sends: nothing reaches the broker."""
    ended: list[str] = []

    def end(topic: str, partition: int) -> None:
        ended.append(f"{topic}-{partition}")
        raise ConnectionError("the process would have ended")  # so that the request is not written

    monkeypatch.setattr(one_principal, "end_process", end)
    async with FakeCluster({"ponds": [0]}) as cluster, running(cluster.bootstrap) as forebay:
        client = await forebay.client(0)
        (connection,) = forebay.app._connections
        connection._client.principal = "alice"
        client.send(produce(1, ("ponds", 0, batch(keyed("a")))))
        await until(lambda: ended == ["ponds-0"])
        await client.receives(1)
        assert cluster[0].requests(PRODUCE) == []
