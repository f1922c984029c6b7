"""`forebay check`, as a person uses it, before brokers that others wrote (librdkafka's mock cluster)."""

from __future__ import annotations

import asyncio
import json
import os
import re
import resource
import socket
import sys
from collections.abc import Iterator
from pathlib import Path
from time import time
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner, Result

from forebay_codecs import sasl_answers
from forebay_codecs.api_keys import SASL_AUTHENTICATE
from forebay_codecs.error_codes import SASL_AUTHENTICATION_FAILED
from forebay_proxy.commands import check, cli
from forebay_proxy.config.kinds import ListenerAddress
from forebay_proxy.config.listeners import ListenerSettings
from forebay_proxy.config.settings import HostPort, Settings
from forebay_proxy.demo.mock_cluster import MockCluster
from forebay_proxy.security.expiry import SOON_S, expiry, in_der
from tests.kit.app import settings
from tests.kit.certificates import Authority, server_context
from tests.kit.event_loop import in_loop
from tests.kit.fake_broker import FakeCluster
from tests.kit.paths import ROOT
from tests.kit.ports import LOOPBACK, free_port, free_run
from tests.kit.sasl import login_line

NODES = 3


@pytest.fixture(autouse=True)
def _no_settings_of_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in list(os.environ):
        if variable.startswith("FOREBAY_"):
            monkeypatch.delenv(variable)


@pytest.fixture(autouse=True)
def _compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    """As Forebay is installed: tests mostly run pure Python."""
    monkeypatch.setattr(check, "COMPILED", True)


@pytest.fixture(scope="module")
def brokers() -> Iterator[str]:
    with MockCluster(NODES) as cluster:
        yield cluster.bootstrap


@pytest.fixture
def port() -> int:
    return free_run(NODES + 2)


def checked(bootstrap: str, port: int, *arguments: str) -> Result:
    # As few clients as any machine's file descriptors are enough for.
    where = ("--bootstrap-servers", bootstrap, "--listen", f"{LOOPBACK}:{port}", "--set", "max.connections=10")
    return CliRunner().invoke(cli.main, ("check", *where, *arguments))


def line(result: Result, what: str) -> str:
    (found,) = (line for line in result.output.splitlines() if line[6:].startswith(f"{what}:"))
    return found


def test_where_all_is_well_it_says_so_and_leaves_every_port_free(brokers: str, port: int) -> None:
    for _ in range(2):
        result = checked(brokers, port)
        assert result.exit_code == 0, result.output
        assert result.output.splitlines()[-1] == "Forebay would serve."
    assert result.output.count("ok    broker ") == NODES
    ports = ", ".join(str(port + offset) for offset in (0, 2, 3, 4))  # its brokers are 1, 2 and 3
    assert line(result, "listener PLAINTEXT") == f"ok    listener PLAINTEXT: {LOOPBACK}, ports {ports} are free"


def test_a_server_that_is_down_is_a_warning_where_others_answer(brokers: str, port: int) -> None:
    nobody = f"{LOOPBACK}:{free_port()}"
    result = checked(f"{nobody},{brokers}", port)
    assert result.exit_code == 0
    assert line(result, f"bootstrap server {nobody}").startswith("warn")
    assert line(result, "cluster").startswith("ok")
    assert result.output.splitlines()[-1] == "Forebay would serve; 1 warning."


def test_settings_of_security_that_do_nothing_are_a_warning(brokers: str, port: int) -> None:
    result = checked(brokers, port, "--set", "ssl.truststore.location=/etc/kafka/ca.pem")
    assert result.exit_code == 0
    assert line(result, "settings without effect") == (
        "warn  settings without effect: ssl.truststore.location: security.protocol is PLAINTEXT, and connections to "
        "brokers are not encrypted"
    )


