"""One setting by itself: text → value, value → text, and which values are allowed.

In: what a TOML file holds (any of its types), or text (environment, command line). Text means the same wherever it is
written: lists are separated by commas, maps are `1:19093,2:19094`, booleans are true and false.
Out: a value of the setting's type, within its bounds. Anything else raises ValueError; `allowed` says what is allowed.
"""

from __future__ import annotations

import ipaddress
import re
import types
import typing
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Annotated, Final, Literal, get_args, get_origin

import msgspec
from msgspec import Meta

from forebay_proxy.config import providers
from forebay_proxy.config.kinds import (
    INT_MAX,
    MAX_PORT,
    NODE,
    START,
    BrokerAddress,
    ListenerAddress,
    ListenerAddresses,
    NetworkRacks,
    NodeIds,
    NodePorts,
    ProtocolMap,
    SecurityProtocol,
    ServedMechanism,
    ServedMechanisms,
    TlsVersion,
    TlsVersions,
)
from forebay_proxy.config.listeners import PREFIX, ListenerSettings
from forebay_proxy.config.secret import HIDDEN, Secret
from forebay_proxy.config.settings import (
    TOPIC_PATTERN,
    HostPort,
    Patterns,
    Servers,
    Settings,
    TopicPatterns,
    is_host,
)

_LISTENER_NAME: Final = re.compile("[A-Za-z0-9_-]+")
_OF_TLS: Final = re.compile(rf"(admin\.|{re.escape(PREFIX)}[^.]+\.)?ssl\.")
_OF_TOPICS: Final = re.compile(TOPIC_PATTERN)
_CLASS: Final = re.compile(r"\[!?[^\[\]]+\]")
_LISTED: Final = re.compile(r"\[[^\[\]!-]{2,}\]|[\[\]]")
"""What a shell leaves of a list in quotes: a word in brackets, which would match one letter, or one bracket of them."""
_QUOTED: Final = re.compile(r"""(["']).*\1|\[\s*(["']).*\2\s*\]""", re.DOTALL)
"""As a shell and TOML have text and lists; a file for Docker's --env-file keeps the quotes."""
_TRUTH: Final = {"true": True, "false": False}


@dataclass(frozen=True)
class Setting:
    """One setting as declared in Settings: reads, checks and describes its values.

    `default` is msgspec.NODEFAULT where a value is required.
    """

    name: str
    attribute: str
    kind: object
    """Its type without annotations."""
    metas: tuple[Meta, ...]
    default: object

    @property
    def required(self) -> bool:
        """Whether there is no default."""
        return self.default is msgspec.NODEFAULT

    @property
    def variable(self) -> str:
        """Its name as an environment variable: linger.ms → FOREBAY_LINGER_MS."""
        return "FOREBAY_" + self.attribute.upper()

    @property
    def is_map(self) -> bool:
        """Whether its value is a map, as that of `node.ports` is."""
        return self.kind in (NodePorts, NetworkRacks, ProtocolMap)

    @property
    def is_list(self) -> bool:
        """Whether its value is a list: of servers, of patterns and the like."""
        return self.kind in (
            Servers,
            Patterns,
            TopicPatterns,
            ListenerAddresses,
            TlsVersions,
            NodeIds,
            ServedMechanisms,
        )

    @property
    def is_secret(self) -> bool:
        """Whether its value is shown to nobody."""
        return self.kind == Secret

    @property
    def protects(self) -> bool:
        """Whether less may be safe where it is empty: a secret's and TLS's are such."""
        return self.is_secret or _OF_TLS.match(self.name) is not None

    def resolve(self, text: str, environ: Mapping[str, str]) -> str:
        """`text` with its references resolved.

        Raises ValueError, of what protects also where nothing is left of it, and for a reference that is none.
        """
        if self.protects:
            providers.refuse_others(text)
        value = providers.resolve(text, environ)
        if self.protects and value != text and not value.strip():
            raise ValueError("refers to something that is empty")
        return value

    @property
    def _parser(self) -> _Parser:
        return next(parser for kind, parser in _PARSERS if kind == self.kind)

    @cached_property
    def description(self) -> str:
        """What it is for: one line, a sentence."""
        return next(meta.description for meta in self.metas if meta.description)

    @cached_property
    def bounds(self) -> tuple[int, int] | None:
        """Smallest and largest value of a whole number; None: it has no such bounds, or is something else."""
        for meta in self.metas:
            if meta.ge is not None and meta.le is not None:
                return int(meta.ge), int(meta.le)
        return None

    @cached_property
    def pattern(self) -> str | None:
        """What a text must match, as a regular expression; None: nothing."""
        return next((meta.pattern for meta in self.metas if meta.pattern), None)

    @cached_property
    def unit(self) -> str:
        """milliseconds, seconds or bytes; empty: none."""
        return self._extra("unit") or ""

    @cached_property
    def changes(self) -> str:
        """When a change takes effect: one of kinds.Changes."""
        return self._extra("changes") or START

    def _extra(self, key: str) -> str | None:
        return next((str(meta.extra[key]) for meta in self.metas if meta.extra and key in meta.extra), None)

    @cached_property
    def allowed(self) -> str:
        """Which values it takes, to follow "must be"."""
        if self.bounds:
            unit = f", in {self.unit}" if self.unit else ""
            return f"a whole number from {self.bounds[0]} to {self.bounds[1]}{unit}"
        if get_origin(self.kind) is Literal:
            return "one of " + ", ".join(get_args(self.kind))
        return self._extra("allowed") or self._parser.allowed

    @cached_property
    def brief(self) -> str:
        """`allowed` for a column of a table."""
        if self.bounds:
            least, greatest = self.bounds
            return f"{least} to {greatest}" if greatest < INT_MAX else f"at least {least}"
        if get_origin(self.kind) is Literal:
            return ", ".join(get_args(self.kind))
        return self._extra("allowed") or self._parser.brief

    def parse(self, written: object) -> object:
        """The value of `written`, text or a TOML value. Raises ValueError where that is not `allowed`."""
        if get_origin(self.kind) is Literal:
            if written not in get_args(self.kind):
                raise ValueError(written)
            return written
        value = self._parser.parse(written)
        if self.bounds and isinstance(value, int) and not self.bounds[0] <= value <= self.bounds[1]:
            raise ValueError(written)
        if self.pattern and isinstance(value, str) and not re.fullmatch(self.pattern, value):
            raise ValueError(written)
        return value


