"""Grafana's dashboard: made of the catalog, whole, and every query answered by a Prometheus that scrapes Forebay."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from deploy.grafana import dashboard
from forebay_proxy.demo.mock_cluster import MockCluster
from forebay_proxy.metrics.catalog import METRICS
from tests.deploy.test_alerts import RULES, promtool
from tests.kit.forebay import ForebayProcess
from tests.kit.ports import free_port
from tests.kit.prometheus import Prometheus, Refused
from tests.kit.waiting import wait_until

PANELS: list[dict[str, Any]] = json.loads(dashboard.TARGET.read_text())["panels"]

NOT_HERE = {
    "Rack bytes a second",  # no racks are set
    "Certificate expiry timestamp seconds",  # no certificates
    "Security reloads a second",
    "Security last reload successful",
    "Topic records a second",  # metrics.topics.max is 0
    "Topic bytes a second",
    "Journal rows a second",  # no journal
    "Journal rows dropped a second",
    "Otlp exports a second",  # no collector
}
"""Panels that have nothing to show of a Forebay with nothing but its defaults."""

SECONDS = 60


def queries(panel: dict[str, Any]) -> list[str]:
    """What the panel asks, as Grafana would fill it in."""
    filled = [target["expr"].replace("$instance", ".*") for target in panel.get("targets", ())]
    return [expr.replace(dashboard.WINDOW, "1m") for expr in filled]


def test_the_file_is_what_the_catalog_makes_of_it() -> None:
    assert dashboard.TARGET.read_text() == dashboard.text(), "run: python deploy/grafana/dashboard.py"


def test_every_metric_has_one_panel() -> None:
    shown = Counter(f"forebay_{name}" for names in dashboard.SECTIONS.values() for name in names)
    assert shown == Counter(list(METRICS))


def test_no_panel_covers_another() -> None:
    covered = Counter(
        (x, y)
        for panel in PANELS
        for at in [panel["gridPos"]]
        for x in range(at["x"], at["x"] + at["w"])
        for y in range(at["y"], at["y"] + at["h"])
    )
    assert max(covered.values()) == 1
    assert max(x for x, _ in covered) < dashboard.GRID


def check_shown(title: str, series: dict[str, str], value: float, folder: Path) -> None:
    """What a panel shows at the third value of these series, a minute each."""
    (panel,) = (each for each in PANELS if each["title"] == title)
    (expr,) = queries(panel)
    case = {
        "interval": "1m",
        "input_series": [{"series": name, "values": values} for name, values in series.items()],
        "promql_expr_test": [{"expr": expr, "eval_time": "2m", "exp_samples": [{"labels": "{}", "value": value}]}],
    }
    cases = folder / "cases.yaml"
    cases.write_text(json.dumps({"tests": [case]}))  # which is YAML, too
    tested = promtool("test", "rules", cases)
    assert tested.returncode == 0, tested.stdout + tested.stderr


def test_a_broker_that_several_forebays_miss_is_one_broker(tmp_path: Path) -> None:
    up = {f'forebay_broker_up{{instance="{it}", node="{node}"}}': f"{node - 1}x2" for it in "pq" for node in (1, 2)}
    check_shown("Brokers down", up, 1, tmp_path)


@pytest.mark.parametrize(
    ("series", "ready"),
    [
        ({'forebay_ready{job="f", instance="p"}': "1 1 1", 'up{job="f", instance="p"}': "1 1 1"}, 1),
        (
            {
                'forebay_ready{job="f", instance="p"}': "1 1 1",
                'up{job="f", instance="p"}': "1 1 1",
                'forebay_ready{job="f", instance="dead"}': "1 stale",
                'up{job="f", instance="dead"}': "1 0 0",
                'forebay_ready{job="f", instance="replaced"}': "1 stale",
                'up{job="f", instance="replaced"}': "1 stale",
                'up{job="other", instance="p"}': "1 1 1",
            },
            0.5,
        ),
        ({'forebay_ready{job="f", instance="dead"}': "1 stale", 'up{job="f", instance="dead"}': "1 0 0"}, 0),
        ({'forebay_ready{instance="pushed"}': "1 1 1", 'forebay_ready{instance="starts"}': "0 0 0"}, 0.5),
    ],
    ids=["all", "one is dead", "none", "pushed"],
)
def test_an_instance_that_is_dead_is_not_ready(series: dict[str, str], ready: float, tmp_path: Path) -> None:
    check_shown("Instances ready", series, ready, tmp_path)


@pytest.fixture(scope="module")
def prometheus() -> Iterator[Prometheus]:
    """It scrapes a Forebay of two workers that has passed records on, and knows the alerting rules."""
    with (
        MockCluster(3) as brokers,
        ForebayProcess(brokers.bootstrap, (1, 2, 3), options=("--workers", "2")) as forebay,
        Prometheus([forebay.admin_port], [RULES]) as prometheus,
    ):
        brokers.create_topic("t", 3)
        producer = Producer({"bootstrap.servers": forebay.bootstrap})

        def measured() -> bool:
            producer.produce("t", b"value")
            assert producer.flush(SECONDS) == 0
            return bool(prometheus.query("rate(forebay_records_total[1m]) > 0"))

        wait_until(measured, SECONDS, "records are seen")
        yield prometheus


@pytest.mark.parametrize("panel", [each for each in PANELS if each["type"] != "row"], ids=lambda panel: panel["title"])
def test_every_panel_has_something_to_show(prometheus: Prometheus, panel: dict[str, Any]) -> None:
    for expr in queries(panel):
        if panel["title"] in NOT_HERE:
            assert not prometheus.query(expr), expr
        else:  # on a busy machine a scrape may fail, and the next one bring it back
            wait_until(lambda: prometheus.query(expr), SECONDS, expr)  # noqa: B023


def test_a_wrong_query_is_found_out(prometheus: Prometheus) -> None:
    with pytest.raises(Refused):
        prometheus.query("sum by (forebay_ready")


def test_no_alert_where_all_is_well(prometheus: Prometheus) -> None:
    wait_until(lambda: prometheus.alerts() == {}, SECONDS, "no alert is left")


GONE = {("ForebayDown", "pending"), ("ForebayAbsent", "pending")}


def test_an_instance_that_is_gone_is_missed() -> None:
    with Prometheus([free_port()], [RULES]) as prometheus:
        wait_until(lambda: set(prometheus.alerts().items()) == GONE, SECONDS, "both alerts")
