"""The files of deploy/, read; `forebay config` asked what it thinks of settings, and kubeconform of manifests."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import yaml

from tests.deploy.schemas import KUBERNETES
from tests.kit.paths import ROOT, program

DEPLOY = ROOT / "deploy"


def documents(path: Path) -> list[Any]:
    return list(yaml.safe_load_all(path.read_text()))


def sidecar(kind: str, manifest: str = "sidecar.yaml") -> Any:
    """The one object of `kind` in a sidecar manifest."""
    (found,) = (each for each in documents(DEPLOY / "kubernetes" / manifest) if each["kind"] == kind)
    return found


def forebay_config(*arguments: str) -> subprocess.CompletedProcess[str]:
    """`forebay config ARGUMENTS`, without any FOREBAY_* variable of this environment."""
    environ = {name: value for name, value in os.environ.items() if not name.startswith("FOREBAY_")}
    command = [sys.executable, "-m", "forebay_proxy.commands.cli", "config", *arguments]
    return subprocess.run(command, env=environ, capture_output=True, text=True, timeout=60)


def assert_accepted(*arguments: str) -> None:
    answer = forebay_config(*arguments)
    assert answer.returncode == 0, answer.stderr


def kubeconform(path: Path, version: str) -> subprocess.CompletedProcess[str]:
    schemas = f"{KUBERNETES}/{{{{.NormalizedKubernetesVersion}}}}/{{{{.ResourceKind}}}}{{{{.KindSuffix}}}}.json"
    command = [str(program("kubeconform")), "-strict", "-summary", "-kubernetes-version", version]
    return subprocess.run(
        [*command, "-schema-location", schemas, str(path)], capture_output=True, text=True, timeout=60
    )
