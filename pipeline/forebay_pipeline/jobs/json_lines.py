"""Results of a stream as JSON lines, a file for each batch that has any: `minutes-000000012.jsonl`.

A batch that is done again after a crash has the same number and the same results, and its file replaces the one that
may be there. So each result is in the folder exactly once. Neither another checkpoint nor an
older copy of theirs replaces them.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from forebay_pipeline.journal.output_owner import check_lines_owner, own, query_id
from forebay_pipeline.storage import Storage


class JsonLines:
    """Writes files that begin with `name` to `folder`, wherever Spark reaches it. Raises CannotRun, also at once if
    the query with that `checkpoint` did not write those that are there."""

    def __init__(self, storage: Storage, folder: str, name: str, checkpoint: str) -> None:
        check_lines_owner(storage, folder, name, checkpoint)
        self._storage = storage
        self._folder = folder
        self._name = name
        self._checkpoint = checkpoint

    def tell(self, batch: int, results: Sequence[object]) -> None:
        """Write the results of a batch."""
        if not results:
            return
        query = query_id(self._storage, self._checkpoint)
        assert query is not None  # Spark writes it before the first batch
        own(self._storage, self._folder, query, self._name, batch)
        lines = b"".join(msgspec.json.encode(result) + b"\n" for result in results)
        self._storage.write(f"{self._folder.rstrip('/')}/{self._name}-{batch:09}.jsonl", lines)
