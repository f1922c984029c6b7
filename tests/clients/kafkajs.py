"""KafkaJS, on machines that have Node.js: its scenarios directly and through Forebay, line by line the same.

npm fetches KafkaJS into a folder that is gone afterwards.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from pathlib import Path

from tests.kit.forebay import ForebayProcess
from tests.kit.kafka import KafkaCluster
from tests.kit.ports import LOOPBACK

KAFKAJS = "kafkajs@2.2.4"
PROGRAM = Path(__file__).resolve().parent / "node" / "kafkajs.js"
SECONDS = 300
RUNS = 3
"""What fails, or differs, in each of them counts: a topic that was just made, say, is not known yet to brokers that are
busy, directly as well."""
SETTINGS = {"log.retention.ms": "-1"}
"""Records of 1970 stay."""


def compare(kafka: str) -> int:
    """0 if all outcomes are the same, or there is no Node.js."""
    if any(shutil.which(tool) is None for tool in ("node", "npm")):
        print("KafkaJS: no Node.js on this machine")
        return 0
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="kafkajs-")))
        install = ["npm", "install", "--silent", "--no-audit", "--no-fund", KAFKAJS]
        subprocess.run(install, cwd=folder, check=True, stdout=subprocess.DEVNULL)
        shutil.copy(PROGRAM, folder)
        cluster = stack.enter_context(KafkaCluster(kafka, settings=SETTINGS))
        forebay = stack.enter_context(ForebayProcess(cluster.bootstrap, cluster.nodes))
        brokers = {f"{LOOPBACK}:{port}": node for node, port in cluster.ports.items()}
        listeners = {f"{LOOPBACK}:{forebay.node_port(node)}": node for node in forebay.nodes}
        wrong: set[str] = set()
        for run in range(RUNS):
            with ThreadPoolExecutor(2) as pool:
                directly, through = pool.map(
                    partial(_outcomes, folder),
                    (cluster.bootstrap, forebay.bootstrap),
                    (f"direct.{run}.", f"through.{run}."),
                    (brokers, listeners),
                )
            found = {name for name in directly if not _same(directly[name], through.get(name))}
            wrong = wrong & found if run else found
            if not wrong:
                break
    print(f"KafkaJS: {len(directly)} scenarios, {len(wrong)} fail or differ")
    for name in wrong:
        print(f"{name}\n  directly        {directly[name]}\n  through Forebay {through.get(name)}")
    return int(bool(wrong or not directly))


def _same(directly: str, through: str | None) -> bool:
    return directly == through and not directly.startswith('"failed')


def _outcomes(folder: Path, bootstrap: str, prefix: str, nodes: Mapping[str, int]) -> dict[str, str]:
    """Scenario → outcome, brokers by their ids."""
    command = ["node", PROGRAM.name, bootstrap, prefix]
    said = subprocess.run(command, cwd=folder, stdout=subprocess.PIPE, text=True, timeout=SECONDS, check=True).stdout
    plain = re.sub(r"127\.0\.0\.1:\d+", lambda found: f"broker-{nodes.get(found[0], found[0])}", said)
    return dict(line.split(" ", 1) for line in plain.splitlines())
