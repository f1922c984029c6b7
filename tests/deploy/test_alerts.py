"""The alerting rules, as Prometheus's own tool judges them: valid, and firing when they should and not before."""

from __future__ import annotations

import copy
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from forebay_proxy.metrics.exposition import expose
from tests.deploy.files import DEPLOY
from tests.kit.metrics import everything
from tests.kit.paths import ROOT, program

RULES = DEPLOY / "prometheus" / "forebay.rules.yaml"
CASES = Path(__file__).with_name("alerts.yaml")
GUIDE = ROOT / "docs" / "monitoring.md"

GROUPS = yaml.safe_load(RULES.read_text())
ALERTS = GROUPS["groups"][0]["rules"]


def named(rule: dict[str, Any]) -> tuple[str, str]:
    return rule["alert"], rule["labels"]["severity"]


def promtool(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([program("promtool"), *arguments], capture_output=True, text=True, timeout=60)


def run_cases(rules: Any, folder: Path) -> subprocess.CompletedProcess[str]:
    """The cases, over these rules instead of those that they name."""
    (folder / "rules.yaml").write_text(yaml.safe_dump(rules))
    cases = yaml.safe_load(CASES.read_text())
    (folder / "cases.yaml").write_text(yaml.safe_dump({**cases, "rule_files": ["rules.yaml"]}))
    return promtool("test", "rules", folder / "cases.yaml")


def test_prometheus_takes_them() -> None:
    checked = promtool("check", "rules", "--lint=all", "--lint-fatal", RULES)
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_each_fires_when_it_should_and_not_before() -> None:
    tested = promtool("test", "rules", CASES)
    assert tested.returncode == 0, tested.stdout + tested.stderr


def silenced(*rules: int) -> Any:
    """The rules, of which these never fire."""
    groups = copy.deepcopy(GROUPS)
    for rule in rules:
        groups["groups"][0]["rules"][rule]["expr"] = "vector(0) > 1"
    return groups


def test_the_cases_miss_every_rule_where_none_fires(tmp_path: Path) -> None:
    tested = run_cases(silenced(*range(len(ALERTS))), tmp_path)
    assert tested.returncode != 0
    for name, severity in map(named, ALERTS):
        assert re.search(rf'alertname="{name}"[^}}]*severity="{severity}"', tested.stdout + tested.stderr), name


@pytest.mark.whole
@pytest.mark.parametrize("rule", range(len(ALERTS)), ids=lambda rule: "-".join(named(ALERTS[rule])))
def test_the_cases_miss_a_rule_that_never_fires(rule: int, tmp_path: Path) -> None:
    tested = run_cases(silenced(rule), tmp_path)
    assert tested.returncode != 0
    assert ALERTS[rule]["alert"] in tested.stdout + tested.stderr


def test_they_watch_what_forebay_measures() -> None:
    text = expose(everything().take(), "1.2.3")[0].decode()
    labels = {
        sample.name: set(sample.labels) for each in text_string_to_metric_families(text) for sample in each.samples
    }
    for rule in ALERTS:
        for name, chosen in re.findall(r"(forebay_\w+)(?:\{(.*?)\})?", rule["expr"]):
            assert name in labels, rule["alert"]
            assert set(re.findall(r"(\w+)=~?\"", chosen)) <= labels[name], rule["alert"]


def test_the_guide_says_what_to_do_about_each() -> None:
    assert re.findall(r"^\| `(Forebay\w+)`", GUIDE.read_text(), re.MULTILINE) == list(
        dict.fromkeys(rule["alert"] for rule in ALERTS)
    )


def test_the_guide_has_the_severities_of_the_rules() -> None:
    severities: dict[str, list[str]] = {}
    for rule in ALERTS:
        severities.setdefault(rule["alert"], []).append(rule["labels"]["severity"])
    told = re.findall(r"^\| `(Forebay\w+)` \| ([^|]+) \|", GUIDE.read_text(), re.MULTILINE)
    assert dict(told) == {alert: ", ".join(each) for alert, each in severities.items()}
