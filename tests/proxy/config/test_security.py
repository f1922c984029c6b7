"""Settings of security that contradict each other, and secrets on their way in."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from forebay_proxy.commands.cli import main
from forebay_proxy.config.secret import Secret
from forebay_proxy.config.security import is_loopback
from tests.kit.sasl import login_line
from tests.proxy.config.test_settings import problem, problems, settings, toml

CANARY = "canary-91c0"
LOGINS = {"SCRAM": login_line("SCRAM-SHA-256", CANARY), "BROKEN": CANARY}
KEYSTORE = ("security.protocol=SSL", "ssl.keystore.location=/etc/forebay.pem")


@pytest.mark.parametrize(
    ("assignments", "name", "message"),
    [
        (["ssl.enabled.protocols=TLSv1.1"], "ssl.enabled.protocols", "must be TLSv1.2 and TLSv1.3, or one of them"),
        (["ssl.enabled.protocols="], "ssl.enabled.protocols", "must be TLSv1.2"),
        (["ssl.endpoint.identification.algorithm=http"], "ssl.endpoint.identification.algorithm", "https or empty"),
        (
            ["ssl.truststore.location=a", "ssl.truststore.certificates=b"],
            "ssl.truststore.certificates",
            "together with ssl.truststore.location",
        ),
        (["admin=0.0.0.0:9091"], "admin", "can be reached from other hosts: give it TLS"),
        (["admin=0.0.0.0:9091", "admin.bearer.token=${env:SCRAM}"], "admin", "give it TLS"),
        (["admin=0.0.0.0:9091", "admin.ssl.keystore.location=/a.pem"], "admin", "admin.bearer.token or"),
        (
            ["admin=0.0.0.0:9091", "admin.unprotected=true", "admin.change.token=${env:SCRAM}"],
            "admin.change.token",
            "needs admin.ssl.keystore.location where other hosts",
        ),
        (
            ["admin=127.0.0.1:9091", "admin.bearer.token=${env:SCRAM}", "admin.change.token=${env:SCRAM}"],
            "admin.change.token",
            "must not be admin.bearer.token",
        ),
        (["admin.ssl.truststore.location=/a.pem"], "admin.ssl.truststore.location", "needs admin.ssl.keystore"),
        (["ssl.keystore.certificate.chain=a"], "ssl.keystore.key", "need each other"),
        (
            ["security.protocol=SASL_SSL"],
            "sasl.mechanism",
            "must be PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 or OAUTHBEARER",
        ),
        (["security.protocol=SASL_SSL", "sasl.mechanism=GSSAPI"], "sasl.mechanism", "must be PLAIN"),
        (["security.protocol=SASL_SSL", "sasl.mechanism=PLAIN"], "sasl.jaas.config", "is required"),
        (
            ["security.protocol=SASL_SSL", "sasl.mechanism=PLAIN", "sasl.jaas.config=${env:SCRAM}"],
            "sasl.jaas.config",
            "is for SCRAM-SHA-256 or SCRAM-SHA-512, and sasl.mechanism is PLAIN",
        ),
        (
            ["security.protocol=SASL_SSL", "sasl.mechanism=PLAIN", "sasl.jaas.config=${env:BROKEN}"],
            "sasl.jaas.config",
            "must begin with one of Kafka's modules",
        ),
        (
            [
                "security.protocol=SASL_SSL",
                "sasl.mechanism=OAUTHBEARER",
                "sasl.oauthbearer.client.credentials.client.id=a",
            ],
            "sasl.oauthbearer.token.endpoint.url",
            "is required with OAUTHBEARER",
        ),
        (
            [
                "security.protocol=SASL_SSL",
                "sasl.mechanism=OAUTHBEARER",
                "sasl.oauthbearer.token.endpoint.url=https://a",
            ],
            "sasl.oauthbearer.client.credentials.client.id",
            "is required with OAUTHBEARER",
        ),
    ],
)
def test_contradictions(assignments: list[str], name: str, message: str) -> None:
    found = problem(*assignments, "listen=127.0.0.1:19092", environ=LOGINS)
    assert found.name == name
    assert message in found.message
    assert CANARY not in str(found)


def test_a_store_is_a_file_or_a_text() -> None:
    found = problem(
        "ssl.keystore.location=a", "ssl.keystore.certificate.chain=b", environ={"FOREBAY_SSL_KEYSTORE_KEY": "c"}
    )
    assert found.name == "ssl.keystore.certificate.chain"


def test_it_lends_its_identity_to_nobody_unasked() -> None:
    assert "upstream.identity.shared=true" in problem(*KEYSTORE).message
    as_text = ("security.protocol=SSL", "ssl.keystore.certificate.chain=a")
    assert "upstream.identity.shared=true" in problem(*as_text, environ={"FOREBAY_SSL_KEYSTORE_KEY": "k"}).message
    settings(*KEYSTORE, "upstream.identity.shared=true")
    settings(*KEYSTORE, "listen=127.0.0.1:19092")
    settings("security.protocol=SSL")


PASSING = ("listen=", "security.protocol=SASL_PLAINTEXT", "listeners=SASL_PLAINTEXT://0.0.0.0:19092")


def test_where_all_clients_log_in_forebay_needs_no_login() -> None:
    passing = settings(*PASSING)
    assert (passing.uses_sasl, passing.logs_in, passing.only_passes_logins) == (True, False, True)
    for also, name in (
        ("listeners=SASL_PLAINTEXT://0.0.0.0:19092,PLAINTEXT://127.0.0.1:19192", "sasl.mechanism"),
        ("journal.topic=journal", "sasl.mechanism"),
        ("security.protocol=SSL", "security.protocol"),
    ):
        assert problem(*PASSING, also).name == name
    assert problem(*PASSING, "sasl.jaas.config=${env:SCRAM}", environ=LOGINS).name == "sasl.mechanism"


def test_those_who_log_in_themselves_are_lent_nothing() -> None:
    login = ("sasl.mechanism=SCRAM-SHA-256", "sasl.jaas.config=${env:SCRAM}")
    settings(*PASSING, *login, environ=LOGINS)
    sidecar = "listeners=SASL_PLAINTEXT://0.0.0.0:19092,PLAINTEXT://127.0.0.1:19192"
    settings(*PASSING, *login, sidecar, environ=LOGINS)
    lent = "listeners=SASL_PLAINTEXT://0.0.0.0:19092,PLAINTEXT://0.0.0.0:19192"
    found = problem(*PASSING, *login, lent, environ=LOGINS)
    assert "upstream.identity.shared=true" in found.message


def test_a_login_is_lent_to_nobody_unasked_either() -> None:
    login = ("security.protocol=SASL_SSL", "sasl.mechanism=SCRAM-SHA-256", "sasl.jaas.config=${env:SCRAM}")
    assert "upstream.identity.shared=true" in problem(*login, environ=LOGINS).message
    settings(*login, "upstream.identity.shared=true", environ=LOGINS)
    settings(*login, "listen=[::1]:19092", environ=LOGINS)


@pytest.mark.parametrize(
    ("host", "loopback"),
    [
        ("127.0.0.1", True),
        ("127.8.0.1", True),
        ("::1", True),
        ("localhost", True),
        ("0.0.0.0", False),
        ("::", False),
        ("192.0.2.1", False),
        ("kafka.example", False),
    ],
)
def test_loopback(host: str, loopback: bool) -> None:
    assert is_loopback(host) is loopback


class TestSecrets:
    def test_they_come_from_variables_and_files(self, tmp_path: Path) -> None:
        assert settings(environ={"FOREBAY_SSL_KEY_PASSWORD": CANARY}).ssl_key_password == Secret(CANARY)
        store = tmp_path / "kafka.properties"
        store.write_text(f"password={CANARY}")
        store.chmod(0o600)
        assert settings(f"ssl.key.password=${{file:{store}:password}}").ssl_key_password == Secret(CANARY)
        own = toml(tmp_path, f'"ssl.key.password" = "{CANARY}"')
        own.chmod(0o600)
        assert settings(config=own).ssl_key_password == Secret(CANARY)

    def test_one_on_the_command_line_is_refused_and_not_shown(self) -> None:
        found = problem(f"ssl.key.password={CANARY}")
        assert "every user can read a command line" in found.message
        assert CANARY not in str(found)

    def test_one_in_a_file_that_others_can_read_is_refused_and_not_shown(self, tmp_path: Path) -> None:
        open_to_all = toml(tmp_path, f'"ssl.key.password" = "{CANARY}"')
        open_to_all.chmod(0o644)
        found = problem(config=open_to_all)
        assert f"others can read {open_to_all}: chmod o-rwx" in found.message
        assert CANARY not in str(found)

    def test_a_reference_in_such_a_file_is_none(self, tmp_path: Path) -> None:
        open_to_all = toml(tmp_path, '"ssl.key.password" = "${env:PASSWORD}"')
        open_to_all.chmod(0o644)
        assert settings(environ={"PASSWORD": CANARY}, config=open_to_all).ssl_key_password == Secret(CANARY)

    def test_what_it_refers_to_and_is_not_there_is_told(self) -> None:
        assert str(problem("ssl.key.password=${env:NONE}")) == (
            "ssl.key.password = ${env:NONE} (--set): refers to the environment variable NONE, which is not set"
        )

    def test_no_problem_shows_one(self, tmp_path: Path) -> None:
        own = toml(tmp_path, f'"ssl.key.pasword" = "{CANARY}"\n"ssl.key.password" = ["{CANARY}"]')
        own.chmod(0o600)
        found = problems(config=own)
        assert {each.name for each in found} == {"ssl.key.pasword", "ssl.key.password"}
        assert CANARY not in "".join(map(str, found))
        assert CANARY not in repr(found)

    @pytest.mark.parametrize(
        "name",
        [
            "sasl.jass.config",
            "admin.bearer.tokn",
            "admin.change.tokne",
            "ssl.pasword",
            "sasl.passwd",
            "listener.name.x.plain.sasl.jas.config",
        ],
    )
    def test_nor_under_a_misspelt_name(self, name: str, tmp_path: Path) -> None:
        for found in (
            problem(f"{name}={CANARY}"),
            problem(environ={"FOREBAY_" + name.upper().replace(".", "_"): CANARY}),
            problem(config=toml(tmp_path, f'"{name}" = "{CANARY}"')),
        ):
            assert "unknown setting" in found.message
            assert CANARY not in repr(found)

    @pytest.mark.parametrize("form", [["--format", "list"], ["--format", "table"], ["--format", "json"], ["NAME"]])
    def test_forebay_config_shows_none(self, form: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("FOREBAY_SSL_KEY_PASSWORD", CANARY)
        words = ["ssl.key.password" if word == "NAME" else word for word in form]
        told = CliRunner().invoke(main, ["config", *words], catch_exceptions=False)
        assert told.exit_code == 0
        assert CANARY not in told.output
        assert "[hidden]" in told.output
        if "json" in form:
            (row,) = [row for row in json.loads(told.output) if row["name"] == "ssl.key.password"]
            assert row["value"] == "[hidden]"
