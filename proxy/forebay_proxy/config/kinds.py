"""Types of values that settings of more than one kind have. They declare, and check nothing."""

from __future__ import annotations

from typing import Annotated, Final, Literal, NamedTuple

from msgspec import Meta

from forebay_proxy.config.secret import Secret

MAX_PORT: Final = 65_535
INT_MAX: Final = 2**31 - 1
"""Kafka's INT. It also bounds times that are LONG in Kafka: 24 days are enough, and asyncio's timers can take them."""
NODE: Final = "$(node)"

NodePorts = dict[int, int]
NodeIds = tuple[int, ...]
NetworkRacks = dict[str, str]
"""Network, as address/bits → rack."""
Host = Annotated[str, Meta(extra={"allowed": "a host name or address without a port, or empty"})]
PemFile = Annotated[str, Meta(extra={"allowed": "a file in PEM form, or empty"})]
PrivateFile = Annotated[str, Meta(extra={"allowed": "a file that others cannot read, or empty"})]
Pem = Annotated[str, Meta(extra={"allowed": "text in PEM form, or empty"})]
SecretPem = Annotated[Secret, Meta(extra={"allowed": "text in PEM form, or empty"})]
Url = Annotated[
    str,
    Meta(
        pattern=r"^(https?://(\[[0-9a-fA-F:.]+(%(?!25)[\w.~-]+)?\]|[^\s/@?#:\[\]]+)(:[0-9]{1,5})?([/?#]\S*)?)?$",
        extra={"allowed": "a URL that begins with https:// or http://, without a user or password, or empty"},
    ),
]
"""It is shown to whoever may read the settings, and in errors."""

ServedMechanism = Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"]
"""SASL mechanisms by which clients can log in at Forebay itself."""
ServedMechanisms = tuple[ServedMechanism, ...]
SecurityProtocol = Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"]
ProtocolMap = dict[str, SecurityProtocol]
TlsVersion = Literal["TLSv1.2", "TLSv1.3"]
TlsVersions = tuple[TlsVersion, ...]
CipherSuites = Annotated[
    tuple[str, ...], Meta(extra={"allowed": "Java's names, as TLS_AES_256_GCM_SHA384; several are separated by commas"})
]


class ListenerAddress(NamedTuple):
    """Where a listener listens. Its text is NAME://host:port; names of listeners are in capitals."""

    name: str
    host: str
    port: int

    def __str__(self) -> str:
        return (
            f"{self.name}://[{self.host}]:{self.port}" if ":" in self.host else f"{self.name}://{self.host}:{self.port}"
        )


ListenerAddresses = tuple[ListenerAddress, ...]


class BrokerAddress(NamedTuple):
    """Where clients are told brokers to be; `host` has NODE in place of the node id, and stands without brackets.

    Without NODE it is good for one broker only: for listeners with producers.only.
    """

    host: str
    port: int

    def of(self, node_id: int) -> tuple[str, int]:
        """b$(node).forebay, node 3 → b3.forebay."""
        return self.host.replace(NODE, str(node_id)), self.port

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


Changes = Literal["live", "workers", "start"]
"""When a setting's change takes effect: while Forebay runs, in workers that take the place of those that serve, or when
Forebay is started."""
LIVE: Final = "live"
WORKERS: Final = "workers"
START: Final = "start"


def about(description: str, changes: Changes = START) -> Meta:
    """One line for lists, a sentence. What needs more room is in reference.py.

    `changes`: for LIVE, connections and records that are there must bear it; for WORKERS, that workers with the old
    value and with the new one serve the same clients for a while, on the same ports.
    """
    return Meta(description=description, extra=None if changes == START else {"changes": changes})


def dotted(attribute: str) -> str:
    """A setting's name: linger_ms → linger.ms."""
    return attribute.replace("_", ".")