@dataclass(frozen=True)
class _Parser:
    parse: Callable[[object], object]
    allowed: str
    brief: str


def _text(written: object) -> str:
    if not isinstance(written, str):
        raise ValueError(written)
    return written.strip()


def _secret(written: object) -> Secret:
    return Secret(_text(written))


def _number(written: object) -> int:
    if isinstance(written, str):
        return int(written)
    if isinstance(written, int) and not isinstance(written, bool):
        return written
    raise ValueError(written)


def _share(written: object) -> float:
    share = float(written) if isinstance(written, str) else written
    if isinstance(share, int | float) and not isinstance(share, bool) and 0 <= share <= 1:
        return float(share)  # now: a whole number may be too large for one
    raise ValueError(written)


def _truth(written: object) -> bool:
    if isinstance(written, bool):
        return written
    truth = _TRUTH.get(_text(written).lower())
    return _refuse(written) if truth is None else truth


def _refuse(written: object) -> typing.NoReturn:
    raise ValueError(written)


def _port(written: object) -> int:
    port = _number(written)
    return port if 1 <= port <= MAX_PORT else _refuse(written)


def _host_port(written: object) -> HostPort:
    host, separator, port = _text(written).rpartition(":")
    bracketed = host.startswith("[") and host.endswith("]")
    bare = host[1:-1] if bracketed else host
    # An address with colons must be in brackets, or its end would be taken for the port.
    if not separator or not is_host(bare) or (":" in bare) != bracketed:
        raise ValueError(written)
    return HostPort(bare, _port(port))


def _elements(written: object) -> Iterable[object]:
    if isinstance(written, str):
        return [part.strip() for part in written.split(",") if part.strip()]
    if isinstance(written, list | tuple):
        return written
    raise ValueError(written)


def _pairs(written: object) -> Iterable[tuple[object, object]]:
    """Of a map, or of text: name:value,name:value. Names may have colons, values have none."""
    if isinstance(written, dict):
        return written.items()
    return [_text(element).rpartition(":")[::2] for element in _elements(written)]


def _servers(written: object) -> Servers:
    return tuple(_host_port(element) for element in _elements(written)) or _refuse(written)


