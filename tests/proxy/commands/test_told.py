"""What is told of settings has no secret in it."""

from __future__ import annotations

import json

from forebay_proxy.commands.told import told_of
from forebay_proxy.config.overriding import Override
from forebay_proxy.config.sources import Sources, load


def test_settings_and_what_they_decide_and_no_secret() -> None:
    secrets = {"FOREBAY_ADMIN_BEARER_TOKEN": "hunter2", "FOREBAY_SSL_KEY_PASSWORD": "${env:P}", "P": "hunter2"}
    assignments = ["bootstrap.servers=b:9092", "listen=127.0.0.1:1", "topics.exclude=raw-*"]
    loaded = load(Sources(None, secrets, assignments, {}), ("adaptive",), complete=False)
    told = told_of(loaded)
    written = json.dumps(told.config)
    assert "hunter2" not in written
    rows = {row["name"]: row for row in told.config}
    assert rows["topics.exclude"]["value"] == ["raw-*"]
    assert "FOREBAY_ADMIN_BEARER_TOKEN" in rows["admin.bearer.token"]["origin"]
    assert rows["admin.bearer.token"]["value"] != rows["admin.bearer.token"]["default"]
    assert told.explain("till-7", "raw-1")["decisions"][1]["reason"] == "topic_excluded"
    assert "raw-*" in told.explain(None, "raw-1")["text"]


def test_overrides_are_shown_with_their_reasons_and_the_first_end() -> None:
    loaded = load(Sources(assignments=["topics.exclude=raw-*", "brokers.avoid=9"]), ("adaptive",), complete=False)
    overrides = [
        Override("topics.exclude", ("all-*",), "a test", 7.0),
        Override("brokers.avoid", (1,), "slow", 9.0, adds=True),
        Override("brokers.avoid", (2,), "replaced", 8.0, adds=True),
    ]
    told = told_of(loaded).overridden(overrides)
    rows = {row["name"]: row for row in told.config}
    topics, brokers = rows["topics.exclude"], rows["brokers.avoid"]
    assert (topics["value"], topics["origin"], topics["reason"]) == (["all-*"], "override", "a test")
    assert (topics["instead_of"], brokers["instead_of"]) == ("raw-*", "")
    assert (brokers["value"], brokers["reason"], brokers["expires_at"]) == ([9, 1, 2], "slow; replaced", 8.0)
    assert "expires_at" not in rows["linger.ms"]
    assert rows["linger.ms"]["changes"] == "live"
    assert "all-*" in told.explain(None, "all-1")["text"]
    assert told_of(loaded).config == told.overridden([]).config
