"""Findings posted to a server of the test's own, which takes them, refuses them, or is not there."""

from __future__ import annotations

from collections.abc import Iterator
from http.client import HTTPException
from urllib.request import OpenerDirector

import pytest

from forebay_pipeline.errors import CannotRun
from forebay_pipeline.watch.verdict import Finding
from forebay_pipeline.watch.webhook import Webhook
from tests.kit.ports import LOOPBACK, free_port
from tests.pipeline.watch.made_up import minute
from tests.pipeline.watch.receiver import Receiver

LOST = minute(lost=3, findings=[Finding.LOST])


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    there = Receiver()
    yield there
    there.close()


def test_findings_are_posted_and_nothing_else(receiver: Receiver) -> None:
    webhook = Webhook(receiver.url)
    webhook.tell(0, [minute(), LOST, minute(lost=None)])
    webhook.tell(1, [minute()])
    (got,) = receiver.got
    assert receiver.headers["Content-Type"] == "application/json"
    assert [(each["lost"], each["topic"], each["findings"]) for each in got["findings"]] == [(3, "t", ["lost"])]
    assert (got["left_out"], webhook.undelivered) == (0, 0)


def test_a_hundred_of_them_at_most(receiver: Receiver) -> None:
    Webhook(receiver.url).tell(0, [LOST] * 103)
    assert (len(receiver.got[0]["findings"]), receiver.got[0]["left_out"]) == (100, 3)


def test_what_is_refused_is_posted_again(receiver: Receiver, capsys: pytest.CaptureFixture[str]) -> None:
    pauses: list[float] = []
    webhook = Webhook(receiver.url, pauses.append)
    receiver.statuses = [503, 500]
    webhook.tell(0, [LOST])
    assert (len(receiver.got), pauses, webhook.undelivered) == (3, [1, 2], 0)
    assert capsys.readouterr().err == ""


def test_what_cannot_be_delivered_is_told_and_counted_and_holds_nothing_up(
    receiver: Receiver, capsys: pytest.CaptureFixture[str]
) -> None:
    """Neither is the path shown: it may be a secret."""
    webhook = Webhook(receiver.url, lambda _: None)
    receiver.statuses = [503, 503, 503]
    webhook.tell(0, [LOST, LOST])
    assert (len(receiver.got), webhook.undelivered) == (3, 1)
    assert capsys.readouterr().err == f"2 findings could not be delivered to {LOOPBACK}: HTTP status 503\n"
    webhook.tell(1, [LOST])
    assert (len(receiver.got), webhook.undelivered) == (4, 1)
    assert webhook.totals()["webhook_undelivered_total"][1] == 1


def test_nobody_is_there(capsys: pytest.CaptureFixture[str]) -> None:
    webhook = Webhook(f"http://{LOOPBACK}:{free_port()}/canary-7d1", lambda _: None)
    webhook.tell(0, [LOST])
    said = capsys.readouterr().err
    assert said.startswith(f"1 findings could not be delivered to {LOOPBACK}: ")
    assert "canary" not in said
    assert webhook.undelivered == 1


@pytest.mark.parametrize(
    "url",
    ["ftp://a/b", "file:///etc/passwd", "a.example/hook", "http:///canary", "http://[a/canary", "http://a:canary/"],
)
def test_other_urls_are_refused_and_not_shown(url: str) -> None:
    with pytest.raises(CannotRun) as wrong:
        Webhook(url)
    assert str(wrong.value) == "The webhook must be a URL that begins with http:// or https://."


@pytest.mark.parametrize("url", ["http://a/canary 7", "http://a/canar\xfd", "http://a/canary\n", "http://\xfc/canary"])
def test_urls_that_cannot_be_sent_as_they_are_are_refused_and_not_shown(url: str) -> None:
    with pytest.raises(CannotRun) as wrong:
        Webhook(url)
    assert str(wrong.value) == "The webhook's URL must be ASCII without spaces: write others as %20 and so on."


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_redirect_is_not_followed_and_counts_as_not_taken(
    receiver: Receiver, capsys: pytest.CaptureFixture[str], status: int
) -> None:
    """It would be followed by a GET, which any page answers with 200."""
    webhook = Webhook(receiver.url, lambda _: None)
    receiver.statuses = [status] * 3
    webhook.tell(0, [LOST])
    assert (len(receiver.got), receiver.pages, webhook.undelivered) == (3, 0, 1)
    assert capsys.readouterr().err == f"1 findings could not be delivered to {LOOPBACK}: HTTP status {status}\n"


@pytest.mark.parametrize("error", [HTTPException("/hooks/canary"), ValueError("/hooks/canary")])
def test_what_else_goes_wrong_is_told_by_its_name_alone(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def fails(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(OpenerDirector, "open", fails)
    webhook = Webhook("http://a/hooks/canary", lambda _: None)
    webhook.tell(0, [LOST])
    assert capsys.readouterr().err == f"1 findings could not be delivered to a: {type(error).__name__}\n"
    assert webhook.undelivered == 1
