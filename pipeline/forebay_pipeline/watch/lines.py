"""Minutes as JSON lines, a file for each batch of them: `minutes-000000012.jsonl`.

A batch that is done again after a crash has the same number and the same minutes, and its file replaces the one that
may be there. So each minute is in the folder exactly once.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from forebay_pipeline.storage import Storage
from forebay_pipeline.watch.verdict import Minute


class JsonLines:
    """Writes to `folder`, wherever Spark reaches it. Raises CannotRun."""

    def __init__(self, storage: Storage, folder: str) -> None:
        self._storage = storage
        self._folder = folder.rstrip("/")

    def tell(self, batch: int, minutes: Sequence[Minute]) -> None:
        """Write the minutes of a batch."""
        if not minutes:
            return
        lines = b"".join(msgspec.json.encode(minute) + b"\n" for minute in minutes)
        self._storage.write(f"{self._folder}/minutes-{batch:09}.jsonl", lines)
