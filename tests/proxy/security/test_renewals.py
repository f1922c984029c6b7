"""Files that change: what is made of them is made anew, or stays as it was, and either is told."""

from __future__ import annotations

import asyncio
import math
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import pytest
import structlog

from forebay_proxy.config.kinds import ListenerAddress
from forebay_proxy.config.listeners import ListenerSettings
from forebay_proxy.config.settings import Settings
from forebay_proxy.errors import StartError
from forebay_proxy.metrics.registry import MetricRegistry, decode, merge
from forebay_proxy.metrics.traffic import RenewalMetrics
from forebay_proxy.security.expiry import SOON_S
from forebay_proxy.security.renewals import CHANGING, Outcome, Renewable, Renewals
from forebay_proxy.security.tls import TlsContext, brokers_context
from tests.kit.app import settings
from tests.kit.certificates import Authority
from tests.kit.event_loop import in_loop, turns, until

PREFIXES = ("ssl.",)
EXPIRES_AT = 1e9


class Thing:
    """Made of a file's text; `bad` in it cannot be used."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.text = ""
        self.tries = 0
        self.while_trying: Callable[[], None] = lambda: None

    def prepare(self, _: Settings) -> Callable[[], None]:
        self.tries += 1
        text = self.path.read_text()
        self.while_trying()
        if "odd" in text:
            raise TypeError("nobody foresaw this")
        if "bad" in text:
            raise StartError(f"ssl.truststore.location: {self.path} is bad")

        def commit() -> None:
            self.text = text

        return commit


@asynccontextmanager
async def watching(
    path: Path,
    settle_s: float = 0.0,
    look_s: float = 0.002,
    prepare: Callable[[Settings], Callable[[], None]] | None = None,
    left_s: float = SOON_S,
) -> AsyncIterator[tuple[Thing, Renewals, MetricRegistry]]:
    stats, thing = MetricRegistry(), Thing(path)
    told = settings((), 1, ssl_truststore_location=str(path))
    renewals = Renewals(told, RenewalMetrics(stats), look_s, settle_s, time_of_day=lambda: EXPIRES_AT - left_s)
    renewals.add(Renewable("upstream", "brokers", PREFIXES, prepare or thing.prepare, lambda: EXPIRES_AT))
    renewals.add(Renewable("client", "a listener without files", ("none.",), thing.prepare, lambda: EXPIRES_AT))
    task = asyncio.create_task(renewals.run())
    try:
        yield thing, renewals, stats
    finally:
        task.cancel()
        await asyncio.wait([task])
        assert task.cancelled()


def count(stats: MetricRegistry, outcome: str) -> float:
    return stats.value("forebay_security_reloads_total", side="upstream", outcome=outcome)


def successful(stats: MetricRegistry) -> float:
    return stats.value("forebay_security_last_reload_successful", side="upstream")


@in_loop
async def test_a_file_that_changes_is_taken_once(tmp_path: Path) -> None:
    path = tmp_path / "ca.pem"
    path.write_text("one")
    async with watching(path) as (thing, _, stats):
        await turns()
        assert (thing.tries, successful(stats)) == (0, 1)
        path.write_text("other")
        await until(lambda: thing.text == "other")
        tries = thing.tries
        await asyncio.sleep(0.02)
        assert (thing.tries, count(stats, "renewed"), count(stats, "failed")) == (tries, 1, 0)


@in_loop
async def test_a_folder_swapped_by_its_link_as_kubernetes_does(tmp_path: Path) -> None:
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "ca.pem").write_text(name)
    (tmp_path / "..data").symlink_to("first")
    (tmp_path / "ca.pem").symlink_to("..data/ca.pem")
    async with watching(tmp_path / "ca.pem") as (thing, _, _stats):
        (tmp_path / "..data_tmp").symlink_to("second")
        os.replace(tmp_path / "..data_tmp", tmp_path / "..data")
        await until(lambda: thing.text == "second")


@in_loop
async def test_a_bad_file_changes_nothing_is_told_once_and_tried_again(tmp_path: Path) -> None:
    path = tmp_path / "ca.pem"
    path.write_text("one")
    with structlog.testing.capture_logs() as logs:
        async with watching(path) as (thing, _, stats):
            path.write_text("good")
            await until(lambda: thing.text == "good")
            path.write_text("bad")
            await until(lambda: thing.tries > 4)
            assert (thing.text, count(stats, "failed"), successful(stats)) == ("good", 1, 0)
            path.unlink()
            path.write_text("better")
            await until(lambda: thing.text == "better")
            await until(lambda: successful(stats) == 1)
    (line,) = [line for line in logs if line["log_level"] == "error"]
    assert line["error"] == f"ssl.truststore.location: {path} is bad"


@in_loop
async def test_what_nobody_foresaw_is_a_failed_renewal_with_its_traceback_and_the_next_succeeds(tmp_path: Path) -> None:
    path = tmp_path / "ca.pem"
    path.write_text("one")
    with structlog.testing.capture_logs() as logs:
        async with watching(path) as (thing, _, stats):
            path.write_text("odd")
            await until(lambda: thing.tries > 2)
            assert (count(stats, "failed"), successful(stats)) == (1, 0)
            path.write_text("better")
            await until(lambda: thing.text == "better")
            await until(lambda: successful(stats) == 1)
    (line,) = [line for line in logs if line["log_level"] == "error"]
    assert line["error"] == "TypeError: nobody foresaw this"
    assert isinstance(line["exc_info"], TypeError)


@in_loop
async def test_a_truststore_that_is_emptied_is_a_failed_renewal_and_the_old_one_stays(tmp_path: Path) -> None:
    path = Authority(tmp_path).pem
    in_use: list[TlsContext] = []

    def prepare(told: Settings) -> Callable[[], None]:
        return partial(in_use.append, brokers_context(told))

    async with watching(path, prepare=prepare) as (_, _, stats):
        path.write_bytes(b"")
        await until(lambda: count(stats, "failed") == 1)
        assert (in_use, successful(stats)) == ([], 0)


@pytest.mark.parametrize(("left_s", "what"), [(SOON_S, ""), (1, "expires soon"), (0, "has expired")])
@in_loop
async def test_a_certificate_that_has_expired_or_soon_will_is_told_at_the_start_and_as_it_is_renewed(
    tmp_path: Path, left_s: float, what: str
) -> None:
    path = tmp_path / "ca.pem"
    path.write_text("one")
    with structlog.testing.capture_logs() as logs:
        async with watching(path, left_s=left_s) as (thing, renewals, _):
            await turns()
            renewals.now()
            await until(lambda: thing.text == "one")
    warned = [line for line in logs if line["log_level"] == "warning"]
    assert [line["of"] for line in warned] == (["brokers", "a listener without files", "brokers"] if what else [])
    assert all(what in line["event"] and line["valid_until"] == "2001-09-09T01:46:40+00:00" for line in warned)


@in_loop
async def test_certificates_that_are_in_no_file_have_an_expiry_too_and_what_has_none_shows_none() -> None:
    stats = MetricRegistry()
    renewals = Renewals(settings((), 1), RenewalMetrics(stats))
    for side, expires_at in (("client", math.inf), ("client", EXPIRES_AT), ("upstream", math.inf)):
        renewals.add(Renewable(side, "x", PREFIXES, lambda _: lambda: None, partial(float, expires_at)))
    task = asyncio.create_task(renewals.run())
    await turns()
    task.cancel()
    shown = {key: value for key, value in decode(stats.snapshot()).gauges.items() if "expiry" in key[0]}
    assert shown == {("forebay_certificate_expiry_timestamp_seconds", ("client",)): EXPIRES_AT}


@in_loop
async def test_the_first_expiry_is_that_of_files_and_others_alike(tmp_path: Path) -> None:
    stats = MetricRegistry()
    renewals = Renewals(settings((), 1, ssl_truststore_location=str(tmp_path)), RenewalMetrics(stats))
    for prefixes, expires_at in ((PREFIXES, EXPIRES_AT + 1), (("none.",), EXPIRES_AT)):
        renewals.add(Renewable("client", "x", prefixes, lambda _: lambda: None, partial(float, expires_at)))
    assert stats.value("forebay_certificate_expiry_timestamp_seconds", side="client") == EXPIRES_AT


@in_loop
async def test_a_file_that_is_being_written_is_waited_for(tmp_path: Path) -> None:
    """What was read while it changed counts for nothing, even if it could be used."""
    path = tmp_path / "ca.pem"
    path.write_text("one")
    async with watching(path) as (thing, _, stats):

        def go_on_writing() -> None:
            if path.read_text() == "half":
                path.write_text("whole")

        thing.while_trying = go_on_writing
        path.write_text("half")
        await until(lambda: thing.text)
        assert (thing.text, count(stats, "renewed")) == ("whole", 1)


@in_loop
async def test_who_asks_is_not_kept_waiting_for_a_look(tmp_path: Path) -> None:
    path = tmp_path / "ca.pem"
    path.write_text("one")
    async with watching(path, settle_s=3600, look_s=3600) as (thing, renewals, stats):
        renewals.now()
        await until(lambda: thing.text == "one")
        path.write_text("two")
        renewals.now()
        await until(lambda: thing.text == "two")
        assert count(stats, "renewed") == 2


@in_loop
async def test_who_asks_is_told_what_came_of_it(tmp_path: Path) -> None:
    path = tmp_path / "ca.pem"
    path.write_text("one")
    async with watching(path, look_s=3600) as (thing, renewals, _):
        first, second = renewals.now(), renewals.now()
        assert await first == await second == [Outcome("brokers")]
        path.write_text("bad")
        assert await renewals.now() == [Outcome("brokers", f"ssl.truststore.location: {path} is bad")]
        path.write_text("one")
        thing.while_trying = lambda: os.utime(path, (1, 1))
        assert await renewals.now() == [Outcome("brokers", CHANGING)]
        thing.while_trying = lambda: None
        waiting = asyncio.create_task(until(renewals.now().done))
        await turns()
        waiting.cancel()
        assert await renewals.now() == [Outcome("brokers")]


@in_loop
async def test_of_several_workers_the_first_expiry_counts(tmp_path: Path) -> None:
    def snapshot(expires_at: float) -> bytes:
        stats = MetricRegistry()
        renewals = Renewals(settings((), 1, ssl_truststore_location=str(tmp_path)), RenewalMetrics(stats))
        for each in (expires_at + 5, expires_at):
            renewals.add(Renewable("client", "x", PREFIXES, lambda _: lambda: None, partial(float, each)))
        return stats.snapshot()

    merged = merge(map(decode, (snapshot(1e9 + 3), snapshot(1e9))))
    assert merged.gauges["forebay_certificate_expiry_timestamp_seconds", ("client",)] == 1e9


@in_loop
async def test_a_file_that_is_referred_to_since_the_start_is_watched_from_then_on(tmp_path: Path) -> None:
    identities, secret = tmp_path / "identities.toml", tmp_path / "secret.properties"
    secret.write_text("key=one")
    secret.chmod(0o600)
    identities.write_text("# nobody")
    identities.chmod(0o600)
    own = ListenerSettings(upstream_identities_location=str(identities))
    listeners = (ListenerAddress("SASL_SSL", "h", 1),)
    told = Settings(bootstrap_servers=(), listeners=listeners, listener_name={"sasl_ssl": own})
    thing = Thing(secret)
    renewals = Renewals(told, RenewalMetrics(MetricRegistry()), 0.002, 0.0)
    renewals.add(Renewable("upstream", "identities", ("listener.name.sasl_ssl.upstream.identities.",), thing.prepare))
    task = asyncio.create_task(renewals.run())
    try:
        identities.write_text(f"a = '${{file:{secret}:key}}'")
        await until(lambda: thing.text == "key=one")
        secret.write_text("key=another")
        await until(lambda: thing.text == "key=another")
    finally:
        task.cancel()
        await asyncio.wait([task])
