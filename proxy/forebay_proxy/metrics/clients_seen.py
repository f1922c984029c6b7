"""Which clients there are and what they speak, so that those too old for Kafka 4 are found before the upgrade.

In: connections that have said whose they are, their requests and records. Out: `snapshot`, which MetricRegistry
carries, and `rows` of merged snapshots, for people and machines. A client is identified by its id, its address
(without the port) and its software. At most MAX_CLIENTS are kept: clients that are gone make room, then those that
Kafka 4 takes, then others; the least recently connected first.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from itertools import chain
from typing import Any, Final

import msgspec

from forebay_codecs import version_support
from forebay_codecs.api_keys import PRODUCE
from forebay_codecs.apis import APIS
from forebay_policies import own_choices
from forebay_policies.own_choices import Choices

SOFTWARE: Final = "forebay-clients"
"""What `forebay clients` calls itself."""
MAX_CLIENTS: Final = 1000
MAX_TEXT: Final = 255
"""Characters kept of what clients say about themselves."""
MAX_PRINCIPALS: Final = 10
"""Users kept per client; more have the same id and address where a gateway stands before them."""
MAX_VERSIONS: Final = 200
"""Pairs of API and version per client. Real clients use about twenty."""

Identity = tuple[str | None, str, str | None, str | None]
"""(client id, address, software name, software version). Software is known from ApiVersions v3 on."""


class SeenClient(msgspec.Struct, array_like=True):
    """One client on one or several workers.

    `connections` are open now; `rate` is in records/s over the last window; `last_seen` in seconds since 1970;
    `requests` counts by api_key << 16 | version; `idempotent_null_keys` are records without a key that pass untouched
    because the client is idempotent, estimated; `batches` counts by eligibility.Reason, `errors` Produce requests that
    Forebay answered with an error. `principals`: as whom it was served once its broker had accepted its login, as Kafka
    writes them, the latest last. `choices`: where its records without a key go while they are only observed. `too_old`:
    Kafka 4 would refuse some of the requests.
    """

    client_id: str | None
    address: str
    software: str | None
    software_version: str | None
    connections: int = 0
    records: int = 0
    rate: float = 0.0
    last_seen: float = 0.0
    requests: dict[int, int] = {}
    idempotent_null_keys: int = 0
    batches: dict[str, int] = {}
    errors: int = 0
    principals: list[str] = []
    choices: Choices = {}
    too_old: bool = False

    @property
    def identity(self) -> Identity:
        """What tells one client from another, the same on every worker."""
        return self.client_id, self.address, self.software, self.software_version

    def request(self, api_key: int, version: int) -> None:
        """Count a request. Pairs beyond MAX_VERSIONS are not counted."""
        key = api_key << 16 | version
        requests = self.requests
        if key in requests:
            requests[key] += 1
        elif len(requests) < MAX_VERSIONS:
            requests[key] = 1
            self.too_old |= not version_support.takes(api_key, version)

    def is_somebody(self, principal: str) -> None:
        """A broker takes it for `principal`."""
        known = self.principals
        if principal in known:
            known.remove(principal)
        known.append(principal)
        del known[:-MAX_PRINCIPALS]

    def add(self, other: SeenClient) -> None:
        """Add the same client's numbers from another worker."""
        for principal in other.principals:
            self.is_somebody(principal)
        self.connections += other.connections
        self.records += other.records
        self.rate += other.rate
        self.idempotent_null_keys += other.idempotent_null_keys
        self.errors += other.errors
        self.too_old |= other.too_old
        for reason, count in other.batches.items():
            self.batches[reason] = self.batches.get(reason, 0) + count
        own_choices.add_all(self.choices, other.choices)
        self.last_seen = max(self.last_seen, other.last_seen)
        for key, count in other.requests.items():
            self.requests[key] = self.requests.get(key, 0) + count


