"""Compile the hot modules with mypyc into wheels.

A wheel carries each module of HOT twice: as Python and, where a C compiler is at hand, as its compiled twin, which
Python prefers on import; the code of a folder's twins is in one library. Editable installs stay pure, since a compiled
module in the tree would shadow later edits.

FOREBAY_NO_COMPILE=1             do not compile
FOREBAY_COMPILE=codecs,policies  compile of these folders only
FOREBAY_OPT_LEVEL=1              what the C compiler is given after -O; 3 without it, and 1 takes two thirds of its time
FOREBAY_REQUIRE_COMPILE=1        a failed compile is an error, not a pure-Python wheel
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

ROOT = Path(__file__).resolve().parent
FOLDERS = ("codecs", "policies", "proxy")
# What every request passes through: from the bytes of a frame to its response. Not what applications extend or what
# raises (an `except … as error` twice in one function gives `error` the first one's type), nor what is seldom called.
HOT = (
    "codecs/forebay_codecs/apis.py",
    "codecs/forebay_codecs/content_crc.py",
    "codecs/forebay_codecs/frame.py",
    "codecs/forebay_codecs/header.py",
    "codecs/forebay_codecs/message_set.py",
    "codecs/forebay_codecs/metadata.py",
    "codecs/forebay_codecs/metadata_request.py",
    "codecs/forebay_codecs/metadata_response.py",
    "codecs/forebay_codecs/primitives.py",
    "codecs/forebay_codecs/produce_request.py",
    "codecs/forebay_codecs/produce_response.py",
    "codecs/forebay_codecs/record_batch.py",
    "codecs/forebay_codecs/record_batch_builder.py",
    "codecs/forebay_codecs/records.py",
    "policies/forebay_policies/accumulator.py",
    "policies/forebay_policies/buffer_pool.py",
    "policies/forebay_policies/builtin_partitioners.py",
    "policies/forebay_policies/departed_brokers.py",
    "policies/forebay_policies/described_topic.py",
    "policies/forebay_policies/dispatch_groups.py",
    "policies/forebay_policies/divided_requests.py",
    "policies/forebay_policies/eligibility.py",
    "policies/forebay_policies/expected_wait.py",
    "policies/forebay_policies/idempotence.py",
    "policies/forebay_policies/inbound_memory.py",
    "policies/forebay_policies/leader_handover.py",
    "policies/forebay_policies/loop_turns.py",
    "policies/forebay_policies/memory_shares.py",
    "policies/forebay_policies/metadata_cache.py",
    "policies/forebay_policies/partitioner.py",
    "policies/forebay_policies/producer_batch.py",
    "policies/forebay_policies/rack_partitioner.py",
    "policies/forebay_policies/requests_in_flight.py",
    "policies/forebay_policies/response_memory.py",
    "policies/forebay_policies/retry.py",
    "policies/forebay_policies/shadow_queues.py",
    "policies/forebay_policies/shadow_topic.py",
    "policies/forebay_policies/throttling.py",
    "policies/forebay_policies/topic_changes.py",
    "policies/forebay_policies/uniform_partitioner.py",
    "proxy/forebay_proxy/brokers/cluster.py",
    "proxy/forebay_proxy/brokers/upstream_connection.py",
    "proxy/forebay_proxy/brokers/upstream_pool.py",
    "proxy/forebay_proxy/clients/answered_client.py",
    "proxy/forebay_proxy/clients/bounded_reads.py",
    "proxy/forebay_proxy/clients/client_connection.py",
    "proxy/forebay_proxy/clients/client_identity.py",
    "proxy/forebay_proxy/clients/client_upstream.py",
    "proxy/forebay_proxy/clients/connection_context.py",
    "proxy/forebay_proxy/clients/connection_life.py",
    "proxy/forebay_proxy/clients/connection_state.py",
    "proxy/forebay_proxy/clients/divided_upstream.py",
    "proxy/forebay_proxy/clients/gathered_requests.py",
    "proxy/forebay_proxy/clients/gateway.py",
    "proxy/forebay_proxy/clients/login_watch.py",
    "proxy/forebay_proxy/clients/opaque_connection.py",
    "proxy/forebay_proxy/clients/request_router.py",
    "proxy/forebay_proxy/clients/response_orderer.py",
    "proxy/forebay_proxy/clients/response_writer.py",
    "proxy/forebay_proxy/clients/tls_connection.py",
    "proxy/forebay_proxy/clients/tls_session.py",
    "proxy/forebay_proxy/clients/tls_transport.py",
    "proxy/forebay_proxy/journal/recorder.py",
    "proxy/forebay_proxy/metrics/instruments.py",
    "proxy/forebay_proxy/metrics/topic_counts.py",
    "proxy/forebay_proxy/metrics/traffic.py",
    "proxy/forebay_proxy/produce/client.py",
    "proxy/forebay_proxy/produce/completion.py",
    "proxy/forebay_proxy/produce/deadlines.py",
    "proxy/forebay_proxy/produce/delivery.py",
    "proxy/forebay_proxy/produce/dispatcher.py",
    "proxy/forebay_proxy/produce/handler.py",
    "proxy/forebay_proxy/produce/idempotent_sample.py",
    "proxy/forebay_proxy/produce/ledger.py",
    "proxy/forebay_proxy/produce/classifier.py",
    "proxy/forebay_proxy/produce/rack_traffic.py",
    "proxy/forebay_proxy/produce/sender.py",
    "proxy/forebay_proxy/produce/topic_partitioners.py",
)


@contextmanager
def working_directory(path: Path) -> Iterator[None]:
    before = Path.cwd()
    os.chdir(path)
    os.environ["MYPYPATH"] = os.pathsep.join(FOLDERS)  # module names follow from the source roots
    try:
        yield
    finally:
        os.chdir(before)


def compile_hot(target: Path, scratch: Path) -> list[Path]:
    """Compile HOT under `target`, keeping package paths, and return the extension modules."""
    from mypyc.build import mypycify
    from setuptools import Distribution

    chosen = os.environ.get("FOREBAY_COMPILE") or ",".join(FOLDERS)
    if unknown := set(chosen.split(",")).difference(FOLDERS):
        raise ValueError(f"FOREBAY_COMPILE={chosen}: {', '.join(sorted(unknown))} is none of {', '.join(FOLDERS)}")
    modules = {folder: [name for name in HOT if name.startswith(f"{folder}/")] for folder in chosen.split(",")}
    with working_directory(ROOT):
        extensions = mypycify(
            # Not the project's strict configuration: types are the linter's matter, and this environment need not
            # have what the modules import.
            [
                "--config-file=",
                "--ignore-missing-imports",
                "--explicit-package-bases",
                f"--cache-dir={scratch}",
                *chain.from_iterable(modules.values()),
            ],
            opt_level=os.environ.get("FOREBAY_OPT_LEVEL", "3"),
            debug_level="0",
            # One library a folder: the compiler reads mypyc's own C once for each of them, not once for each module,
            # which is more than half of its work; and the folders are compiled side by side.
            separate=[(names, f"forebay_{folder}") for folder, names in modules.items()],
            target_dir=str(scratch),
        )
        command = Distribution({"name": "forebay", "ext_modules": extensions}).get_command_obj("build_ext")
        command.build_lib = str(target)
        command.build_temp = str(scratch)
        command.parallel = os.cpu_count()
        command.ensure_finalized()
        command.run()
        return [Path(output) for output in command.get_outputs()]


class CompileHook(BuildHookInterface[Any]):
    """Put compiled twins beside the hot modules; fall back to pure Python without a C compiler."""

    @property
    def wanted(self) -> bool:
        return os.environ.get("FOREBAY_NO_COMPILE") != "1"

    def dependencies(self) -> list[str]:
        return ["mypy[mypyc]>=2.4,<2.5", "msgspec>=0.19", "setuptools>=77"] if self.wanted else []

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if version == "editable" or not self.wanted:
            return
        # Kept on self: hatchling reads the files after this method has returned.
        self._made = tempfile.TemporaryDirectory()
        target = Path(self._made.name, "modules")
        try:
            built = compile_hot(target, Path(self._made.name, "scratch"))
        except (Exception, SystemExit) as error:  # mypyc leaves with SystemExit where it refuses the source
            if os.environ.get("FOREBAY_REQUIRE_COMPILE") == "1":
                raise
            self.app.display_warning(f"pure-Python wheel, the hot modules are not compiled: {error}")
            return
        build_data["pure_python"] = False
        build_data["infer_tag"] = True
        build_data["force_include"].update({str(path): str(path.relative_to(target)) for path in built})
