"""The folders of Parquet that rows go to: the day of their time, and their topic as a folder may be named.

In: rows of one kind, or of several. Out: the same rows with the column DAY, and with such names in place of topics, one
topic after the other, so that whoever writes each to a file of its own has few of them open. Here and not in Spark: a
name is made for each topic of a block, not for each row, and rows of 90 columns are not copied once more.
"""

from __future__ import annotations

import re
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from forebay_pipeline.journal.schema import DAY
from forebay_pipeline.journal.span import DAY_US

_TOPIC: Final = "topic"
_TIME: Final = "time_us"
_OF_A_TOPIC: Final = "A-Za-z0-9._-"
"""The characters that a topic's name may have, of which there are 249 at most."""
_NAME: Final = re.compile(f"[{_OF_A_TOPIC}]{{0,249}}")
_NO_NAME: Final = re.compile(f"[^{_OF_A_TOPIC}]")
_ODD: Final = 60
"""Characters. In a folder's name, which has 255 at most, each may take three."""


def in_folders(rows: pa.Table) -> pa.Table:
    """Rows without a time have no day, those of a kind without topics no topic. Raises KeyError without `time_us`."""
    rows = rows.append_column(DAY, _days(rows[_TIME]))
    if _TOPIC not in rows.schema.names:
        return rows
    topics = rows[_TOPIC].combine_chunks().dictionary_encode()
    names = pa.array([topic and _folder_of(topic) for topic in topics.dictionary.to_pylist()], pa.string())
    named = rows.set_column(rows.schema.get_field_index(_TOPIC), _TOPIC, names.take(topics.indices))
    return named.take(pc.array_sort_indices(topics.indices))  # stable


def _days(times: pa.ChunkedArray) -> pa.ChunkedArray:
    """Dates in UTC as text, of microseconds since 1970."""
    days = pc.divide(times, DAY_US).cast(pa.int32()).combine_chunks().dictionary_encode()
    return days.dictionary.cast(pa.date32()).cast(pa.string()).take(days.indices)


def _folder_of(topic: str) -> str:
    """The topic; of a name that none can have, and perhaps no folder, since clients may send to any, how it begins."""
    return topic if _NAME.fullmatch(topic) else _NO_NAME.sub("?", topic)[:_ODD] + "?"