def _patterns(written: object) -> Patterns:
    patterns = tuple(_text(element) or _refuse(written) for element in _elements(written))
    quoted = any(isinstance(each, str) and _QUOTED.fullmatch(each.strip()) for each in (written, *patterns))
    return _refuse(written) if quoted else patterns


def _topic_patterns(written: object) -> TopicPatterns:
    patterns = _patterns(written)
    meant = all(_OF_TOPICS.search(each) and not _LISTED.search(_CLASS.sub("", each)) for each in patterns)
    return patterns if meant and not any(map(_LISTED.fullmatch, patterns)) else _refuse(written)


def _node_ports(written: object) -> NodePorts:
    ports: NodePorts = {}
    for node_id, port in _pairs(written):
        number = _number(node_id)
        if not 0 <= number < 2**31 or number in ports:
            raise ValueError(written)
        ports[number] = _port(port)
    return ports


def _node_ids(written: object) -> NodeIds:
    ids = tuple(_node_id(element) for element in _elements(written))
    return ids if len(set(ids)) == len(ids) else _refuse(written)


def _node_id(written: object) -> int:
    number = _number(written)
    return number if 0 <= number < 2**31 else _refuse(written)


def _network_racks(written: object) -> NetworkRacks:
    racks: NetworkRacks = {}
    for network, rack in _pairs(written):
        known = str(ipaddress.ip_network(_text(network)))  # ValueError, also where bits of the host are set
        if not _text(rack) or known in racks:
            raise ValueError(written)
        racks[known] = _text(rack)
    return racks


def _listener_addresses(written: object) -> ListenerAddresses:
    return tuple(_listener_address(element) for element in _elements(written))


def _listener_address(written: object) -> ListenerAddress:
    name, separator, address = _text(written).partition("://")
    if not separator or _LISTENER_NAME.fullmatch(name) is None:
        raise ValueError(written)
    # An empty host is every address of the machine, as in Kafka.
    return ListenerAddress(name.upper(), *_host_port(address if not address.startswith(":") else "0.0.0.0" + address))


def _protocol_map(written: object) -> ProtocolMap:
    protocols: ProtocolMap = {}
    for name, protocol in _pairs(written):
        known = next((each for each in get_args(SecurityProtocol) if each == _text(protocol).upper()), None)
        if known is None or _LISTENER_NAME.fullmatch(_text(name)) is None or _text(name).upper() in protocols:
            raise ValueError(written)
        protocols[_text(name).upper()] = known
    return protocols


def _tls_versions(written: object) -> TlsVersions:
    versions = tuple(_text(element) for element in _elements(written))
    if not versions or any(version not in get_args(TlsVersion) for version in versions):
        raise ValueError(written)
    return typing.cast(TlsVersions, versions)


def _served_mechanisms(written: object) -> ServedMechanisms:
    mechanisms = tuple(_text(element).upper() for element in _elements(written))
    if any(each not in get_args(ServedMechanism) for each in mechanisms) or len(set(mechanisms)) < len(mechanisms):
        raise ValueError(written)
    return typing.cast(ServedMechanisms, mechanisms)


def _maybe_host_port(written: object) -> HostPort | None:
    return None if written == "" else _host_port(written)


def _maybe_broker_address(written: object) -> BrokerAddress | None:
    if written == "":
        return None
    text = _text(written)
    port = _host_port(text.replace(NODE, "0")).port
    host = text.rpartition(":")[0]
    if NODE in text and NODE not in host:
        raise ValueError(written)
    return BrokerAddress(host.removeprefix("[").removesuffix("]"), port)


