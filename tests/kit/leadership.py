"""Whether a broker takes records for partitions, asked of itself: ListOffsets v1, which only a leader answers.

A broker tells of a leader in Metadata a moment before it is one, and then refuses records, without a word those that
are sent with acks=0.
"""

from __future__ import annotations

import struct
from collections.abc import Collection

from tests.kit.one_request import ask

_LATEST = -1
_OF_PARTITION = struct.Struct(">ihqq")
"""Partition, error code, timestamp, offset."""


def leads(port: int, topic: str, partitions: Collection[int]) -> bool:
    """Of the broker behind `port`: it leads every one of `partitions`. False while it does not answer."""
    request = struct.pack(">hhih8s", 2, 1, 1, 8, b"the-test") + struct.pack(">ii", -1, 1)
    request += struct.pack(f">h{len(topic)}si", len(topic), topic.encode(), len(partitions))
    request += b"".join(struct.pack(">iq", partition, _LATEST) for partition in partitions)
    try:
        response = ask(port, request)
    except OSError:
        return False
    answered = list(_OF_PARTITION.iter_unpack(response[4 + 4 + 2 + len(topic) + 4 :]))
    return {partition for partition, error, *_ in answered if error == 0} == set(partitions)
