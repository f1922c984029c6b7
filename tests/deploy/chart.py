"""The Helm chart as `helm template` renders it."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from tests.deploy.files import DEPLOY
from tests.deploy.schemas import KUBERNETES_VERSIONS
from tests.kit.paths import program

CHART = DEPLOY / "helm" / "forebay"
RELEASE, NAMESPACE = "old", "edge"
NAME = f"{RELEASE}-forebay"
OLDEST, NEWEST = KUBERNETES_VERSIONS
OF_OPERATORS = frozenset({"PodMonitor", "PrometheusRule"})
"""Kinds that are Prometheus's operator's own, so that Kubernetes has no schema of them."""


def helm_template(
    values: Mapping[str, Any], kubernetes: str = OLDEST, namespace: str = NAMESPACE, chart: Path = CHART
) -> subprocess.CompletedProcess[str]:
    """`values` beside the chart's own, given as a values file, as users give them."""
    command = [str(program("helm")), "template", RELEASE, str(chart), f"--namespace={namespace}", "--values=-"]
    # A helm that was not built by its own Makefile takes itself for one of Kubernetes 1.20.
    command.append(f"--kube-version={kubernetes}")
    return subprocess.run(command, input=json.dumps(values), capture_output=True, text=True, timeout=60)


class Rendered:
    """What `values` come to, by kind: the chart makes one object of each at most."""

    def __init__(
        self, values: Mapping[str, Any], kubernetes: str = OLDEST, namespace: str = NAMESPACE, chart: Path = CHART
    ) -> None:
        self.values = values
        answer = helm_template(values, kubernetes, namespace, chart)
        assert answer.returncode == 0, answer.stderr
        self.text = answer.stdout
        objects = [each for each in yaml.safe_load_all(answer.stdout) if each is not None]
        self.objects: dict[str, Any] = {each["kind"]: each for each in objects}
        assert len(self.objects) == len(objects)

    @property
    def of_kubernetes(self) -> str:
        """All that Kubernetes has a schema of."""
        return "---\n".join(yaml.safe_dump(each) for kind, each in self.objects.items() if kind not in OF_OPERATORS)

    @property
    def settings(self) -> str:
        """The settings file."""
        return str(self.objects["ConfigMap"]["data"]["forebay.toml"])

    @property
    def pod(self) -> Any:
        return self.objects["Deployment"]["spec"]["template"]

    @property
    def container(self) -> Any:
        (container,) = self.pod["spec"]["containers"]
        return container

    def ports(self) -> Iterator[dict[str, int]]:
        """Name → port, wherever the chart says what clients connect to: at the pod, the Service, the NetworkPolicy."""
        container = {each["name"]: each["containerPort"] for each in self.container["ports"] if each["name"] != "admin"}
        yield container
        service = self.objects["Service"]["spec"]["ports"]
        assert all(each["targetPort"] == each["name"] for each in service)
        yield {each["name"]: each["port"] for each in service}
        clients, *_ = self.objects["NetworkPolicy"]["spec"]["ingress"]
        yield {each["port"]: container[each["port"]] for each in clients["ports"]}
