"""What may be done with a client's records, and the name of the reason.

In: who sends (client id), where to (topic), and what one batch is (producer id, attributes, records with and
without a key). Out: a Reason, or None where nothing speaks against touching the batch. Nothing is raised.

The order of the questions; the first answer counts:
1. the request: a transactional id, the client id; 2. the topic: internal, excluded; 3. the header: transactional,
idempotent, attributes that are not understood. Until here the bytes stay untouched. Only then is the batch opened:
4. it cannot be opened, and stays untouched after all, or 5. null_key (may move), keyed (stays), mixed (is split).
"""

from __future__ import annotations

import enum
import fnmatch
import re
from collections.abc import Iterable
from typing import Final

INTERNAL_TOPICS: Final = frozenset(
    {"__consumer_offsets", "__transaction_state", "__share_group_state", "__cluster_metadata"}
)
"""Never touched, whatever a broker's metadata says of them."""

# Names come from the wire: as many as a client likes, each of up to 32,767 bytes. 4,096 cover what one proxy serves;
# Kafka allows topics 249 characters, so longer texts are freaks, matched anew each time. At most about 1 MiB together.
MEMO_ENTRIES: Final = 4096
MEMO_TEXT: Final = 255

# https://kafka.apache.org/documentation/#recordbatch: bits 0-2 codec, 3 timestamp type, 4 transactional, 5 control,
# 6 delete horizon. A producer sets the first and the fifth; the others are for brokers, which refuse them from clients.
CODEC_MASK: Final = 0x07
HIGHEST_CODEC: Final = 4
TRANSACTIONAL: Final = 0x10


@enum.unique
class Reason(enum.Enum):
    """Why a batch is treated as it is. The values stand in metrics and in the journal: they never change."""

    # untouched
    TRANSACTIONAL = "transactional"
    IDEMPOTENT = "idempotent"
    TOPIC_EXCLUDED = "topic_excluded"
    CLIENT_EXCLUDED = "client_excluded"
    INTERNAL_TOPIC = "internal_topic"
    UNKNOWN_ATTRIBUTES = "unknown_attributes"
    NO_METADATA = "no_metadata"
    # touched
    NULL_KEY = "null_key"
    KEYED = "keyed"
    MIXED = "mixed"
    # neither: a message set without messages
    EMPTY = "empty"
    # cannot be opened here: left to the broker, which says CORRUPT_MESSAGE, INVALID_RECORD, or nothing at all
    CORRUPT = "corrupt"
    INVALID = "invalid"
    TOO_LARGE = "too_large"


class _Patterns:
    """Glob patterns as in a shell (* ? [a-z] [!a-z]), case-sensitive; exclude wins over include."""

    def __init__(self, include: Iterable[str], exclude: Iterable[str]) -> None:
        self._include = tuple(re.compile(fnmatch.translate(pattern)) for pattern in include)
        self._exclude = tuple(re.compile(fnmatch.translate(pattern)) for pattern in exclude)
        self._memo: dict[str, bool] = {}

    def admit(self, text: str) -> bool:
        known = self._memo.get(text)
        if known is not None:
            return known
        answer = any(p.match(text) for p in self._include) and not any(p.match(text) for p in self._exclude)
        if len(text) <= MEMO_TEXT:
            if len(self._memo) >= MEMO_ENTRIES:
                self._memo.clear()
            self._memo[text] = answer
        return answer


class Eligibility:
    """Which topics and clients may be touched at all. None: may be touched."""

    def __init__(
        self,
        topics_include: Iterable[str],
        topics_exclude: Iterable[str],
        client_ids_include: Iterable[str],
        client_ids_exclude: Iterable[str],
    ) -> None:
        self._topics = _Patterns(topics_include, topics_exclude)
        self._client_ids = _Patterns(client_ids_include, client_ids_exclude)

    def client(self, client_id: str | None) -> Reason | None:
        """A client without an id is matched as the empty text."""
        return None if self._client_ids.admit(client_id or "") else Reason.CLIENT_EXCLUDED

    def topic(self, name: str, internal: bool) -> Reason | None:
        """`internal` as the broker's metadata has it."""
        if internal or name in INTERNAL_TOPICS:
            return Reason.INTERNAL_TOPIC
        return None if self._topics.admit(name) else Reason.TOPIC_EXCLUDED


def header_reason(producer_id: int, attributes: int, transactional_id: str | None = None) -> Reason | None:
    """What the batch's header, and the transactional id of its request, say against touching it."""
    if transactional_id is not None or attributes & TRANSACTIONAL:
        return Reason.TRANSACTIONAL
    if producer_id >= 0:
        return Reason.IDEMPOTENT
    if attributes & ~CODEC_MASK or attributes & CODEC_MASK > HIGHEST_CODEC:
        return Reason.UNKNOWN_ATTRIBUTES
    return None


def key_reason(null_keys: int, keyed: int) -> Reason:
    """What the records of a batch that may be touched say. A batch holds at least one record."""
    if null_keys <= 0 and keyed <= 0:
        return Reason.INVALID
    if keyed <= 0:
        return Reason.NULL_KEY
    return Reason.KEYED if null_keys <= 0 else Reason.MIXED
