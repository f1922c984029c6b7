"""The Helm chart's sidecar, put into pods by a real API server, which evaluates CEL, patches, and validates the pods.

No kubelet runs them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.deploy.chart import NAMESPACE, NEWEST, Rendered
from tests.deploy.test_helm_sidecar import ALL, LEAST
from tests.kit.kubernetes import ApiServer

# The API server is built the first time, which takes minutes.
pytestmark = [pytest.mark.whole, pytest.mark.timeout(3600)]

SECURED = "secured"
OTHER = "other"
LABELS = {"forebay": "sidecar"}
PRODUCER = {"name": "orders", "image": "orders:1.0", "ports": [{"name": "admin", "containerPort": 9091}]}


def pod(namespace: str = NAMESPACE, labels: dict[str, str] = LABELS, **spec: Any) -> dict[str, Any]:
    metadata = {"name": "orders", "namespace": namespace, "labels": labels}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"containers": [PRODUCER], **spec}}


@pytest.fixture(scope="module")
def kubernetes() -> Iterator[ApiServer]:
    """With the chart in one namespace, and all that it can in another."""
    with ApiServer() as kubernetes:
        for name in (NAMESPACE, SECURED, OTHER):
            kubernetes.make({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
        for values, namespace in ((LEAST, NAMESPACE), ({**ALL, "podMonitor": {}, "prometheusRule": {}}, SECURED)):
            chart = Rendered(values, NEWEST, namespace)
            for each in chart.objects.values():
                if each["kind"] == "ConfigMap":
                    each["metadata"]["namespace"] = namespace
                assert kubernetes.make(each) == []
        kubernetes.wait_until_it_mutates(pod(), lambda made: "initContainers" in made["spec"])
        kubernetes.wait_until_it_mutates(pod(SECURED, {"team": "a"}), lambda made: "initContainers" in made["spec"])
        yield kubernetes


def test_it_is_the_sidecar_of_the_chart(kubernetes: ApiServer) -> None:
    made = kubernetes.dry_run(pod())["spec"]
    (forebay,) = made["initContainers"]
    container = Rendered({**LEAST, "mode": "gateway"}, NEWEST).container
    of_gateways = ("lifecycle", "ports", "securityContext", "startupProbe")
    assert within({name: value for name, value in container.items() if name not in of_gateways}, forebay)
    assert within(container["securityContext"], forebay["securityContext"])
    assert forebay["securityContext"]["runAsNonRoot"] is True
    assert forebay["restartPolicy"] == "Always"
    assert forebay["startupProbe"]["httpGet"]["path"] == "/readyz"
    assert [port["containerPort"] for port in forebay["ports"]] == [9091]
    volume, run = made["volumes"]
    assert run["emptyDir"]
    assert volume["configMap"]["name"] == Rendered(LEAST, NEWEST).objects["ConfigMap"]["metadata"]["name"]


def within(wanted: Any, found: Any) -> bool:
    """Whether it is all there, defaults aside."""
    if isinstance(wanted, dict):
        return isinstance(found, dict) and all(name in found and within(wanted[name], found[name]) for name in wanted)
    if isinstance(wanted, list):
        return len(wanted) == len(found) and all(map(within, wanted, found))
    return bool(wanted == found)


def test_the_producer_is_left_as_it_is(kubernetes: ApiServer) -> None:
    before = kubernetes.dry_run(pod(labels={}))["spec"]
    after = kubernetes.dry_run(pod())["spec"]
    assert after["containers"] == before["containers"]
    changed = {name for name in before.keys() | after.keys() if before.get(name) != after.get(name)}
    assert changed == {"initContainers", "volumes", "terminationGracePeriodSeconds"}


def test_it_comes_before_what_else_starts_first_and_beside_what_else_is_mounted(kubernetes: ApiServer) -> None:
    made = kubernetes.dry_run(
        pod(initContainers=[{"name": "migrate", "image": "m"}], volumes=[{"name": "scratch", "emptyDir": {}}])
    )["spec"]
    assert [each["name"] for each in made["initContainers"]] == ["forebay", "migrate"]
    assert [each["name"] for each in made["volumes"]] == ["scratch", "forebay", "forebay-run"]


def test_the_producer_keeps_its_time_to_end(kubernetes: ApiServer) -> None:
    """30 s to drain and 10 to spare come on top, of the 30 s that Kubernetes gives, too."""
    for asked, given in ((pod(), 30), (pod(terminationGracePeriodSeconds=60), 60)):
        assert kubernetes.dry_run(asked)["spec"]["terminationGracePeriodSeconds"] == given + 40


def test_who_has_one_gets_no_second(kubernetes: ApiServer) -> None:
    own = {"name": "forebay", "image": "f:1", "restartPolicy": "Always"}
    made = kubernetes.dry_run(pod(initContainers=[own]))["spec"]
    assert [each["image"] for each in made["initContainers"]] == ["f:1"]


def test_others_are_left_alone(kubernetes: ApiServer) -> None:
    for other in (pod(labels={}), pod(labels={"forebay": "none"}), pod(OTHER)):
        assert "initContainers" not in kubernetes.dry_run(other)["spec"]


def test_secrets_can_be_read(kubernetes: ApiServer) -> None:
    made = kubernetes.dry_run(pod(SECURED, {"team": "a"}))["spec"]
    assert made["securityContext"]["fsGroup"] == 10001
    assert [each["name"] for each in made["volumes"]] == ["forebay", "forebay-run", "forebay-files", "forebay-journal"]
    assert made["volumes"][2]["projected"]["defaultMode"] == 0o400
    mounted = [each["mountPath"] for each in made["initContainers"][0]["volumeMounts"]]
    assert mounted == ["/etc/forebay", "/run/forebay", "/etc/kafka", "/var/lib/forebay"]
    assert made["volumes"][3]["emptyDir"] == {"sizeLimit": "2Gi"}
    assert made["imagePullSecrets"] == [{"name": "pull"}]
    assert made["terminationGracePeriodSeconds"] == 30 + 55
    own = kubernetes.dry_run(
        pod(SECURED, {"team": "a"}, securityContext={"fsGroup": 5}, imagePullSecrets=[{"name": "own"}])
    )["spec"]
    assert own["securityContext"]["fsGroup"] == 5
    assert own["imagePullSecrets"] == [{"name": "own"}, {"name": "pull"}]
