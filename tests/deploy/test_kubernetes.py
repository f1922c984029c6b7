"""The sidecar manifests: valid in the oldest and newest Kubernetes, and the parts of the plain one fit each other."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest

from tests.deploy.files import DEPLOY, kubeconform, sidecar
from tests.deploy.schemas import KUBERNETES_VERSIONS

MANIFEST = DEPLOY / "kubernetes" / "sidecar.yaml"


@pytest.mark.parametrize("manifest", sorted(MANIFEST.parent.glob("*.yaml")), ids=lambda path: path.name)
@pytest.mark.parametrize("version", KUBERNETES_VERSIONS)
def test_the_manifest_is_valid(version: str, manifest: Path) -> None:
    answer = kubeconform(manifest, version)
    assert answer.returncode == 0, answer.stdout + answer.stderr
    assert "Valid: 2, Invalid: 0, Errors: 0, Skipped: 0" in answer.stdout


@pytest.mark.parametrize(
    ("right", "wrong"),
    [("restartPolicy: Always", "restartPolicy: [Always]"), ("readinessProbe:", "readynessProbe:")],
)
def test_a_wrong_manifest_is_found_out(right: str, wrong: str, tmp_path: Path) -> None:
    """The schemas reach as deep as the sidecar's own fields."""
    broken = tmp_path / "sidecar.yaml"
    broken.write_text(MANIFEST.read_text().replace(right, wrong))
    answer = kubeconform(broken, KUBERNETES_VERSIONS[0])
    assert answer.returncode == 1
    assert "Invalid: 1" in answer.stdout


def pod() -> Any:
    return sidecar("Deployment")["spec"]["template"]["spec"]


def forebay() -> Any:
    (container,) = (each for each in pod()["initContainers"] if each["name"] == "forebay")
    return container


def settings() -> dict[str, Any]:
    return tomllib.loads(sidecar("ConfigMap")["data"]["forebay.toml"])


def port(address: str) -> int:
    return int(address.rpartition(":")[2])


def test_forebay_is_a_native_sidecar() -> None:
    assert forebay()["restartPolicy"] == "Always"


def test_the_kubelet_waits_for_longer_than_the_drain() -> None:
    assert pod()["terminationGracePeriodSeconds"] * 1000 > settings()["shutdown.timeout.ms"]


def test_probes_reach_the_admin_endpoint() -> None:
    (admin,) = forebay()["ports"]
    variables = {each["name"]: each["value"] for each in forebay()["env"]}
    assert variables["FOREBAY_ADMIN"] == f"0.0.0.0:{admin['containerPort']}"
    assert variables["FOREBAY_ADMIN_UNPROTECTED"] == "true"
    probes = {kind: forebay()[kind]["httpGet"] for kind in ("startupProbe", "readinessProbe", "livenessProbe")}
    assert {probe["port"] for probe in probes.values()} == {admin["name"]}
    assert {kind: probe["path"] for kind, probe in probes.items()} == {
        "startupProbe": "/readyz",
        "readinessProbe": "/readyz",
        "livenessProbe": "/healthz",
    }


def test_the_configuration_is_mounted_where_forebay_reads_it() -> None:
    (mount,) = forebay()["volumeMounts"]
    (volume,) = pod()["volumes"]
    assert (volume["name"], volume["configMap"]["name"]) == (mount["name"], sidecar("ConfigMap")["metadata"]["name"])
    assert f"{mount['mountPath']}/forebay.toml" in forebay()["args"]


def test_the_producer_meets_forebay() -> None:
    (producer,) = pod()["containers"]
    environment = {each["name"]: each["value"] for each in producer["env"]}
    assert port(environment["KAFKA_BOOTSTRAP_SERVERS"]) == port(settings()["listen"])
