"""The Helm chart's sidecar: valid where Kubernetes has what injects it, refused elsewhere, and the settings fit a pod.

What the API server makes of pods by it: tests/deploy/test_injection.py.
"""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest

from tests.deploy.chart import NAME, NAMESPACE, NEWEST, OF_OPERATORS, OLDEST, Rendered, helm_template
from tests.deploy.files import forebay_config, kubeconform, sidecar

LEAST: dict[str, Any] = {"mode": "sidecar", "bootstrapServers": ["kafka.kafka.svc:9092"]}
ALL: dict[str, Any] = {
    **LEAST,
    "port": 19092,
    "sidecar": {"selector": {"matchExpressions": [{"key": "team", "operator": "Exists"}]}},
    "settings": {"topics.include": ["orders"], "shutdown.timeout.ms": 45000, "journal.dir": "/var/lib/forebay"},
    "journalVolume": {"emptyDir": {"sizeLimit": "2Gi"}},
    "files": [{"secret": {"name": "orders"}}],
    "extraEnv": [{"name": "TOKEN", "valueFrom": {"secretKeyRef": {"name": "collector", "key": "token"}}}],
    "image": {"repository": "example.org/forebay", "tag": "1.2", "pullSecrets": [{"name": "pull"}]},
    "podMonitor": {"enabled": True},
    "prometheusRule": {"enabled": True},
}


@pytest.fixture(scope="module", params=[LEAST, ALL], ids=["least", "all"])
def chart(request: pytest.FixtureRequest) -> Rendered:
    return Rendered(request.param, NEWEST)


def test_it_is_valid(chart: Rendered, tmp_path: Path) -> None:
    path = tmp_path / "chart.yaml"
    path.write_text(chart.of_kubernetes)
    answer = kubeconform(path, NEWEST)
    assert answer.returncode == 0, answer.stdout + answer.stderr
    assert "Valid: 3, Invalid: 0, Errors: 0, Skipped: 0" in answer.stdout


def test_it_is_all_that_there_is(chart: Rendered) -> None:
    assert chart.objects.keys() - OF_OPERATORS == {
        "ConfigMap",
        "MutatingAdmissionPolicy",
        "MutatingAdmissionPolicyBinding",
    }


def test_older_kubernetes_is_refused_in_words() -> None:
    """Up to 1.35 no API server has such policies unless it is told to."""
    for version in (OLDEST, "1.35.9"):
        answer = helm_template(LEAST, version)
        assert answer.returncode != 0
        assert "Kubernetes 1.36 or newer; deploy/kubernetes/sidecar.yaml" in answer.stderr
    assert helm_template(LEAST, "1.36.0").returncode == 0


def test_pods_of_other_namespaces_and_other_pods_are_left_alone(chart: Rendered) -> None:
    constraints = chart.objects["MutatingAdmissionPolicy"]["spec"]["matchConstraints"]
    assert constraints["namespaceSelector"] == {"matchLabels": {"kubernetes.io/metadata.name": NAMESPACE}}
    own = chart.values.get("sidecar", {"selector": {"matchLabels": {"forebay": "sidecar"}}})
    assert constraints["objectSelector"] == own["selector"]
    (rule,) = constraints["resourceRules"]
    assert (rule["operations"], rule["resources"]) == (["CREATE"], ["pods"])
    if "PodMonitor" in chart.objects:
        assert chart.objects["PodMonitor"]["spec"]["selector"] == constraints["objectSelector"]


def test_two_releases_do_not_meet() -> None:
    """Policies are of the whole cluster, releases of a namespace."""
    policy, binding = (Rendered(LEAST, NEWEST).objects[f"MutatingAdmissionPolicy{kind}"] for kind in ("", "Binding"))
    assert policy["metadata"]["name"] == binding["spec"]["policyName"] == f"{NAME}.{NAMESPACE}"


def test_settings_are_those_of_a_sidecar(tmp_path: Path) -> None:
    by_hand = tomllib.loads(sidecar("ConfigMap")["data"]["forebay.toml"])
    text = Rendered(LEAST, NEWEST).settings
    settings = tomllib.loads(text)
    assert settings["listen"] == by_hand["listen"]
    assert settings["shutdown.timeout.ms"] == by_hand["shutdown.timeout.ms"]
    assert "advertised.host" not in settings
    config = tmp_path / "forebay.toml"
    config.write_text(text)
    answer = forebay_config("--config", str(config))
    assert answer.returncode == 0, answer.stderr


def test_what_is_about_pods_of_its_own_changes_nothing() -> None:
    ignored: dict[str, Any] = {
        "brokers": {"ids": [7]},
        "protocol": "SASL_SSL",
        "advertisedHost": "kafka.example.org",
        "replicas": 5,
        "service": {"type": "LoadBalancer"},
        "autoscaling": {"enabled": True},
        "podDisruptionBudget": {"maxUnavailable": 2},
        "networkPolicy": {"enabled": False},
        "leaveSeconds": 9,
        "podAnnotations": {"a": "b"},
        "podLabels": {"a": "b"},
        "nodeSelector": {"a": "b"},
        "tolerations": [{"operator": "Exists"}],
        "affinity": {"podAffinity": {}},
        "topologySpread": False,
        "priorityClassName": "high",
    }
    assert Rendered({**LEAST, **ignored}, NEWEST).objects == Rendered(LEAST, NEWEST).objects


def test_an_unknown_mode_is_refused() -> None:
    answer = helm_template({**LEAST, "mode": "daemonset"})
    assert answer.returncode != 0
    assert "mode" in answer.stderr
