"""What a client's connection needs of its process: how it is joined to everything else."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from forebay_policies.intake import Intake
from forebay_proxy.clients.metadata_handler import MetadataHandler
from forebay_proxy.clients.opaque_connection import OpaqueConnection
from forebay_proxy.logs import RateLimited
from forebay_proxy.metrics.traffic import TrafficMetrics
from forebay_proxy.produce.handler import ProduceHandler

if TYPE_CHECKING:
    from forebay_proxy.clients.client_connection import ClientConnection


class Places(Protocol):
    """What a connection has a place in."""

    def admits(self, connection: ClientConnection) -> bool:
        """Whether one more of its address may stay."""

    def gone(self, connection: ClientConnection) -> None: ...


class Gateway(Protocol):
    """How a connection reaches its broker."""

    def translate(self, advertised_host: str, node_id: int, host: str, port: int) -> tuple[str, int] | None: ...

    async def connect(self, node_id: int | None, protocol: OpaqueConnection) -> None:
        """Connect to a broker (None: to any). Raises OSError."""

    def produce_answered(self, response: bytes, version: int) -> None:
        """A broker's answer to untouched records: what it says of leaders holds for everybody. Raises Malformed."""

    def takes(self, api_key: int, version: int) -> bool:
        """Whether brokers take such requests, as far as is known."""

    def topics_changed(self) -> None:
        """A client has had topics made, ended or moved."""

    def api_versions(self, node_id: int | None, version: int, ready: Callable[[bytes | None], None]) -> None:
        """A broker's ApiVersions response, cut to what is understood; None: no broker answers."""


@dataclass(slots=True)
class Shared:
    """What all client connections of a process share."""

    gateway: Gateway
    places: Places
    handler: ProduceHandler
    metadata: MetadataHandler
    metrics: TrafficMetrics
    log: RateLimited
    intake: Intake
    max_request: int
    max_in_flight: int
    admin: str
    """Where the admin endpoint listens; empty: nowhere."""
