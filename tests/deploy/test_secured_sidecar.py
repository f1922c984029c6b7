"""The sidecar with Secrets: the plain one and what it says it adds, with files that Forebay can read and takes."""

from __future__ import annotations

import copy
import re
import stat
import tomllib
from pathlib import Path
from typing import Any

from tests.deploy.files import forebay_config, sidecar
from tests.kit.sasl import PASSWORD, login_line

MANIFEST = "secured-sidecar.yaml"
FS_GROUP_ADDS = stat.S_IRUSR | stat.S_IRGRP
"""What the kubelet adds to the mode of a Secret's files in a pod with an fsGroup, whose group they get."""

DEPLOYMENT = sidecar("Deployment", MANIFEST)
POD = DEPLOYMENT["spec"]["template"]["spec"]
CONFIG = sidecar("ConfigMap", MANIFEST)["data"]["forebay.toml"]
(VOLUME,) = (each for each in POD["volumes"] if "projected" in each)
(FOREBAY,) = POD["initContainers"]
(MOUNT,) = (each for each in FOREBAY["volumeMounts"] if each["name"] == VOLUME["name"])
PATHS = [item["path"] for source in VOLUME["projected"]["sources"] for item in source["secret"]["items"]]


def test_the_rest_is_as_in_the_plain_one() -> None:
    rest: Any = copy.deepcopy(DEPLOYMENT)
    pod = rest["spec"]["template"]["spec"]
    del pod["securityContext"]["fsGroup"]
    pod["volumes"].remove(VOLUME)
    pod["initContainers"][0]["volumeMounts"].remove(MOUNT)
    assert rest == sidecar("Deployment")
    plain = tomllib.loads(sidecar("ConfigMap")["data"]["forebay.toml"])
    added = {"security.protocol", "ssl.truststore.location", "sasl.mechanism", "sasl.jaas.config"}
    settings = tomllib.loads(CONFIG)
    assert set(settings) - set(plain) == added
    assert {name for name in plain if settings[name] != plain[name]} == {"bootstrap.servers"}


def test_secrets_are_mounted_for_forebay_alone_and_followed_when_they_change() -> None:
    assert MOUNT["readOnly"]
    assert "subPath" not in MOUNT
    (producer,) = POD["containers"]
    assert "volumeMounts" not in producer


def test_settings_refer_to_files_that_are_mounted() -> None:
    folder = MOUNT["mountPath"]
    referred = re.findall(rf"\$\{{dir:{folder}:([^}}]+)\}}", CONFIG) + re.findall(rf'"{folder}/([^"]+)"', CONFIG)
    assert sorted(referred) == sorted(PATHS)


def test_forebays_user_can_read_them() -> None:
    """They are root's, and of the fsGroup, which every container's user is in."""
    assert FOREBAY["securityContext"]["runAsUser"] != 0
    assert POD["securityContext"]["fsGroup"] > 0
    assert (VOLUME["projected"]["defaultMode"] | FS_GROUP_ADDS) & stat.S_IRGRP


def mounted(folder: Path, default_mode: int) -> Path:
    """The settings, referring to a folder as the kubelet makes it: links to a link to a folder that it swaps."""
    version = folder / "..2026_11_23_08_00_00.1"
    version.mkdir()
    (folder / "..data").symlink_to(version.name)
    for name in PATHS:
        path = version / name
        path.write_text(login_line("SCRAM-SHA-512") if name == "sasl.jaas.config" else "a certificate")
        path.chmod(default_mode | FS_GROUP_ADDS)
        (folder / name).symlink_to(f"..data/{name}")
    config = folder / "forebay.toml"
    config.write_text(CONFIG.replace(MOUNT["mountPath"], str(folder)))
    config.chmod(0o644)  # a ConfigMap's
    return config


def test_forebay_takes_them_as_they_are_mounted(tmp_path: Path) -> None:
    answer = forebay_config("--config", str(mounted(tmp_path, VOLUME["projected"]["defaultMode"])))
    assert answer.returncode == 0, answer.stderr
    assert PASSWORD not in answer.stdout


def test_it_refuses_them_as_they_are_by_default(tmp_path: Path) -> None:
    answer = forebay_config("--config", str(mounted(tmp_path, 0o644)))
    assert answer.returncode == 2
    assert "sasl.jaas.config can be read by others" in answer.stderr
