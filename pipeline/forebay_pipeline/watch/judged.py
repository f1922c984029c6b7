"""Whether a minute was ever judged, now or by an earlier run with the same checkpoint: which a file there tells."""

from __future__ import annotations

from collections.abc import Sequence

from forebay_pipeline.storage import Storage
from forebay_pipeline.watch.verdict import Minute


class Judged:
    """An output of a watcher; without a `checkpoint` of this run only."""

    def __init__(self, storage: Storage, checkpoint: str | None) -> None:
        self._storage = storage
        self._place = f"{checkpoint.rstrip('/')}/_judged" if checkpoint is not None else None
        self.any = self._place is not None and storage.read(self._place) is not None

    def tell(self, _batch: int, _minutes: Sequence[Minute]) -> None:
        """Minutes, in which nothing need have been sent. Raises CannotRun if the file cannot be written."""
        if self.any:
            return
        if self._place is not None:
            self._storage.write(self._place, b"")
        self.any = True
