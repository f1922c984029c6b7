"""What `forebay clients` does: asks a running Forebay for its clients, and shows them.

In: the admin endpoint's URL, or the bootstrap servers of clients: when an ApiVersions request carries this command's
software name, Forebay adds the address of its admin endpoint to the response, in a tagged field that others skip.
Out: text. Raises ClientsError, one line for people, if nobody can be asked.
"""

from __future__ import annotations

import http.client
import io
import socket
import ssl
from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Any, Final
from urllib.parse import urlsplit

import msgspec
from rich import box
from rich.table import Table
from rich.text import Text

from forebay_codecs import api_versions
from forebay_codecs.errors import Malformed
from forebay_proxy import __version__
from forebay_proxy.commands.command_config import CommandConfig
from forebay_proxy.commands.text_output import json_text, table_text
from forebay_proxy.config.security import is_loopback
from forebay_proxy.config.settings import HostPort
from forebay_proxy.metrics.clients_seen import SOFTWARE
from forebay_proxy.security.tls import explain

PATH: Final = "/clients"
TIMEOUT_S: Final = 10
_ANYWHERE: Final = ("0.0.0.0", "::", "")
_MAX_RESPONSE_BYTES: Final = 1 << 20
_VERSION: Final = 3

Row = dict[str, Any]
"""One client, as clients_seen.rows has it."""


class ClientsError(Exception):
    """Nobody could be asked. Its text is one line for people."""


def discover(servers: Sequence[HostPort], config: CommandConfig) -> str:
    """The URL of the admin endpoint of the first of `servers` that responds; `config` says how they are reached.

    Raises ClientsError if none does, or if that one is not Forebay or has no admin endpoint.
    """
    failures = []
    for server in servers:
        try:
            admin = _ask(server, config.context)
        except (OSError, Malformed, EOFError) as error:
            failures.append(f"{server}: {error}")
            continue
        if admin is None:
            also = "or a listener of it where clients log in themselves: name the endpoint with --url"
            raise ClientsError(f"{server} names no admin endpoint: it is not Forebay, {also}")
        if not admin:
            raise ClientsError(f"{server} has no admin endpoint: start Forebay with --admin HOST:PORT")
        scheme = "https" if admin.startswith("https://") else "http"
        host, _, port = admin.removeprefix("https://").rpartition(":")
        return f"{scheme}://{server.host if host.strip('[]') in _ANYWHERE else host}:{port}"
    raise ClientsError(f"no response: {'; '.join(failures)}")


def _ask(server: HostPort, context: ssl.SSLContext | None) -> str | None:
    request = api_versions.request(1, SOFTWARE, _VERSION, SOFTWARE, __version__)
    with _connect(server, context) as connection, connection.makefile("rb") as answers:
        connection.sendall(len(request).to_bytes(4, "big") + request)
        size = int.from_bytes(_exactly(answers, 4), "big")
        if size > _MAX_RESPONSE_BYTES:
            raise Malformed(f"a response of {size} bytes")
        return api_versions.admin(_exactly(answers, size))


def _connect(server: HostPort, context: ssl.SSLContext | None) -> socket.socket:
    connection = socket.create_connection(server, TIMEOUT_S)
    if context is None:
        return connection
    try:
        return context.wrap_socket(connection, server_hostname=server.host)
    except OSError as error:
        connection.close()
        raise ConnectionError(explain(error)) from None


def _exactly(answers: io.BufferedReader, size: int) -> bytes:
    data = answers.read(size)
    if len(data) < size:
        raise EOFError("the connection was closed")
    return data


def fetch(url: str, config: CommandConfig) -> list[Row]:
    """The clients of the Forebay whose admin endpoint is at `url`: http://HOST:PORT, https://… or HOST:PORT.

    Any path in `url` is ignored. The token of `config` is sent where it stays unseen: to https, and to this host.
    Raises ClientsError if that fails.
    """
    status, body = ask(url, PATH, config)
    try:
        rows: list[Row] = msgspec.json.decode(body)["clients"]
    except (msgspec.DecodeError, KeyError, TypeError) as error:
        raise ClientsError(f"{url} responds with {status} and no clients: is it Forebay?") from error
    return rows


