"""The last look before a Produce request is written: all in it is of the one for whom its connection is logged in.

In: whom the broker takes the connection for, and what is about to be written on it. Out: nothing, where all is well.
Otherwise a record would be written under somebody else's name, past the broker's rules for both: the process ends at
once, and nothing of the request has left. Whoever looks after the process starts another one; clients are told nothing
and send again what was not acknowledged. It is a fault of ours each time, so there is nothing to be saved first.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from typing import Final

from forebay_policies.accumulator import PartitionQueue
from forebay_policies.producer_batch import ProducerBatch
from forebay_proxy.logs import get_logger

EXIT_CODE: Final = 70
"""EX_SOFTWARE of sysexits.h."""


def ensure_one_principal(principal: str, drained: Iterable[tuple[PartitionQueue, ProducerBatch]]) -> None:
    """Ends the process unless every batch holds records of `principal`: the connection's, as Connector gave it."""
    for queue, batch in drained:
        if batch.lane.principal != principal:
            end_process(queue.topic.name, queue.index)


def end_process(topic: str, partition: int) -> None:
    """Does not return. Names are not told: a log is read by more people than may know who writes where."""
    get_logger().critical(
        "records were about to be sent as somebody else: this is a bug in Forebay, which ends here",
        topic=topic,
        partition=partition,
    )
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(EXIT_CODE)
