"""Brokers whose every move the test decides. They live in the test's own event loop.

    async with FakeCluster({"ponds": [0, 1]}) as cluster:            # topic → leader of each partition
        broker = cluster[0]
        broker.holds(PRODUCE)                                        # answered when the test says so
        asked = await broker.receives(PRODUCE)
        asked.answer(error_code=NOT_LEADER_OR_FOLLOWER)

What is not held is answered at once: ApiVersions, Metadata, FindCoordinator and DescribeCluster from what the cluster
is, Produce with the next offset of each partition (and `log` grows), every other API by an echo of its body. A broker
closes the connection on a request that it cannot read, and on acks=0 records that it refuses. It
can also close its connections, stop reading them, and leave its port.

With `cluster.idempotent` brokers give out producer ids, and know batches by their sequences, as Kafka does.

With `cluster.exchange` a connection is to log in first, as in Kafka: before that a broker takes ApiVersions, once, and
SaslHandshake, and closes it on anything else. With `cluster.users` as well, by PLAIN in SaslAuthenticate: whoever has
the right password may see and write topics that begin with the user's name, and no others. Or by OAUTHBEARER, with a
token for such a user that has not expired and is not signed with BAD_SIGNATURE.
"""

from __future__ import annotations

import asyncio
import json
import ssl
import time
from base64 import urlsafe_b64decode
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import TracebackType
from typing import Self, cast

from crc32c import crc32c

from forebay_codecs import error_codes, produce_request, produce_response, sasl
from forebay_codecs.api_keys import (
    API_VERSIONS,
    DESCRIBE_CLUSTER,
    FIND_COORDINATOR,
    INIT_PRODUCER_ID,
    METADATA,
    PRODUCE,
    SASL_AUTHENTICATE,
    SASL_HANDSHAKE,
)
from forebay_codecs.apis import APIS
from forebay_codecs.errors import Malformed
from forebay_codecs.header import peek
from forebay_codecs.metadata import NO_TOPIC_ID, Broker, Partition, Topic
from forebay_codecs.metadata_request import MetadataRequest, parse_metadata_request
from forebay_codecs.metadata_response import assemble, encode_cluster, encode_topic
from forebay_codecs.primitives import Reader, Writer
from forebay_codecs.produce_request import ProduceRequest
from forebay_codecs.produce_response import PartitionResponse
from forebay_proxy.config.settings import HostPort
from tests.codecs.record_oracle import Record, decode_batch
from tests.kit.event_loop import soon
from tests.kit.ports import LOOPBACK, free_port
from tests.kit.producer_states import Numbers, ProducerStates, numbers_of
from tests.kit.wire import framed

SASL_AUTHENTICATION_FAILED = 58
BAD_SIGNATURE = "bad"
BEARER = b"n,,\x01auth=Bearer "


def _bearer(token: bytes) -> tuple[str, float]:
    """(user, seconds that are left) of a first message of OAUTHBEARER; no user where the token is not good."""
    head, claims, signature = token.split(b"\x01")[1].removeprefix(b"auth=Bearer ").split(b".")
    told = json.loads(urlsafe_b64decode(claims + b"=="))
    left_s = told["exp"] - time.time()
    return told["sub"] if head and signature.decode() != BAD_SIGNATURE and left_s > 0 else "", left_s


def _authenticated(version: int, error_code: int, auth_bytes: bytes, session_ms: int) -> bytes:
    flexible = version >= 2
    writer = Writer()
    if flexible:
        writer.tags()
    writer.i16(error_code)
    writer.nullable_string("Invalid username or password" if error_code else None, flexible)
    if flexible:
        writer.uvarint(len(auth_bytes) + 1)
    else:
        writer.i32(len(auth_bytes))
    writer.raw(auth_bytes)
    if version:
        writer.i64(session_ms)
    if flexible:
        writer.tags()
    return writer.getvalue()


