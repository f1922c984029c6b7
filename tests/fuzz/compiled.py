"""Whether the compiled codecs do to the same bytes what the pure ones do, error messages included.

    python -m tests.fuzz.compiled --python FOLDER [--count 20000] [--seed 1]

FOLDER is what `make build/compiled/.done` makes. Each target that reaches a compiled module is fed the same inputs by
two processes, one of them with FOLDER first on its path; their outcomes are compared one by one.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Final

from forebay_codecs import produce_request, records
from forebay_codecs.errors import Malformed
from forebay_codecs.record_batch import BadBatch, open_batch, read_header, split_by_key
from tests.fuzz.batches import LIMIT
from tests.fuzz.registry import targets
from tests.kit.paths import ROOT

HEADER_FIELDS: Final = (
    *("start", "end", "crc", "attributes", "last_offset_delta"),
    *("base_timestamp", "max_timestamp", "producer_id", "record_count"),
)


def _batch(data: bytes) -> object:
    header = read_header(data, 0, len(data))
    if header is None:
        return None
    batch = open_batch(data, header, LIMIT)
    shifted = records.renumber(batch.section, 0, len(batch.section), 70, -5)
    [middle] = records.starts(batch.section, 0, len(batch.section), [batch.record_count // 2])
    half = records.take(batch.section, middle, len(batch.section), 5)
    read = [getattr(header, name) for name in HEADER_FIELDS]
    return read, batch, split_by_key(batch), shifted, half


READS: Final[dict[str, Callable[[bytes], object]]] = {"batch": _batch, "produce_request": produce_request.parse}


def outcome(name: str, data: bytes) -> str:
    try:
        return repr(READS[name](data))
    except (Malformed, BadBatch) as error:
        return f"{type(error).__name__}: {error} {getattr(error, 'code', '')}"


def say(name: str, seed: int, count: int) -> None:
    """A line an input: what it is and what came of it, as hashes that are the same in every process."""
    rng = Random(seed)
    target = targets()[name]
    for _ in range(count):
        data = target.mutate(rng.choice(target.seeds), rng)
        came = outcome(name, data)
        print(
            hashlib.sha256(data).hexdigest()[:16], hashlib.sha256(came.encode()).hexdigest()[:16], came[:100].encode()
        )


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.compiled", description=__doc__)
    parser.add_argument("--python", type=Path, help="the folder with the compiled codecs")
    parser.add_argument("--count", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--say", default="", help="be one of the two processes, for this target")
    options = parser.parse_args()
    if options.say:
        say(options.say, options.seed, options.count)
        return 0
    different = 0
    for name in READS:
        both = []
        for path in ("", str(options.python)):
            command = [sys.executable, "-m", "tests.fuzz.compiled", "--say", name]
            command += ["--seed", str(options.seed), "--count", str(options.count)]
            both.append(
                subprocess.Popen(command, cwd=ROOT, env=os.environ | {"PYTHONPATH": path}, stdout=subprocess.PIPE)
            )
        pure, compiled = (process.communicate()[0].decode().splitlines() for process in both)
        assert len(pure) == len(compiled) == options.count
        unlike = [(one, other) for one, other in zip(pure, compiled, strict=True) if one != other]
        different += len(unlike)
        print(f"{name}: {options.count:,} inputs, {len(unlike)} with another outcome compiled")
        for one, other in unlike[:5]:
            print(f"  pure     {one}\n  compiled {other}")
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main())
