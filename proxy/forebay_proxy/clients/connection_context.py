"""What all client connections of a process share. It declares, and decides nothing."""

from __future__ import annotations

from dataclasses import dataclass

from forebay_policies.departed_brokers import DepartedBrokers
from forebay_policies.inbound_memory import InboundMemory
from forebay_policies.loop_turns import LoopTurns
from forebay_policies.untaken_answers import UntakenAnswers
from forebay_proxy.clients.client_racks import ClientRacks
from forebay_proxy.clients.gateway import Gateway
from forebay_proxy.clients.login_watch import Realms
from forebay_proxy.clients.metadata_handler import MetadataHandler
from forebay_proxy.clients.terminated_login import LoginDoor
from forebay_proxy.logs import RateLimited
from forebay_proxy.metrics.traffic import TrafficMetrics
from forebay_proxy.produce.handler import ProduceHandler


@dataclass
class ConnectionContext:
    """What all client connections of a process share."""

    gateway: Gateway
    handler: ProduceHandler
    metadata: MetadataHandler
    metrics: TrafficMetrics
    log: RateLimited
    inbound_memory: InboundMemory
    turns: LoopTurns
    departed: DepartedBrokers
    max_request: int
    max_in_flight: int
    answers: UntakenAnswers
    racks: ClientRacks
    realms: Realms | None
    """Where clients that log in themselves are served once they are recognised; None: nowhere."""
    door: LoginDoor | None
    """Where clients log in here; None: they do not."""
    admin: str
    """Where the admin endpoint listens; empty: nowhere."""