class Asked:
    """A request that a broker received."""

    def __init__(self, connection: BrokerConnection, frame: bytes) -> None:
        self.connection = connection
        self.frame = frame
        self.api_key, self.version, self.correlation_id = peek(frame, 0)
        reader = Reader(frame, 8)
        self.client_id = reader.client_id()
        self.body = frame[reader.pos :]

    @property
    def produce(self) -> ProduceRequest:
        return produce_request.parse(self.frame)

    @property
    def metadata(self) -> MetadataRequest:
        return parse_metadata_request(self.frame)

    def records(self, topic: str, partition: int) -> list[Record]:
        """The records for a partition, in one batch that others find sound."""
        ((start, end),) = [
            (start, end)
            for name, partitions in self.produce.topics
            for index, start, end in partitions
            if (name, index) == (topic, partition)
        ]
        return decode_batch(self.frame[start:end]).records

    @property
    def user(self) -> str:
        """Whose connection it came on; empty: nobody's."""
        return self.connection.user

    @property
    def numbers(self) -> Numbers:
        """Producer id, epoch and sequence of its only batch."""
        ((_, ((_, start, end),)),) = self.produce.topics
        return numbers_of(self.frame[start:end])

    @property
    def partitions(self) -> list[tuple[str, int]]:
        return [(name, index) for name, partitions in self.produce.topics for index, _, _ in partitions]

    @property
    def values(self) -> list[str]:
        """The values of all records, partition by partition."""
        return [
            (record.value or b"").decode() for topic, index in self.partitions for record in self.records(topic, index)
        ]

    def answer(
        self,
        error_code: int = error_codes.NONE,
        base_offset: int = -1,
        record_errors: list[tuple[int, str | None]] | None = None,
        throttle_time_ms: int = 0,
        errors: Mapping[int, int] | None = None,
    ) -> None:
        """What the API answers; `error_code` (or `errors` by partition) instead of appending Produce's records."""
        broker = self.connection.broker
        if self.api_key != PRODUCE:
            self.respond(broker.cluster.body(self))
        elif self.version >= produce_request.RECORD_BATCHES_FROM:
            topics = [
                (
                    name,
                    [
                        self._appended(name, index, start, end)
                        if not (error := (errors or {}).get(index, error_code) or self._refused(name, index))
                        else PartitionResponse(index, error, base_offset, -1, -1, record_errors or [], "refused")
                        for index, start, end in partitions
                    ],
                )
                for name, partitions in self.produce.topics
            ]
            if self.produce.acks == 0:
                self.connection.go_on()
                if any(partition.error_code for _, partitions in topics for partition in partitions):
                    self.close()  # it has no other way to say so
            else:
                whole = produce_response.encode(self.version, self.correlation_id, topics, throttle_time_ms)
                self.connection.write(whole)
        elif self.body[:2] != b"\0\0":  # acks
            self.respond(bytes(4))

    def _refused(self, name: str, index: int) -> int:
        return self.connection.broker.refuses(name, index, self.user)

    def carry_out(self) -> None:
        """Append Produce's records, and say nothing of it."""
        for name, partitions in self.produce.topics:
            for index, start, end in partitions:
                self._appended(name, index, start, end)

    def _appended(self, name: str, index: int, start: int, end: int) -> PartitionResponse:
        records = self.frame[start:end]
        if int.from_bytes(records[17:21], "big") != crc32c(records[21:]):
            return PartitionResponse(index, error_codes.CORRUPT_MESSAGE, -1, -1, -1, [], "checksum")
        cluster = self.connection.broker.cluster
        log = cluster.log.setdefault((name, index), [])
        offset = len(log)
        if cluster.idempotent:
            states, numbers = cluster.states.setdefault((name, index), ProducerStates()), numbers_of(records)
            known = states.check(numbers)
            if known.error_code or known.offset >= 0:
                newest = int.from_bytes(records[35:43], "big", signed=True)
                return PartitionResponse(index, known.error_code, known.offset, newest, 0, [], None)
            states.appended(numbers, offset)
        log += decode_batch(records).records
        return PartitionResponse(index, error_codes.NONE, offset, -1, 0, [], None)

    def respond(self, body: bytes) -> None:
        self.connection.write(framed(self.correlation_id.to_bytes(4, "big", signed=True) + body))

    def close(self) -> None:
        """Close its connection instead of an answer."""
        self.connection.close()


