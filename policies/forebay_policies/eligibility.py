"""Which records may be touched, and the name of the reason.

In: who sends (client id), where to (topic), and what one batch is (producer id, attributes, records with and without a
key). Out: a Reason, or None if there is no objection to touching the batch. Raises nothing.

Checked in this order; the first objection counts:
1. the request: transactional id, client id
2. the topic: internal, excluded
3. the batch header: transactional, idempotent, unknown attributes
4. it is only observed: nothing else stands against touching it
Only a batch that passed all of them is opened to be touched:
5. it cannot be opened, and stays untouched after all
6. else it is null_key (may move), keyed (stays on its partition), or mixed (is split)
"""

from __future__ import annotations

import enum
import fnmatch
import re
from collections.abc import Iterable
from typing import Final

from forebay_codecs.record_batch import CODEC_MASK

INTERNAL_TOPICS: Final = frozenset(
    {"__consumer_offsets", "__transaction_state", "__share_group_state", "__cluster_metadata"}
)
"""Never touched, whatever a broker's metadata says about them."""
LONGEST_NAME: Final = 249
"""Of a topic in Kafka. The broker refuses a longer one; asked for in Metadata, many could make a request too large."""

# Names come from the wire: any number of them, of up to 32,767 bytes each. 4,096 cover what one proxy serves. Longer
# texts than topics' names may be are rare and matched anew each time. At most about 1 MiB together.
MEMO_ENTRIES: Final = 4096
MEMO_TEXT: Final = 255

# https://kafka.apache.org/documentation/#recordbatch: bits 0-2 codec, 3 timestamp type, 4 transactional, 5 control,
# 6 delete horizon. Producers set the codec and the transactional bit; brokers refuse the others from clients.
HIGHEST_CODEC: Final = 4
TRANSACTIONAL: Final = 0x10


@enum.unique
class Reason(enum.StrEnum):
    """Why a batch is treated as it is. The values appear in metrics and in the journal, so they never change.

    Strings, because they hash without a call into Python: they are looked up for every batch.
    """

    # untouched
    TRANSACTIONAL = "transactional"
    IDEMPOTENT = "idempotent"
    TOPIC_EXCLUDED = "topic_excluded"
    CLIENT_EXCLUDED = "client_excluded"
    OWN_LOGIN = "own_login"
    INTERNAL_TOPIC = "internal_topic"
    UNKNOWN_ATTRIBUTES = "unknown_attributes"
    NO_METADATA = "no_metadata"
    SETTINGS_CHANGED = "settings_changed"
    OBSERVED = "observed"
    # touched
    NULL_KEY = "null_key"
    KEYED = "keyed"
    MIXED = "mixed"
    # neither: a message set without messages
    EMPTY = "empty"
    # cannot be opened here, or has times before 1970: left to the broker, which answers CORRUPT_MESSAGE or
    # INVALID_RECORD, or accepts it
    CORRUPT = "corrupt"
    INVALID = "invalid"
    TOO_LARGE = "too_large"


class _Patterns:
    """Glob patterns as in a shell (* ? [a-z] [!a-z]), case-sensitive; exclude beats include."""

    def __init__(self, include: Iterable[str], exclude: Iterable[str]) -> None:
        self._include = tuple(re.compile(fnmatch.translate(pattern)) for pattern in include)
        self._exclude = tuple(re.compile(fnmatch.translate(pattern)) for pattern in exclude)
        self._memo: dict[str, bool] = {}

    def admit(self, text: str) -> bool:
        """Whether `text` matches an include pattern and no exclude pattern."""
        known = self._memo.get(text)
        if known is not None:
            return known
        answer = any(p.match(text) for p in self._include) and not any(p.match(text) for p in self._exclude)
        if len(text) <= MEMO_TEXT:
            if len(self._memo) >= MEMO_ENTRIES:
                self._memo.clear()
            self._memo[text] = answer
        return answer


class Observed:
    """What of all that may be touched is only observed, by glob patterns as in a shell.

    All of it with `moves` = False, but for topics of `topics_move`; whatever `moves` is, topics of `topics` and clients
    of `client_ids`.

        moves   topics_move   topics   orders     clicks
        False   orders        –        moves      observed
        True    –             clicks   moves      observed
        False   orders        orders   observed   observed
    """

    def __init__(
        self,
        *,
        moves: bool = True,
        topics_move: Iterable[str] = (),
        topics: Iterable[str] = (),
        client_ids: Iterable[str] = (),
    ) -> None:
        topics, client_ids = tuple(topics), tuple(client_ids)
        self.any: bool = not moves or bool(topics) or bool(client_ids)
        """Something may be: where it is False, nobody need ask."""
        self._unless_moved = _Patterns(() if moves else ("*",), topics_move)
        self._topics = _Patterns(topics, ())
        self._client_ids = _Patterns(client_ids, ())

    def has(self, client_id: str | None, topic: str) -> bool:
        """Whether records of the client (None: without an id) for the topic are."""
        return self._unless_moved.admit(topic) or self._topics.admit(topic) or self._client_ids.admit(client_id or "")


class Eligibility:
    """Which clients and topics may be touched at all, by glob patterns as in a shell; exclude beats include.

    Never changes: other patterns are another one.
    """

    def __init__(
        self,
        topics_include: Iterable[str],
        topics_exclude: Iterable[str],
        client_ids_include: Iterable[str],
        client_ids_exclude: Iterable[str],
        observed: Observed | None = None,
    ) -> None:
        self._topics = _Patterns(topics_include, topics_exclude)
        self._client_ids = _Patterns(client_ids_include, client_ids_exclude)
        self.observed: Observed | None = observed if observed is not None and observed.any else None
        """None: nothing is only observed."""

    def client(self, client_id: str | None) -> Reason | None:
        """CLIENT_EXCLUDED, or None. A client without an id is matched as the empty string."""
        return None if self._client_ids.admit(client_id or "") else Reason.CLIENT_EXCLUDED

    def topic(self, name: str, *, internal: bool) -> Reason | None:
        """INTERNAL_TOPIC, TOPIC_EXCLUDED, or None. `internal` is what the broker's metadata says."""
        if internal or name in INTERNAL_TOPICS:
            return Reason.INTERNAL_TOPIC
        return None if self._topics.admit(name) else Reason.TOPIC_EXCLUDED


def header_reason(producer_id: int, attributes: int) -> Reason | None:
    """The objection, if any, of a batch's header to touching the batch."""
    if attributes & TRANSACTIONAL:
        return Reason.TRANSACTIONAL
    if producer_id >= 0:
        return Reason.IDEMPOTENT
    if attributes & ~CODEC_MASK or attributes & CODEC_MASK > HIGHEST_CODEC:
        return Reason.UNKNOWN_ATTRIBUTES
    return None


def key_reason(null_keys: int, keyed: int) -> Reason:
    """NULL_KEY, KEYED or MIXED, by the numbers of records without and with a key, of which there is one at least."""
    if not keyed:
        return Reason.NULL_KEY
    return Reason.MIXED if null_keys else Reason.KEYED