def ask(url: str, path: str, config: CommandConfig) -> tuple[int, bytes]:
    """The status and body of what the admin endpoint at `url` has at `path`. Raises ClientsError if nobody answers."""
    parts = urlsplit(url if "//" in url else f"//{url}", "http")
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ClientsError(f"{url}: must be http://HOST:PORT or https://HOST:PORT")
    https = parts.scheme == "https"
    headers = {}
    if config.token and (https or is_loopback(parts.hostname)):
        headers["Authorization"] = f"Bearer {config.token.reveal()}"
    try:
        connection = _http(parts.hostname, parts.port, config.https if https else None)
        connection.request("GET", path, headers=headers)
        response = connection.getresponse()
        body = response.read()
        connection.close()
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise ClientsError(f"{url}: {explain(error) if isinstance(error, OSError) else error}") from None
    if response.status == http.HTTPStatus.UNAUTHORIZED:
        raise ClientsError(f"{url} needs a token: set admin.bearer.token in the file of --command-config")
    return response.status, body


def _http(host: str, port: int | None, context: ssl.SSLContext | None) -> http.client.HTTPConnection:
    if context is not None:
        return http.client.HTTPSConnection(host, port, timeout=TIMEOUT_S, context=context)
    return http.client.HTTPConnection(host, port, timeout=TIMEOUT_S)


def as_json(rows: list[Row]) -> str:
    """The rows as they came: an array of objects."""
    return json_text(rows)


def as_table(rows: list[Row], width: int | None) -> str:
    """One row per client, in the order given, and a count of those too old for Kafka 4.

    Long values are folded into `width` columns; None: each row is one line, whatever its length.
    """
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    logged_in = any(row.get("principals") for row in rows)  # an older Forebay tells of none
    users = ("principal",) if logged_in else ()
    for column in ("client id", *users, "software", "address", "open", "records/s", "last seen", "speaks", "Kafka 4"):
        numbers = column in ("open", "records/s")
        table.add_column(column, justify="right" if numbers else "left", overflow="fold")
    for row in rows:
        cells = (
            row["client_id"] or "?",
            *([", ".join(row.get("principals", ()))] if logged_in else ()),
            _software(row),
            row["address"],
            f"{row['connections']:,}",
            f"{row['records_per_second']:,}",
            datetime.fromtimestamp(row["last_seen"], UTC).strftime("%Y-%m-%d %H:%M:%SZ"),
            ", ".join(f"{api} {_range(counts)}" for api, counts in row["requests"].items()),
            _verdict(row),
        )
        table.add_row(*map(Text, cells))
    lost = sum(not row["survives_kafka_4"] for row in rows)
    counts = f"{len(rows)} clients, {lost} of them too old for Kafka 4."
    return "\n".join([table_text(table, width), counts, *_picking(rows), *_idempotent(rows)])


def _picking(rows: list[Row]) -> Iterator[str]:
    """Who seems to pick partitions itself: its records without a key must not move."""
    for row in rows:
        for found in row.get("picks_partitions", ()):  # an older Forebay tells of none
            yield (
                f"{row['client_id'] or '?'} ({row['address']}) seems to pick partitions of {found['topic']} itself: "
                f"it uses {found['used']} of {found['partitions']}."
            )


def _idempotent(rows: list[Row]) -> Iterator[str]:
    """What idempotent clients keep from being moved, by software, the most first."""
    records: Counter[str] = Counter()
    for row in rows:
        records[_software(row)] += row.get("idempotent_null_key_records", 0)  # an older Forebay tells of none
    if found := [f"{software} {count:,}" for software, count in records.most_common() if count]:
        yield f"Records without a key left untouched since their client is idempotent, about: {', '.join(found)}."


def _software(row: Row) -> str:
    return " ".join(filter(None, (row["software_name"], row["software_version"]))) or "?"


def _range(counts: dict[str, int]) -> str:
    versions = sorted(map(int, counts))
    first, last = versions[0], versions[-1]
    return f"v{first}" if first == last else f"v{first}–{last}"


def _verdict(row: Row) -> str:
    if row["survives_kafka_4"]:
        return "yes"
    through = "only through Forebay" if row["bridged"] else "no"
    return f"{through}: {', '.join(row['too_old_for_kafka_4'])}"
