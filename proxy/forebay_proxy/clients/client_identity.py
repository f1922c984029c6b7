"""Whose connection it is: known with the first bytes of the first request, and counted by it from then on.

ApiVersions in a version that is not understood here comes again in one that is, and is the first that tells anything.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from forebay_codecs import api_versions
from forebay_codecs.api_keys import API_VERSIONS
from forebay_codecs.apis import APIS, Api
from forebay_codecs.errors import Malformed
from forebay_codecs.header import peek_client_id, printable
from forebay_policies import own_choices
from forebay_proxy.logs import RateLimited
from forebay_proxy.metrics.clients_seen import SOFTWARE, SeenClient
from forebay_proxy.metrics.traffic import TrafficMetrics

LONGEST_INTRODUCTION: Final = 4096
"""In bytes. Names of clients and of software are short."""


class ClientIdentity:
    """A connection counts for one client, from its first request on. One a connection.

    `introduction`: an ApiVersions request, without its size, that tells a broker the client's software as it told it
    itself (KIP-511); empty: it has told none.
    """

    def __init__(self, metrics: TrafficMetrics, log: RateLimited) -> None:
        self._metrics = metrics
        self._log = log
        self.introduction = b""
        self._seen: SeenClient | None = None
        self._first_request = (0, 0)
        self._requests: dict[int, int] = {}
        self._batches: dict[str, int] = {}
        """Those that are counted in what is seen of the client: kept here, since each look at that costs as much."""
        self._principal = ""  # known before its first request, where a certificate is the login

    @property
    def known(self) -> bool:
        """Whether a request has told whose it is."""
        return self._seen is not None

    @property
    def is_own_command(self) -> bool:
        """It is `forebay clients` that asks."""
        return self.software == SOFTWARE

    @property
    def software(self) -> str | None:
        """What it calls itself (KIP-511); None: it has not said."""
        return self._seen.software if self._seen is not None else None

    def begins(self, api_key: int, version: int) -> None:
        """A request begins."""
        counts, key = self._requests, api_key << 16 | version
        if key in counts:
            counts[key] += 1
        elif self._seen is not None:
            self._seen.request(api_key, version)
        else:
            self._first_request = api_key, version

    def says(self, frame: bytes, host: str) -> None:
        """`frame` is as much of the first request as has arrived, without its size."""
        api_key, version = self._first_request
        if api_key == API_VERSIONS and not APIS[API_VERSIONS].supports(version):
            return
        name = software_version = None
        try:
            client_id = peek_client_id(frame)
            if api_key == API_VERSIONS:
                name, software_version = api_versions.software(frame, version)
                if name is not None and software_version is not None and len(frame) <= LONGEST_INTRODUCTION:
                    self.introduction = api_versions.request(
                        0, client_id, api_versions.FLEXIBLE_FROM, name, software_version
                    )
        except Malformed:  # cut short where it came in pieces: it is not told again
            client_id = None
        shown = None if client_id is None else printable(client_id)
        self._seen = self._metrics.named(shown, host, name, software_version)
        self._seen.request(api_key, version)
        self._requests, self._batches = self._seen.requests, self._seen.batches
        if self._principal:
            self._seen.is_somebody(self._principal)

    def produced(self, records: int, reasons: Iterable[str]) -> None:
        """The client has sent `records` more records, in batches that are treated as they are for these `reasons`."""
        if self._seen is not None:
            self._seen.records += records
            batches = self._batches
            for reason in reasons:
                batches[reason] = batches.get(reason, 0) + 1

    def is_somebody(self, principal: str) -> None:
        """Its broker takes it for `principal`, and so it is served here; as Kafka writes it."""
        if self._seen is not None:
            self._seen.is_somebody(principal)
        else:
            self._principal = principal

    def failed(self) -> None:
        """A Produce request of the client was answered with an error."""
        if self._seen is not None:
            self._seen.errors += 1

    def idempotent_null_keys(self, records: int) -> None:
        """About so many of its records have no key and could move, if it were not idempotent."""
        if self._seen is not None:
            self._seen.idempotent_null_keys += records

    def null_keys_went(self, topic: str, partitions: int, partition: int, size: int, now: float, *, old: bool) -> None:
        """Where records of it without a key went, as it wanted (own_choices)."""
        if self._seen is not None:
            own_choices.note(self._seen.choices, topic, partitions, partition, size, now, old=old)

    def too_old(self, api: Api, version: int, peer: str) -> None:
        """A broker closed it for a version that it does not take. One line for each client, API and version."""
        if self._seen is not None and self._metrics.too_old(self._seen, api.key, version):
            self._log.warning(
                "a client is too old for the brokers, which closed its connection (KIP-896)",
                client=peer,
                client_id=self._seen.client_id,
                api=api.name,
                version=version,
            )

    def gone(self) -> None:
        """The connection has closed."""
        if self._seen is not None:
            self._metrics.gone(self._seen)