class ClientsSeen:
    """The clients of one process; never more than MAX_CLIENTS, and those with open connections are kept longest.

    `started` and all `now` are seconds of one clock; `time_of_day` is in seconds since 1970.
    """

    def __init__(self, started: float) -> None:
        self._clients: OrderedDict[Identity, SeenClient] = OrderedDict()  # least recently connected first
        self._before: tuple[float, dict[Identity, int]] = (started, {})
        self._turned: tuple[float, dict[Identity, int]] = (started, {})
        self._refused: dict[Identity, set[int]] = {}

    def connected(
        self,
        client_id: str | None,
        address: str,
        software: str | None,
        software_version: str | None,
        time_of_day: float,
    ) -> SeenClient:
        """A client has opened a connection; count its requests on what is returned, and pass that to `gone`.

        Address without the port; the others as the client says, None if it does not.
        """
        identity = _cut(client_id), address, _cut(software), _cut(software_version)
        client = self._clients.get(identity)
        if client is None:
            self._make_room()
            client = self._clients[identity] = SeenClient(*identity, requests={}, batches={}, principals=[], choices={})
        self._clients.move_to_end(identity)
        client.connections += 1
        client.last_seen = time_of_day
        return client

    def gone(self, client: SeenClient, time_of_day: float) -> None:
        """One of its connections was closed."""
        client.connections -= 1
        client.last_seen = time_of_day

    def too_old(self, client: SeenClient, api_key: int, version: int) -> bool:
        """A broker does not support this version. True the first time for this client, API and version.

        Nothing is noted of a client that has made room: with its next connection it is known again.
        """
        if client.identity not in self._clients:
            return False
        known = self._refused.setdefault(client.identity, set())
        before = len(known)
        if before < MAX_VERSIONS:
            known.add(api_key << 16 | version)
        return len(known) > before

    def _make_room(self) -> None:
        if len(self._clients) < MAX_CLIENTS:
            return
        clients = self._clients
        gone = (identity for identity, client in clients.items() if not client.connections)
        young = (identity for identity, client in clients.items() if not client.too_old)
        identity = next(chain(gone, young, clients))
        del self._clients[identity]
        self._refused.pop(identity, None)
        for _, records in (self._before, self._turned):
            records.pop(identity, None)  # one that comes back counts from 0

    def turn(self, now: float) -> None:
        """Begin a new window; rates are over the last one and this."""
        self._before = self._turned
        self._turned = now, {identity: client.records for identity, client in self._clients.items()}

    def snapshot(self, now: float) -> list[SeenClient]:
        """All clients with their present rates. The objects are those that count on."""
        began, before = self._before
        for identity, client in self._clients.items():
            client.rate = (client.records - before.get(identity, 0)) / max(now - began, 1.0)
        return list(self._clients.values())


def _cut(text: str | None) -> str | None:
    return text[:MAX_TEXT] if text is not None else None


def merge(snapshots: Iterable[list[SeenClient]]) -> list[SeenClient]:
    """The snapshots of several workers as one, of new objects; at most MAX_CLIENTS, as one worker keeps them."""
    merged: dict[Identity, SeenClient] = {}
    for snapshot in snapshots:
        for client in snapshot:
            known = merged.get(client.identity)
            if known is None:
                merged[client.identity] = msgspec.structs.replace(
                    client,
                    requests=dict(client.requests),
                    batches=dict(client.batches),
                    principals=list(client.principals),
                    choices={topic: each.copy() for topic, each in client.choices.items()},
                )
            else:
                known.add(client)
    if len(merged) <= MAX_CLIENTS:
        return list(merged.values())

    def place(client: SeenClient) -> tuple[bool, bool, float]:
        connected = client.connections > 0
        return connected, connected and client.too_old, client.last_seen

    return sorted(merged.values(), key=place)[-MAX_CLIENTS:]


def full(clients: Iterable[SeenClient]) -> bool:
    """Whether more may be connected than these."""
    return sum(client.connections > 0 for client in clients) >= MAX_CLIENTS


def past(snapshot: list[SeenClient]) -> list[SeenClient]:
    """What remains of the snapshot of a worker that has died: no connections, no rates."""
    return [msgspec.structs.replace(client, connections=0, rate=0.0) for client in snapshot]


def rows(clients: Iterable[SeenClient]) -> list[dict[str, Any]]:
    """One JSON object per client, in the order of `row_order`; `forebay clients` itself is left out.

    `too_old_for_kafka_4`: what it would refuse, as "Produce v2"; `bridged`: Forebay translates all of that.
    `picks_partitions`: topics of which it seems to pick partitions itself, and how few of them it uses.
    """
    found: list[dict[str, Any]] = []
    for client in clients:
        if client.software == SOFTWARE:
            continue
        spoken: dict[int, dict[int, int]] = {}
        for key, count in sorted(client.requests.items()):
            spoken.setdefault(key >> 16, {})[key & 0xFFFF] = count
        too_old = [
            (key, version)
            for key, counts in spoken.items()
            for version in counts
            if not version_support.takes(key, version)
        ]
        found.append(
            {
                "client_id": client.client_id,
                "software_name": client.software,
                "software_version": client.software_version,
                "address": client.address,
                "principals": list(client.principals),
                "connections": client.connections,
                "records": client.records,
                "records_per_second": round(client.rate, 1),
                "idempotent_null_key_records": client.idempotent_null_keys,
                "picks_partitions": [
                    {"topic": topic, "used": len(known.places), "partitions": known.partitions}
                    for topic, known in sorted(client.choices.items())
                    if known.picked
                ],
                "last_seen": round(client.last_seen, 3),
                "requests": {
                    APIS[key].name: {str(version): count for version, count in counts.items()}
                    for key, counts in spoken.items()
                    if key in APIS
                },
                "survives_kafka_4": not too_old,
                "too_old_for_kafka_4": [f"{APIS[key].name} v{version}" for key, version in too_old if key in APIS],
                "bridged": bool(too_old) and all(key == PRODUCE for key, _ in too_old),
            }
        )
    found.sort(key=row_order)
    return found


def row_order(row: dict[str, Any]) -> tuple[bool, int, str, str]:
    """Those that Kafka 4 would refuse come first, then those with most connections."""
    return row["survives_kafka_4"], -row["connections"], row["client_id"] or "", row["address"]
