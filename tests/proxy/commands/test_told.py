"""What is told of settings has no secret in it."""

from __future__ import annotations

import json

from forebay_proxy.commands.told import told_of
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