def test_pure_python_is_a_warning(brokers: str, port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(check, "COMPILED", False)
    result = checked(brokers, port)
    assert result.exit_code == 0
    assert line(result, "installation").startswith("warn  installation: pure Python, ")


def test_where_no_server_answers_it_would_not_serve(port: int) -> None:
    nobody = f"{LOOPBACK}:{free_port()}"
    result = checked(f"{nobody},no.such.host.invalid:9092", port)
    assert result.exit_code == 1
    server = f"bootstrap server {nobody}"
    assert line(result, server) == f"FAIL  {server}: {nobody} ({LOOPBACK}): Connection refused"
    assert result.output.splitlines()[-1] == "Forebay would not serve: 2 failures."


@in_loop
async def test_a_broker_that_is_down_is_a_warning_that_says_what_it_costs(port: int) -> None:
    async with FakeCluster({"a": [0]}, nodes=2) as brokers:
        brokers[1].down()  # and the other one still tells of it
        bootstrap = ",".join(map(str, brokers.bootstrap[:1]))
        result = await asyncio.to_thread(checked, bootstrap, port)
    assert result.exit_code == 0, result.output
    broker = line(result, f"broker 1 at {brokers.bootstrap[1]}")
    assert broker.startswith("warn")
    assert broker.endswith("; partitions that it leads are not served")


@in_loop
async def test_a_broker_that_refuses_the_login_is_a_failure_though_others_take_it(
    port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FOREBAY_SASL_JAAS_CONFIG", login_line("PLAIN", "its", "forebay"))
    login = ("--set", "security.protocol=SASL_PLAINTEXT", "--set", "sasl.mechanism=PLAIN")
    async with FakeCluster({"a": [0]}, nodes=2) as brokers:
        brokers.exchange, brokers.users = [], {"forebay": "its"}
        brokers[1].holds(SASL_AUTHENTICATE)

        async def refuses() -> None:
            asked = await brokers[1].receives(SASL_AUTHENTICATE)
            refusal = sasl_answers.authenticate(0, asked.version, SASL_AUTHENTICATION_FAILED, "no", b"")
            asked.respond(refusal[8:])

        checking = asyncio.to_thread(checked, str(brokers.bootstrap[0]), port, *login)
        result, _ = await asyncio.gather(checking, refuses())
    assert result.exit_code == 1
    assert line(result, f"broker 0 at {brokers.bootstrap[0]}").startswith("ok")
    assert line(result, f"broker 1 at {brokers.bootstrap[1]}").startswith("FAIL")


@in_loop
async def test_a_broker_whose_certificate_is_not_accepted_is_a_failure_though_others_are(
    port: int, tmp_path: Path
) -> None:
    (tmp_path / "others").mkdir()
    ours, others = Authority(tmp_path), Authority(tmp_path / "others")
    brokers = FakeCluster({"a": [0]}, nodes=2)
    brokers.tls = server_context(ours.issue("kafka", LOOPBACK))
    trusted = ("--set", "security.protocol=SSL", "--set", f"ssl.truststore.location={ours.pem}")
    async with brokers:
        brokers[1].down()
        brokers.tls = server_context(others.issue("kafka", LOOPBACK))
        await brokers[1].up()
        result = await asyncio.to_thread(checked, str(brokers.bootstrap[0]), port, *trusted)
    assert result.exit_code == 1
    assert line(result, f"broker 0 at {brokers.bootstrap[0]}").startswith("ok")
    refused = line(result, f"broker 1 at {brokers.bootstrap[1]}")
    assert refused.startswith("FAIL")
    assert "the certificate is not accepted" in refused


def test_what_is_not_kafka_is_told_apart_in_time(port: int) -> None:
    with socket.create_server((LOOPBACK, 0)) as silent:
        silent.listen()
        address = f"{LOOPBACK}:{silent.getsockname()[1]}"
        result = checked(address, port, "--set", "socket.connection.setup.timeout.ms=200")
    assert result.exit_code == 1
    assert line(result, f"bootstrap server {address}").startswith("FAIL")
    assert "cluster" not in result.output


def test_a_port_that_is_taken_is_named_with_whom_it_is_for(brokers: str, port: int) -> None:
    with socket.create_server((LOOPBACK, port + 3)):
        result = checked(brokers, port)
    assert result.exit_code == 1
    assert f"{port + 3} for broker 2: " in line(result, "listener PLAINTEXT")


def test_a_broker_s_port_that_the_admin_endpoint_would_have(brokers: str, port: int) -> None:
    result = checked(brokers, port, "--admin", f"{LOOPBACK}:{port + 3}")
    assert line(result, "admin endpoint") == f"ok    admin endpoint: {LOOPBACK}:{port + 3} is free"
    assert result.exit_code == 1
    assert f"{port + 3} for broker 2: " in line(result, "listener PLAINTEXT")


def test_an_admin_endpoint_s_port_that_is_taken(brokers: str, port: int) -> None:
    with socket.create_server((LOOPBACK, 0)) as taken:
        result = checked(brokers, port, "--admin", f"{LOOPBACK}:{taken.getsockname()[1]}")
    assert (result.exit_code, line(result, "admin endpoint")[:4]) == (1, "FAIL")


def test_an_address_that_would_strand_clients_is_a_warning(brokers: str, port: int) -> None:
    where = ("--bootstrap-servers", brokers, "--listen", f"0.0.0.0:{port}")
    result = CliRunner().invoke(cli.main, ("check", *where))
    assert result.exit_code == 0
    assert line(result, "addresses told by PLAINTEXT").startswith("warn")
    assert "advertised.host" in line(result, "addresses told by PLAINTEXT")
    told = CliRunner().invoke(cli.main, ("check", *where, "--advertised-host", "kafka.example"))
    assert line(told, "addresses told by PLAINTEXT") == "ok    addresses told by PLAINTEXT: kafka.example"


def test_a_journal_that_cannot_be_written(brokers: str, port: int, tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    for written in (file, file / "journal"):
        result = checked(brokers, port, "--set", f"journal.dir={written}")
        assert result.exit_code == 1
        assert line(result, "journal") == f"FAIL  journal: {written} cannot be written: {file} is not a folder"
    assert line(checked(brokers, port, "--set", f"journal.dir={tmp_path}/new"), "journal").startswith("ok")
    assert not (tmp_path / "new").exists()


def test_a_journal_in_a_folder_that_may_not_be_looked_into(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    folder, stat = tmp_path / "locked", os.stat
    folder.mkdir()

    def refusing(path: Any, **how: Any) -> os.stat_result:
        if folder in Path(path).parents:
            raise PermissionError
        return stat(path, **how)

    monkeypatch.setattr(os, "stat", refusing)  # who tests may be root, who may look anywhere
    monkeypatch.setattr(os, "access", lambda path, mode: path != folder)
    (found,) = check._journal(settings((), 1, journal_dir=f"{folder}/a/journal"))
    assert (found.verdict, found.said) == ("failure", f"{folder}/a/journal cannot be written: {folder} does not let us")


def test_a_socket_is_made_and_removed_or_it_is_said_why_not(brokers: str, port: int, tmp_path: Path) -> None:
    result = checked(brokers, port, "--set", f"admin.socket={tmp_path / 's'}")
    assert (result.exit_code, line(result, "admin socket")[:2], list(tmp_path.iterdir())) == (0, "ok", [])
    result = checked(brokers, port, "--set", f"admin.socket={tmp_path / 'none' / 's'}")
    assert result.exit_code == 1
    assert "No such file or directory" in " ".join(result.output.split())


def secured(store: Path) -> Settings:
    """Whose files are all `store`."""
    listener = ListenerSettings(
        client_authentication="terminate",
        sasl_enabled_mechanisms=("SCRAM-SHA-256",),
        scram_credentials_location=str(store),
        upstream_identity="mapped",
        upstream_identities_location=str(store),
        ssl_keystore_location=str(store),
    )
    return settings(
        (),
        1,
        listen=None,
        listeners=(ListenerAddress("SASL_SSL", LOOPBACK, 1), ListenerAddress("SSL", LOOPBACK, 2)),
        listener_name={"sasl_ssl": listener, "ssl": ListenerSettings(ssl_keystore_location=str(store))},
        admin_socket="/run/s",
        admin_ssl_keystore_location=str(store),
        otlp_endpoint="http://localhost:4318/v1/metrics",
    )


def test_what_cannot_be_made_of_files_or_of_an_extra_would_end_the_start(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delitem(sys.modules, "forebay_proxy.metrics.otlp", raising=False)
    monkeypatch.setitem(sys.modules, "opentelemetry.exporter.otlp.proto.http.metric_exporter", None)
    said = {
        it.what: it.said.split(":")[0]
        for it in check._made(secured(tmp_path / "none"), {}, 0.0)
        if it.verdict == "failure"
    }
    assert said == {
        "certificates of SASL_SSL": "listener.name.sasl_ssl.ssl.keystore.location",
        "logins at SASL_SSL": "listener.name.sasl_ssl.scram.credentials.location",
        "identities at SASL_SSL": "listener.name.sasl_ssl.upstream.identities.location",
        "certificates of SSL": "listener.name.ssl.ssl.keystore.location",
        "access to the admin endpoint": "admin.ssl.keystore.location",
        "export of metrics": "otlp.endpoint",
    }


def test_what_can_be_made_is_told_too(tmp_path: Path) -> None:
    good = Authority(tmp_path).issue("forebay", LOOPBACK)
    told = {it.what: it.verdict for it in check._made(secured(good), {}, 0.0)}
    assert {what for what, verdict in told.items() if verdict != "ok"} == {
        "logins at SASL_SSL",
        "identities at SASL_SSL",
    }
    assert len(told) == 6


@pytest.mark.parametrize(
    ("left_s", "verdict", "said"),
    [(SOON_S, "ok", "can be used"), (SOON_S - 1, "warning", "expires"), (0, "failure", "expired")],
)
def test_a_certificate_that_has_expired_or_soon_will(tmp_path: Path, left_s: float, verdict: str, said: str) -> None:
    store = Authority(tmp_path).issue("forebay", LOOPBACK)
    now = min(map(expiry, in_der(store.read_text()))) - left_s
    told = {it.what: it for it in check._made(secured(store), {}, now)}
    for what in ("certificates of SSL", "access to the admin endpoint"):
        assert (told[what].verdict, said in told[what].said) == (verdict, True)


def test_one_of_the_chain_that_has_expired_is_a_warning_since_clients_may_not_need_it(tmp_path: Path) -> None:
    """As a root that an older, expired one has signed."""
    authority = Authority(tmp_path)
    store, old = authority.issue("forebay", LOOPBACK), authority.issue("old", LOOPBACK, expired=True)
    certificate = re.search("-----BEGIN CERT.*?-----END CERTIFICATE-----\n", old.read_text(), re.DOTALL)
    assert certificate is not None
    with store.open("a") as file:
        file.write(certificate[0])
    told = {it.what: it for it in check._made(secured(store), {}, time())}
    found = told["certificates of SSL"]
    assert found.verdict == "warning"
    assert found.said.startswith("a certificate of its chain expired at ")


def test_one_for_brokers_that_has_expired_is_told_before_they_are_asked(port: int, tmp_path: Path) -> None:
    store = Authority(tmp_path).issue("forebay", LOOPBACK, expired=True)
    tls = ("--set", "security.protocol=SSL", "--set", f"ssl.keystore.location={store}")
    result = checked(f"{LOOPBACK}:{free_port()}", port, *tls)
    assert line(result, "certificate for brokers").startswith(
        "FAIL  certificate for brokers: its certificate expired at "
    )
    assert result.exit_code == 1


def test_so_is_it_by_the_command(brokers: str, port: int, tmp_path: Path) -> None:
    store = f"admin.ssl.keystore.location={tmp_path / 'none'}"
    result = checked(brokers, port, "--admin", f"{LOOPBACK}:{port + 1}", "--set", store)
    assert result.exit_code == 1
    assert line(result, "access to the admin endpoint").startswith("FAIL")


def test_json_has_the_same_findings(brokers: str, port: int) -> None:
    findings = json.loads(checked(brokers, port, "--format", "json").stdout)
    assert {finding["verdict"] for finding in findings} == {"ok"}
    assert [finding["what"] for finding in findings][-2:] == ["memory", "file descriptors"]


def test_wrong_settings_are_told_as_everywhere(port: int) -> None:
    result = checked("nowhere", port)
    assert result.exit_code == 2


def test_memory_is_as_much_as_the_readme_says(tmp_path: Path) -> None:
    defaults = Settings(bootstrap_servers=())
    said = check._memory(defaults, (tmp_path / "absent",)).said
    assert said.startswith("344 MiB at most for 1 worker;")
    (row,) = (row for row in (ROOT / "README.md").read_text().splitlines() if row.startswith("| memory per worker |"))
    *parts, opened, in_all = map(int, re.findall(r"(\d+) MiB", row))
    assert sum(parts) + 2 * opened == in_all == 344


def test_what_has_no_bound_is_a_warning(tmp_path: Path) -> None:
    unbounded = Settings(
        bootstrap_servers=(), queued_max_request_bytes=-1, journal_dir=str(tmp_path), journal_retention_bytes=-1
    )
    limit = tmp_path / "memory.max"
    limit.write_text(f"{1 << 30}\n")
    for limits in ((), (limit,)):
        memory = check._memory(unbounded, limits)
        assert memory.verdict == "warning"
        assert memory.said.startswith(
            f"{344 - 64 + 16} MiB at most for 1 worker, and requests that arrive or wait, "
            "to which queued.max.request.bytes = -1 sets no bound"
        )
    limit.write_text(f"{200 << 20}\n")
    assert check._memory(unbounded, (limit,)).verdict == "failure"
    (journal,) = check._journal(unbounded)
    assert journal.verdict == "warning"
    assert journal.said.startswith(f"{tmp_path}: keeps everything (journal.retention.bytes = -1), ")


def test_memory_has_room_for_history_and_rows_of_the_journal(tmp_path: Path) -> None:
    told = Settings(bootstrap_servers=(), admin=HostPort("127.0.0.1", 9091), journal_topic="rows", workers=2)
    said = check._memory(told, (tmp_path / "absent",)).said
    assert said.startswith(f"{2 * (344 + 16) + 16} MiB at most for 2 workers;")


def test_memory_has_room_for_as_many_clients_with_tls_as_may_come(tmp_path: Path) -> None:
    def needed(told: Settings) -> str:
        return check._memory(told, (tmp_path / "absent",)).said.partition(" worker, and ")[2]

    addresses = tuple(ListenerAddress(name, LOOPBACK, port) for port, name in enumerate(("SSL", "SASL_SSL"), 1))
    told = settings((), 1, listen=None, listeners=addresses[:1], max_connections=1_000)
    assert needed(told).startswith("41 MiB for 1,000 clients with TLS that produce;")
    passing = msgspec.structs.replace(told, listeners=addresses)
    merging = {"sasl_ssl": ListenerSettings(upstream_identity="client")}
    assert "that produce;" in needed(msgspec.structs.replace(passing, listener_name=merging))
    for passed in (passing, msgspec.structs.replace(told, moves="observe")):
        assert needed(passed).startswith("106 MiB for 1,000 clients with TLS that are passed through;")


def test_memory_that_clients_with_tls_may_exceed_is_a_warning(tmp_path: Path) -> None:
    told = msgspec.structs.replace(secured(tmp_path), workers=2, max_connections=1_000)
    within = check._memory(told, (tmp_path / "absent",))
    assert within.said.startswith(
        f"{2 * 344 + 16} MiB at most for 2 workers, and 82 MiB for 2,000 clients with TLS that produce;"
    )
    limit = tmp_path / "memory.max"
    for size, verdict in ((787, "ok"), (786, "warning"), (704, "warning"), (703, "failure")):
        limit.write_text(f"{size << 20}\n")
        assert check._memory(told, (limit,)).verdict == verdict


@pytest.mark.parametrize(
    ("written", "verdict"), [("max\n", "ok"), ("1000000\n", "failure"), (f"{2**63}\n", "ok"), (f"{1 << 40}\n", "ok")]
)
def test_memory_against_the_control_groups_limit(tmp_path: Path, written: str, verdict: str) -> None:
    limit = tmp_path / "memory.max"
    limit.write_text(written)
    found = check._memory(settings((), 1), (tmp_path / "absent", limit))
    assert found.verdict == verdict


def test_descriptors_are_kept_for_handshakes_where_clients_speak_tls(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (1_024, 22_864))
    assert check._descriptors(Settings(bootstrap_servers=())).verdict == "ok"
    with_tls = check._descriptors(secured(tmp_path))
    assert (with_tls.verdict, with_tls.said.partition(" clients")[0]) == ("warning", "22,864, enough for 9,491")