_HOST_PORT_ALLOWED: Final = f"host:port with a port from 1 to {MAX_PORT}"
_PARSERS: Final[list[tuple[object, _Parser]]] = [
    (int, _Parser(_number, "a whole number", "number")),
    (float, _Parser(_share, "a number from 0 to 1", "0 to 1")),
    (bool, _Parser(_truth, "true or false", "true, false")),
    (str, _Parser(_text, "text", "text")),
    (Secret, _Parser(_secret, "text", "text")),
    (HostPort, _Parser(_host_port, _HOST_PORT_ALLOWED, "host:port")),
    (HostPort | None, _Parser(_maybe_host_port, f"{_HOST_PORT_ALLOWED}, or empty", "host:port")),
    (
        BrokerAddress | None,
        _Parser(_maybe_broker_address, f"host:port with {NODE} in the host, or empty", f"host{NODE}:port"),
    ),
    (Servers, _Parser(_servers, f"{_HOST_PORT_ALLOWED}; several are separated by commas", "host:port,…")),
    (
        Patterns,
        _Parser(_patterns, "patterns with * ? [a-z], not in quotes; several are separated by commas", "pattern,…"),
    ),
    (
        TopicPatterns,
        _Parser(
            _topic_patterns,
            "patterns of letters, digits, . _ - and * ? [a-z] [!a-z]; several are separated by commas: orders,audit-*",
            "pattern,…",
        ),
    ),
    (NodeIds, _Parser(_node_ids, "node ids, each once; several are separated by commas", "id,…")),
    (NodePorts, _Parser(_node_ports, "node id:port; several are separated by commas", "id:port,…")),
    (
        NetworkRacks,
        _Parser(_network_racks, "network:rack, as 10.1.0.0/16:az-a; several are separated by commas", "network:rack,…"),
    ),
    (
        ListenerAddresses,
        _Parser(_listener_addresses, "NAME://host:port; several are separated by commas", "NAME://host:port,…"),
    ),
    (
        ProtocolMap,
        _Parser(
            _protocol_map,
            "NAME:PLAINTEXT, NAME:SSL, NAME:SASL_PLAINTEXT or NAME:SASL_SSL; several are separated by commas",
            "NAME:protocol,…",
        ),
    ),
    (
        ServedMechanisms,
        _Parser(
            _served_mechanisms,
            f"{', '.join(get_args(ServedMechanism))}, each once; several are separated by commas",
            ",".join(get_args(ServedMechanism)),
        ),
    ),
    (TlsVersions, _Parser(_tls_versions, "TLSv1.2 and TLSv1.3, or one of them", "TLSv1.2,TLSv1.3")),
]


ADDRESSES: Final = (HostPort, ListenerAddress, BrokerAddress)
"""Types of values that are tuples, and written as their text."""


def render(value: object) -> str:
    """A value as written on the command line; `Setting.parse` reads it back. A secret is not shown."""
    if value is None:
        return ""
    if isinstance(value, Secret):
        return HIDDEN if value else ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int) and value.bit_length() > 64:
        return hex(value)  # Python writes no decimals of thousands of digits
    if isinstance(value, ADDRESSES):
        return str(value)
    if isinstance(value, dict):
        return ",".join(f"{key}:{render(element)}" for key, element in value.items())
    if isinstance(value, list | tuple):
        return ",".join(render(element) for element in value)
    return str(value)


def _settings(of: type[msgspec.Struct]) -> Iterable[Setting]:
    for field in msgspec.structs.fields(of):
        if field.name in ("listener_name", "references"):  # LISTENER_SETTINGS; what rereading.py needs
            continue
        assert get_origin(field.type) is Annotated, field.name
        kind, *metas = get_args(field.type)
        default = field.default
        if field.default_factory is not msgspec.NODEFAULT:
            default = field.default_factory()
        yield Setting(field.encode_name, field.name, kind, tuple(metas), default)


SETTINGS: Final = types.MappingProxyType({setting.name: setting for setting in _settings(Settings)})
"""All settings by name, in the order of Settings."""

LISTENER_SETTINGS: Final = types.MappingProxyType({setting.name: setting for setting in _settings(ListenerSettings)})
"""What each listener may be told, by the name that follows listener.name.<name>., in the order of ListenerSettings."""

_OF_LISTENER: Final = re.compile(rf"{re.escape(PREFIX)}([A-Za-z0-9_-]+)\.(.+)")


def listener_setting(name: str) -> tuple[str, Setting] | None:
    """The listener, in lower case, and the setting that listener.name.<listener>.<setting> names; None: it is none."""
    found = _OF_LISTENER.fullmatch(name)
    if found is None or found[2] not in LISTENER_SETTINGS:
        return None
    return found[1].lower(), LISTENER_SETTINGS[found[2]]


def of_listener(listener: str, setting: Setting) -> Setting:
    """One of LISTENER_SETTINGS under its full name."""
    name = f"{PREFIX}{listener}.{setting.name}"
    return replace(setting, name=name, attribute=name.replace(".", "_").replace("-", "_"))


def find(name: str) -> Setting | None:
    """The setting of that full name, those of listeners included."""
    found = listener_setting(name)
    return SETTINGS.get(name) if found is None else of_listener(*found)