Exchange = Sequence[tuple[bytes, bytes | None]]
"""The tokens of a login: the client's, and what the broker answers; None: nothing."""


class _Login:
    """One connection's: what its broker takes next."""

    def __init__(self, exchange: Exchange | None) -> None:
        self._left = list(exchange or ())
        self._takes: set[int] | None = None if exchange is None else {API_VERSIONS, SASL_HANDSHAKE}
        """API keys; None: all, it is logged in. Nothing: tokens."""

    @property
    def by_tokens(self) -> bool:
        return self._takes == set()

    def takes(self, frame: bytes) -> bool:
        if self._takes is None:
            return True
        key, version, _ = peek(frame, 0)
        if key not in self._takes:
            return False
        if key == API_VERSIONS:
            self._takes = {SASL_HANDSHAKE}
        elif key == SASL_HANDSHAKE:
            self._takes = {SASL_AUTHENTICATE} if version else set()
        else:
            self._takes = None
        return True

    def done(self) -> None:
        """By a token."""
        self._takes = None

    def answer(self, token: bytes) -> bytes | None:
        """Raises Malformed where it is not the next one."""
        if token != self._left[0][0]:
            raise Malformed("a wrong token")
        _, answer = self._left.pop(0)
        if not self._left:
            self._takes = None
        return answer


