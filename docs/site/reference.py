"""The site's pages that are made of what the project runs by: settings, metrics, alerts, commands. Each returns its
Markdown.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import click
import yaml

from forebay_pipeline.cli import main as forebay_pipeline
from forebay_policies.builtin_partitioners import BUILT_IN
from forebay_proxy.commands.cli import main as forebay
from forebay_proxy.commands.config import as_json
from forebay_proxy.config.reference import LISTENER_TOPIC, TOPICS
from forebay_proxy.config.sources import Sources, load
from forebay_proxy.metrics.catalog import METRICS, OF_THE_CLUSTER, Metric

ROOT: Final = Path(__file__).resolve().parents[2]
_ALERT: Final = re.compile(r"^\| `(\w+)` \| [a-z, ]+ \| (.+) \|$", re.MULTILINE)
_BESIDE: Final = re.compile(r"\]\((?=[\w-]+\.md)")
"""Where a link to another document of docs/ begins."""
_CHANGES: Final = (
    "Changes that are *live* take effect while Forebay runs, those of *workers* when workers are replaced, which a "
    "reload does where there are several ([Operating](../operating.md)), those of the *start* when Forebay is started."
)


def settings() -> str:
    """A section a topic, and in it one a setting: what it does, then a table of its facts."""
    loaded = load(Sources(), BUILT_IN, complete=False)
    facts = {each["name"]: each for each in json.loads(as_json(loaded))}
    lines = ["# Settings", "", "As `forebay config NAME` explains them, by topic.", "", _CHANGES, ""]
    topics = {**TOPICS, LISTENER_TOPIC: [name for name in facts if name.startswith("listener.name.")]}
    for topic, names in topics.items():
        lines += [f"## {topic}", ""]
        for name in names:
            lines += _setting(facts[name])
    return "\n".join(lines)


def _setting(facts: Mapping[str, Any]) -> Iterator[str]:
    yield from (f"### `{facts['name']}`", "", _text(f"{facts['description']} {facts['details']}".strip()), "")
    rows = {
        "default": "required" if facts["required"] else _value(facts["default"]),
        "unit": facts["unit"],
        "allowed": _text(facts["allowed"]),
        "changes": facts["changes"],
        "in Kafka": _text(facts["kafka"]),
        "variable": f"`{facts['variable']}`" if facts["variable"] else "",
    }
    yield from (f"- {name}: {value}" for name, value in rows.items() if value)
    yield ""


def metrics() -> str:
    """All, in the catalog's order."""
    words = "What `/metrics` has, over all workers. [Monitoring](../monitoring.md) says what to look at."
    return "\n".join(["# Metrics", "", words, "", *(_metric(metric) for metric in METRICS.values()), ""])


def _metric(metric: Metric) -> str:
    told = ((name, " (node id)" if values is OF_THE_CLUSTER else "") for name, values in metric.labels.items())
    labels = ", ".join(f"`{name}`{what}" for name, what in told)
    return f"- **`{metric.name}`**, {metric.kind}{f' by {labels}' if labels else ''}: {_text(metric.help)}"


def alerts() -> str:
    """The rules of deploy/prometheus, and beside each what docs/monitoring.md says to do."""
    (group,) = yaml.safe_load((ROOT / "deploy" / "prometheus" / "forebay.rules.yaml").read_text())["groups"]
    beside = _BESIDE.sub("](../", (ROOT / "docs" / "monitoring.md").read_text())
    to_do = dict(_ALERT.findall(beside))
    words = "Those of `deploy/prometheus/forebay.rules.yaml`; [Monitoring](../monitoring.md) says how they are loaded."
    lines = ["# Alerts", "", words, ""]
    for rule in group["rules"]:
        if "alert" in rule:
            lines += _alert(rule, to_do[rule["alert"]])
    return "\n".join(lines)


def _alert(rule: Mapping[str, Any], to_do: str) -> Iterator[str]:
    yield from (f"## {rule['alert']}", "", to_do, "", f"- severity: {rule['labels']['severity']}")
    if "for" in rule:
        yield f"- fires after: {rule['for']}"
    yield from (f"- says: `{rule['annotations']['summary']}`", "", "```text", rule["expr"].strip(), "```", "")


def commands() -> str:
    """What `--help` says of each."""
    lines = ["# Commands", ""]
    for name, group in (("forebay", forebay), ("forebay-pipeline", forebay_pipeline)):
        assert isinstance(group, click.Group)
        with click.Context(group, info_name=name) as context:
            lines += [f"## {name}", "", *_help(group, context)]
            lines += _subcommands(group, context, name)
    return "\n".join(lines)


def _subcommands(group: click.Group, context: click.Context, name: str) -> Iterator[str]:
    for each in group.list_commands(context):
        command = group.get_command(context, each)
        assert command is not None
        with click.Context(command, context, each) as below:
            yield from (f"### {name} {each}", "", *_help(command, below))
            if isinstance(command, click.Group):
                yield from _subcommands(command, below, f"{name} {each}")


def _help(command: click.Command, context: click.Context) -> Iterator[str]:
    context.terminal_width = 100
    yield from ("```text", command.get_help(context), "```", "")


def _value(value: object) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return "empty" if text in ("", "null", "[]", "{}") else f"`{text}`"


def _text(words: str) -> str:
    """As it stands: `listener.name.<name>` is no HTML, and *-producer no emphasis."""
    return re.sub(r"([<*_`\[\]$])", r"\\\1", words)


PAGES: Final[Mapping[str, Callable[[], str]]] = {
    "settings": settings,
    "metrics": metrics,
    "alerts": alerts,
    "commands": commands,
}