class BrokerConnection(asyncio.Protocol):
    def __init__(self, broker: FakeBroker) -> None:
        self.broker = broker
        self.user = ""
        self.sessions = 0
        """Logins so far."""
        self._login = _Login(broker.cluster.exchange)
        self._buffer = bytearray()
        self._transport: asyncio.Transport | None = None
        self._busy = False
        """A request is not answered yet; `one_at_a_time`, none behind it is looked at."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self.broker.connections.append(self)
        self.broker.accepted += 1
        if not self.broker.reading:  # uvloop forgets a pause inside of this callback
            asyncio.get_running_loop().call_soon(self.read, False)

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        self._take()

    def _take(self) -> None:
        while len(self._buffer) >= 4 and not (self._busy and self.broker.cluster.one_at_a_time):
            end = 4 + int.from_bytes(self._buffer[:4], "big")
            if len(self._buffer) < end:
                return
            frame = bytes(self._buffer[4:end])
            del self._buffer[:end]
            if self._login.by_tokens:
                self._token(frame)
            elif self._login.takes(frame):
                self._busy = True
                self.broker.asked(Asked(self, frame))
            else:
                self.close()
                return

    def _token(self, token: bytes) -> None:
        users = self.broker.cluster.users
        try:
            if users and token.startswith(BEARER):
                self.user, _ = _bearer(token)
                answer = b"" if self.user else b'{"status":"invalid_token"}'
                if self.user:
                    self._login.done()
            elif users:
                user, password = sasl.parse_plain(token)
                if users.get(user) != password:
                    raise Malformed("a wrong password")
                self.user, answer = user, b""
                self._login.done()
            else:
                answer = self._login.answer(token)  # type: ignore[assignment]
        except Malformed:
            self.close()
            return
        if answer is not None:
            self.write(framed(answer))

    def connection_lost(self, exc: Exception | None) -> None:
        self.broker.connections.remove(self)

    def write(self, data: bytes) -> None:
        assert self._transport is not None
        self._transport.write(data)
        self.go_on()

    def go_on(self) -> None:
        """A request has been dealt with."""
        if self._busy:
            self._busy = False
            asyncio.get_running_loop().call_soon(self._take)

    def read(self, reading: bool) -> None:
        assert self._transport is not None
        if reading:
            self._transport.resume_reading()
        else:
            self._transport.pause_reading()

    @property
    def unsent(self) -> int:
        assert self._transport is not None
        return self._transport.get_write_buffer_size()

    def close(self) -> None:
        assert self._transport is not None
        self._transport.close()


def _nothing(asked: Asked) -> bool:
    return False


class FakeBroker:
    def __init__(self, cluster: FakeCluster, node_id: int) -> None:
        self.cluster = cluster
        self.node_id = node_id
        self.port = free_port()
        self.connections: list[BrokerConnection] = []
        self.accepted = 0
        """Connections so far."""
        self.reading = True
        self.seen: list[Asked] = []
        self._held: set[int] = set()
        self._wanted: Callable[[Asked], bool] = _nothing
        self._inbox: deque[Asked] = deque()
        self._news = asyncio.Event()
        self._server: asyncio.Server | None = None

    async def up(self) -> None:
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(
            lambda: BrokerConnection(self), LOOPBACK, self.port, ssl=self.cluster.tls
        )

    def down(self) -> None:
        """Leave the port and close every connection."""
        if self._server is not None:
            self._server.close()
            self._server = None
        self.close_connections()

    def close_connections(self) -> None:
        for connection in list(self.connections):
            connection.close()

    def holds(self, *api_keys: int) -> None:
        """Answer these only when told."""
        self._held.update(api_keys)

    def holds_produce(self, wanted: Callable[[Asked], bool]) -> None:
        """Answer only when told the Produce requests that are `wanted`."""
        self._wanted = wanted

    def releases(self, *api_keys: int) -> None:
        """Answer these at once again. What was received meanwhile stays unanswered."""
        self._held.difference_update(api_keys)
        self._wanted = _nothing

    def reads(self, reading: bool) -> None:
        self.reading = reading
        for connection in self.connections:
            connection.read(reading)

    def asked(self, asked: Asked) -> None:
        self.seen.append(asked)
        self._inbox.append(asked)
        self._news.set()
        if asked.api_key not in self._held and not (asked.api_key == PRODUCE and self._wanted(asked)):
            try:
                asked.answer()
            except Malformed:
                asked.close()

    async def receives(self, api_key: int) -> Asked:
        """The next request of that API, of all that came since the last one asked for."""
        return await soon(self._next(api_key))

    async def _next(self, api_key: int) -> Asked:
        while True:
            for asked in self._inbox:
                if asked.api_key == api_key:
                    self._inbox.remove(asked)
                    return asked
            self._news.clear()
            await self._news.wait()

    def refuses(self, topic: str, partition: int, user: str) -> int:
        if not self.cluster.may(user, topic):
            return error_codes.TOPIC_AUTHORIZATION_FAILED
        leaders = self.cluster.topics.get(topic, [])
        if partition >= len(leaders):
            return error_codes.UNKNOWN_TOPIC_OR_PARTITION
        return error_codes.NONE if leaders[partition] == self.node_id else error_codes.NOT_LEADER_OR_FOLLOWER

    def forget(self) -> None:
        """Whatever has come so far is not what the test is about."""
        self.seen.clear()
        self._inbox.clear()

    def requests(self, api_key: int) -> list[Asked]:
        return [asked for asked in self.seen if asked.api_key == api_key]


class FakeCluster:
    """`topics`: the leader of each partition; −1: it has none. All brokers answer the same Metadata."""

    def __init__(self, topics: Mapping[str, Iterable[int]], nodes: int = 1) -> None:
        self.topics = {name: list(leaders) for name, leaders in topics.items()}
        self.internal: set[str] = set()
        self.controller_id = 0
        self.topic_errors: dict[str, int] = {}
        self.topic_ids: dict[str, bytes] = {}
        self.replicas: dict[str, Sequence[tuple[int, ...]]] = {}
        """Of each partition, of the topics that have any."""
        self.racks: dict[int, str] = {}
        """Of the brokers that are in one."""
        self.one_at_a_time = False
        """As in Kafka: the next request of a connection is looked at when the one before is answered."""
        self.epochs: dict[str, int] = {}
        """Of all leaders of a topic."""
        self.creates = False
        """Unknown topics are created where a Metadata request allows it, each with one partition on node 0."""
        self.may_create = True
        """False: a Metadata request that allows it is told TOPIC_AUTHORIZATION_FAILED of unknown topics."""
        self.log: dict[tuple[str, int], list[Record]] = {}
        self.produce_versions = (3, 8)
        self.idempotent = False
        self.hidden: set[int] = set()
        """API keys that brokers do not know."""
        self.ranges: dict[int, tuple[int, int]] = {}
        """Versions of APIs, where they are not what they usually are."""
        self.versions_throttle_ms = 0
        """The throttle time in answers to ApiVersions."""
        self.id_errors: list[int] = []
        """What the next requests for a producer id are answered with."""
        self.states: dict[tuple[str, int], ProducerStates] = {}
        self._last_id = 99
        self.metadata_versions = (0, 4)
        self.tls: ssl.SSLContext | None = None
        self.exchange: Exchange | None = None
        self.users: dict[str, str] = {}
        """Their passwords."""
        self.session_ms = 0
        """For how long a login is taken, as brokers tell; they do not end it."""
        self.brokers = {node_id: FakeBroker(self, node_id) for node_id in range(nodes)}

    def __getitem__(self, node_id: int) -> FakeBroker:
        return self.brokers[node_id]

    @property
    def bootstrap(self) -> tuple[HostPort, ...]:
        return tuple(HostPort(LOOPBACK, broker.port) for broker in self.brokers.values())

    def may(self, user: str, topic: str) -> bool:
        return not self.users or topic.startswith(user)

    def values(self, topic: str, partition: int) -> list[str]:
        return [(record.value or b"").decode() for record in self.log.get((topic, partition), ())]

    async def join(self, node_id: int) -> FakeBroker:
        broker = self.brokers[node_id] = FakeBroker(self, node_id)
        await broker.up()
        return broker

    async def __aenter__(self) -> Self:
        for broker in self.brokers.values():
            await broker.up()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        for broker in self.brokers.values():
            broker.down()

    # What brokers say

    def body(self, asked: Asked) -> bytes:
        makers = {
            API_VERSIONS: self._api_versions,
            METADATA: self._metadata,
            FIND_COORDINATOR: self._find_coordinator,
            DESCRIBE_CLUSTER: self._describe_cluster,
        }
        if self.idempotent:
            makers[INIT_PRODUCER_ID] = self._init_producer_id
        maker = makers.get(asked.api_key)
        if maker is None and self.exchange is not None:
            login = self._logged_in if self.users else _login_taken
            maker = {SASL_HANDSHAKE: _handshake_taken, SASL_AUTHENTICATE: login}.get(asked.api_key)
        return maker(asked) if maker is not None else asked.body

    def _logged_in(self, asked: Asked) -> bytes:
        token = sasl.asked_bytes(asked.frame, asked.version)
        if token.startswith(BEARER):
            user, left_s = _bearer(token)
            right, session_ms = user in self.users, max(1, int(1000 * left_s))
            if not right:  # it is told why first, and refused by the answer to that
                return _authenticated(asked.version, error_codes.NONE, b'{"status":"invalid_token"}', 0)
        elif token == sasl.BEARER_REFUSED:
            right, user, session_ms = False, "", 0
        else:
            user, password = sasl.parse_plain(token)
            right, session_ms = self.users.get(user) == password, self.session_ms
        if right:
            asked.connection.user = user
            asked.connection.sessions += 1
            return _authenticated(asked.version, error_codes.NONE, b"", session_ms)
        asyncio.get_running_loop().call_soon(asked.close)
        return _authenticated(asked.version, SASL_AUTHENTICATION_FAILED, b"", 0)

    def _api_versions(self, asked: Asked) -> bytes:
        ranges = dict.fromkeys(APIS, (0, 2)) | {
            PRODUCE: self.produce_versions,
            METADATA: self.metadata_versions,
            API_VERSIONS: (0, 3),
            **self.ranges,
        }
        ranges[99] = (0, 1)  # of a newer Kafka
        ranges = {key: range_ for key, range_ in ranges.items() if key not in self.hidden}
        flexible = asked.version >= 3
        writer = Writer()
        writer.i16(error_codes.NONE)
        writer.array(len(ranges), flexible)
        for key, (lowest, highest) in ranges.items():
            writer.i16(key)
            writer.i16(lowest)
            writer.i16(highest)
            if flexible:
                writer.tags()
        if asked.version >= 1:
            writer.i32(self.versions_throttle_ms)
        if flexible:
            writer.tags()
        return writer.getvalue()

    def _metadata(self, asked: Asked) -> bytes:
        request = parse_metadata_request(asked.frame)
        names = [name for name in self.topics if self.may(asked.user, name)] if request.all_topics else request.names
        if request.ids:
            names = []  # KafkaApis.handleTopicMetadataRequest looks at ids alone then
        ids = {topic_id: name for name, topic_id in self.topic_ids.items()}
        if self.creates and request.allow_auto_topic_creation:
            for name in request.names:
                if name not in self.topics:
                    self.topics[name] = [0]
        refused = error_codes.TOPIC_AUTHORIZATION_FAILED
        may_create = self.may_create or not request.allow_auto_topic_creation
        topics = [
            self._topic(name)
            if self.may(asked.user, name) and (name in self.topics or may_create)
            else Topic(refused, name, NO_TOPIC_ID, False, ())
            for name in names
        ]
        topics += [
            self._topic(ids[topic_id])
            if topic_id in ids
            else Topic(error_codes.UNKNOWN_TOPIC_ID, None, topic_id, False, ())
            for topic_id in request.ids
        ]
        brokers = {
            broker.node_id: Broker(LOOPBACK, broker.port, self.racks.get(broker.node_id))
            for broker in self.brokers.values()
        }
        cluster = encode_cluster(asked.version, brokers, "fake", self.controller_id)
        sections = [encode_topic(topic, asked.version, brokers) for topic in topics]
        return assemble(asked.version, asked.correlation_id, cluster, sections)[8:]

    def _topic(self, name: str) -> Topic:
        leaders = self.topics.get(name, [])
        replicas = self.replicas.get(name, [()] * len(leaders))
        missing = error_codes.NONE if leaders else error_codes.UNKNOWN_TOPIC_OR_PARTITION
        partitions = tuple(
            Partition(
                error_codes.NONE if leader >= 0 else error_codes.LEADER_NOT_AVAILABLE,
                index,
                leader,
                self.epochs.get(name, 0),
                replicas[index],
                replicas[index],
            )
            for index, leader in enumerate(leaders)
        )
        topic_id = self.topic_ids.get(name, NO_TOPIC_ID)
        return Topic(self.topic_errors.get(name, missing), name, topic_id, name in self.internal, partitions)

    def _find_coordinator(self, asked: Asked) -> bytes:
        """v0."""
        writer = Writer()
        writer.i16(error_codes.NONE)
        writer.i32(0)
        writer.string(LOOPBACK, False)
        writer.i32(self.brokers[0].port)
        return writer.getvalue()

    def _init_producer_id(self, asked: Asked) -> bytes:
        """v2 and newer, behind the tagged fields of its header."""
        error_code = self.id_errors.pop(0) if self.id_errors else error_codes.NONE
        self._last_id += not error_code
        writer = Writer()
        writer.tags()
        writer.i32(0)
        writer.i16(error_code)
        writer.i64(-1 if error_code else self._last_id)
        writer.i16(-1 if error_code else 0)
        writer.tags()
        return writer.getvalue()

    def _describe_cluster(self, asked: Asked) -> bytes:
        """v0, behind the tagged fields of its header."""
        writer = Writer()
        writer.tags()
        writer.i32(0)
        writer.i16(error_codes.NONE)
        writer.nullable_string(None, True)
        writer.string("fake", True)
        writer.i32(0)
        writer.array(len(self.brokers), True)
        for broker in self.brokers.values():
            writer.i32(broker.node_id)
            writer.string(LOOPBACK, True)
            writer.i32(broker.port)
            writer.nullable_string(None, True)
            writer.tags()
        writer.i32(0)
        writer.tags()
        return writer.getvalue()


def _handshake_taken(asked: Asked) -> bytes:
    """No error, and one mechanism."""
    return b"\0\0" + b"\0\0\0\1" + b"\0\5PLAIN"


def _login_taken(asked: Asked) -> bytes:
    """No error, no message, no bytes, for ever."""
    if asked.version == 2:
        return b"\0" + b"\0\0" + b"\0" + b"\1" + bytes(8) + b"\0"
    return b"\0\0" + b"\xff\xff" + bytes(4) + (bytes(8) if asked.version else b"")
