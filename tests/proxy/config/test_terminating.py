"""Listeners that terminate logins: what they need, and what is refused, without a secret in it."""

from __future__ import annotations

import pytest

from forebay_proxy.config.secret import Secret
from forebay_proxy.config.settings import Settings
from forebay_proxy.config.sources import Problem
from tests.kit.sasl import MODULES, login_line
from tests.proxy.config.test_settings import problem as found
from tests.proxy.config.test_settings import settings

CANARY = "canary-77e1"
PLAIN = MODULES["PLAIN"]
ENVIRON = {
    "ALICE": f'{PLAIN} required user_alice="{CANARY}";',
    "TWO": f'{PLAIN} required user_alice="{CANARY}" user_bob="{CANARY}";',
    "NOBODY": f'{PLAIN} required username="{CANARY}" password="{CANARY}";',
    "SERVICE": login_line("PLAIN", CANARY),
}
NAME = "listener.name.sasl_ssl."
LISTENS = ("listen=", "listeners=SASL_SSL://0.0.0.0:19092", f"{NAME}ssl.keystore.location=/tls/keystore.pem")
TERMINATES = (
    *LISTENS,
    f"{NAME}client.authentication=terminate",
    f"{NAME}upstream.identity=service",
    f"{NAME}sasl.enabled.mechanisms=PLAIN",
    f"{NAME}plain.sasl.jaas.config=${{env:TWO}}",
)
OWN_LOGIN = ("security.protocol=SASL_PLAINTEXT", "sasl.mechanism=PLAIN", "sasl.jaas.config=${env:SERVICE}")


def works(*assignments: str) -> Settings:
    return settings(*TERMINATES, *assignments, environ=ENVIRON)


def problem(*assignments: str) -> Problem:
    it = found(*TERMINATES, *assignments, environ=ENVIRON)
    assert CANARY not in str(it)
    return it


def test_whoever_may_log_in_stands_in_a_brokers_line() -> None:
    (only,) = works().client_listeners
    assert (only.terminates, only.uses_sasl, only.passes_logins, only.lends_identity) == (True, True, False, True)
    assert only.told.sasl_enabled_mechanisms == ("PLAIN",)
    assert only.told.plain_sasl_jaas_config == Secret(ENVIRON["TWO"])


def test_logins_pass_unless_it_is_said() -> None:
    (only,) = settings(*LISTENS, "security.protocol=SASL_PLAINTEXT").client_listeners
    assert (only.terminates, only.passes_logins, only.lends_identity) == (False, True, False)


@pytest.mark.parametrize(
    ("assignment", "name", "message"),
    [
        (
            f"{NAME}upstream.identity=passthrough",
            "upstream.identity",
            "must be service or mapped or client or delegation_token with",
        ),
        (f"{NAME}sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-256", "scram.credentials.location", "is required with SCRAM"),
        (f"{NAME}scram.credentials.location=/c", "scram.credentials.location", "needs SCRAM-SHA-256 or"),
        (
            f"{NAME}upstream.identities.location=/m",
            "upstream.identities.location",
            "needs upstream.identity=mapped",
        ),
        (f"{NAME}plain.sasl.jaas.config=", "plain.sasl.jaas.config", "is required with PLAIN"),
        (f"{NAME}plain.sasl.jaas.config=${{env:NOBODY}}", "plain.sasl.jaas.config", "of the form user_alice="),
        (f"{NAME}plain.sasl.jaas.config={CANARY}", "plain.sasl.jaas.config", "is a secret"),
        (f"{NAME}sasl.server.max.receive.size=1", "sasl.server.max.receive.size", "must be a whole number"),
    ],
)
def test_what_cannot_be(assignment: str, name: str, message: str) -> None:
    it = problem(assignment)
    assert it.name == NAME + name
    assert message in it.message


BEARER = f"{NAME}sasl.oauthbearer."
TOKENS = (
    *LISTENS,
    f"{NAME}client.authentication=terminate",
    f"{NAME}upstream.identity=service",
    f"{NAME}sasl.enabled.mechanisms=OAUTHBEARER",
    f"{BEARER}jwks.endpoint.url=https://issuer.test/keys",
    f"{BEARER}expected.issuer=https://issuer.test",
    f"{BEARER}expected.audience=kafka,other",
)
MODULE = MODULES["OAUTHBEARER"]


def test_whose_tokens_are_taken_is_said_in_full() -> None:
    (only,) = settings(*TOKENS).client_listeners
    assert only.told.sasl_oauthbearer_expected_audience == ("kafka", "other")
    for assignment in TOKENS[-3:]:
        name = assignment.partition("=")[0]
        it = found(*TOKENS, f"{name}=")
        assert (it.name, it.message) == (name, "is required with OAUTHBEARER in sasl.enabled.mechanisms")
        it = found(*TERMINATES, assignment, environ=ENVIRON)
        assert (it.name, it.message) == (name, "needs OAUTHBEARER in sasl.enabled.mechanisms")
    it = found(*TOKENS, f"{BEARER}jwks.endpoint.url=file:///etc/keys")
    assert "begins with https:// or http://" in it.message


def test_a_line_for_the_issuers_certificate_is_one_of_its_module() -> None:
    name = f"{NAME}oauthbearer.sasl.jaas.config"
    lines = {
        "A": f"{MODULE} required ssl.truststore.location='/ca.pem';",
        "B": login_line("PLAIN", CANARY),
        "C": CANARY,
    }
    settings(*TOKENS, f"{name}=${{env:A}}", environ=lines)
    for variable, why in (("B", "must begin with Kafka's OAuthBearerLoginModule"), ("C", "must begin with one of")):
        it = found(*TOKENS, f"{name}=${{env:{variable}}}", environ=lines)
        assert it.name == name
        assert why in it.message
        assert CANARY not in str(it)
    it = found(*TERMINATES, f"{name}=${{env:A}}", environ=ENVIRON | lines)
    assert it.message == "needs OAUTHBEARER in sasl.enabled.mechanisms"


def test_tokens_let_in_many() -> None:
    it = found(*TOKENS, *OWN_LOGIN, environ=ENVIRON)
    assert "upstream.identity.shared=true" in it.message


SSL_NAME = "listener.name.ssl."
CERTIFICATES = (
    "listen=",
    "listeners=SSL://0.0.0.0:19092",
    f"{SSL_NAME}ssl.keystore.location=/tls/keystore.pem",
    f"{SSL_NAME}ssl.truststore.location=/tls/ca.pem",
    f"{SSL_NAME}ssl.client.auth=required",
    f"{SSL_NAME}client.authentication=terminate",
    f"{SSL_NAME}upstream.identity=mapped",
    f"{SSL_NAME}upstream.identities.location=/etc/forebay/identities.toml",
    "security.protocol=SASL_PLAINTEXT",
)


def test_a_certificate_may_be_the_login() -> None:
    (only,) = settings(*CERTIFICATES, f"{SSL_NAME}ssl.principal.mapping.rules=RULE:^CN=(.*),.*$/$1/L").client_listeners
    assert (only.takes_certificates, only.terminates, only.has_realms, only.lends_identity) == (True, True, True, False)


@pytest.mark.parametrize(
    ("assignment", "name", "message"),
    [
        ("ssl.client.auth=none", "client.authentication", "SSL with ssl.client.auth=required"),
        ("upstream.identity=client", "upstream.identity", "must be service, mapped or delegation_token"),
        ("upstream.identities.location=", "upstream.identities.location", "is required with upstream.identity=mapped"),
        ("sasl.enabled.mechanisms=PLAIN", "sasl.enabled.mechanisms", "needs the security protocol SASL_PLAINTEXT"),
        ("connections.max.reauth.ms=1000", "connections.max.reauth.ms", "needs the security protocol SASL_PLAINTEXT"),
        ("ssl.principal.mapping.rules=RULE:a", "ssl.principal.mapping.rules", "is no list of DEFAULT and RULE:"),
        ("ssl.principal.mapping.rules=RULE:\\p{L}/a/", "ssl.principal.mapping.rules", "none that is taken here"),
    ],
)
def test_what_cannot_be_where_a_certificate_is_the_login(assignment: str, name: str, message: str) -> None:
    told = {each.partition("=")[0]: each for each in (*CERTIFICATES, f"{SSL_NAME}{assignment}")}
    if assignment == "upstream.identity=client":
        del told[f"{SSL_NAME}upstream.identities.location"]
    it = found(*told.values())
    assert it.name == SSL_NAME + name
    assert message in it.message


def test_rules_for_certificates_name_nobody_where_sasl_is_the_login() -> None:
    rules = f"{NAME}ssl.principal.mapping.rules=RULE:^CN=(.*),.*$/$1/"
    it = problem("security.protocol=PLAINTEXT", rules)
    assert (it.name, "elsewhere it names nobody" in it.message) == (f"{NAME}ssl.principal.mapping.rules", True)


def test_certificates_let_in_many() -> None:
    told = (*CERTIFICATES[:-3], f"{SSL_NAME}upstream.identity=service", *OWN_LOGIN)
    it = found(*told, environ=ENVIRON)
    assert "upstream.identity.shared=true" in it.message
    settings(*told, "upstream.identity.shared=true", environ=ENVIRON)


def test_brokers_must_know_users_where_certificates_are_mapped() -> None:
    it = found(*CERTIFICATES[:-1], "security.protocol=SSL")
    assert (it.name, "brokers know each client of SSL by a login" in it.message) == ("security.protocol", True)


@pytest.mark.parametrize("written", ["PLAIN,PLAIN", "GSSAPI"])
def test_mechanisms_are_known_and_named_once(written: str) -> None:
    it = found(*LISTENS, *TERMINATES[3:5], f"{NAME}sasl.enabled.mechanisms={written}")
    assert (it.name, it.message[:13]) == (f"{NAME}sasl.enabled.mechanisms", "must be PLAIN")


def test_what_is_for_logins_here_is_refused_where_they_pass() -> None:
    for assignment in (
        f"{NAME}sasl.enabled.mechanisms=PLAIN",
        f"{NAME}plain.sasl.jaas.config=${{env:ALICE}}",
        f"{NAME}connections.max.reauth.ms=1000",
    ):
        it = found(*LISTENS, "security.protocol=SASL_PLAINTEXT", assignment, environ=ENVIRON)
        assert it.name == assignment.partition("=")[0]
        assert "needs client.authentication=terminate" in it.message
    it = found(*LISTENS, "security.protocol=SASL_PLAINTEXT", f"{NAME}upstream.identity=service")
    assert it.message == "must be passthrough or client with client.authentication=passthrough"


def test_only_who_logs_in_can_log_in_here() -> None:
    name = "listener.name.plaintext.client.authentication"
    it = found("listen=", "listeners=PLAINTEXT://127.0.0.1:19092", f"{name}=terminate")
    assert (it.name, "needs the security protocol SASL_PLAINTEXT" in it.message) == (name, True)


MAPPED = (f"{NAME}upstream.identity=mapped", f"{NAME}upstream.identities.location=/etc/forebay/identities.toml")


def test_mapped_users_need_a_file_and_brokers_that_know_users_and_forebay_no_login() -> None:
    (only,) = works(*MAPPED, "security.protocol=SASL_PLAINTEXT").client_listeners
    assert (only.lends_identity, only.has_realms) == (False, True)
    assert problem(MAPPED[0], "security.protocol=SASL_PLAINTEXT").name == f"{NAME}upstream.identities.location"
    it = problem(*MAPPED, "security.protocol=SSL")
    assert (it.name, "brokers know each client of SASL_SSL by a login" in it.message) == ("security.protocol", True)
    works(*MAPPED, *OWN_LOGIN)


def test_delegation_tokens_need_brokers_that_know_users_and_a_login_that_asks_for_them() -> None:
    (only,) = works(f"{NAME}upstream.identity=delegation_token", *OWN_LOGIN).client_listeners
    assert (only.lends_identity, only.has_realms) == (False, True)
    it = problem(f"{NAME}upstream.identity=delegation_token", "security.protocol=SASL_PLAINTEXT")
    assert (it.name, "Forebay asks for tokens as itself" in it.message) == ("sasl.mechanism", True)
    it = problem(f"{NAME}upstream.identity=delegation_token", "security.protocol=SSL")
    assert (it.name, "brokers know each client of SASL_SSL by a login" in it.message) == ("security.protocol", True)
    told = (*CERTIFICATES[:-3], f"{SSL_NAME}upstream.identity=delegation_token", *OWN_LOGIN)
    assert settings(*told, environ=ENVIRON).client_listeners[0].has_realms


SCRAM = (
    *TERMINATES[:-2],
    f"{NAME}sasl.enabled.mechanisms=SCRAM-SHA-256,SCRAM-SHA-512",
    f"{NAME}scram.credentials.location=/etc/forebay/credentials.json",
)


def test_users_of_scram_may_be_themselves_at_brokers_and_forebay_needs_no_login() -> None:
    told = settings(*SCRAM, f"{NAME}upstream.identity=client", "security.protocol=SASL_PLAINTEXT")
    (only,) = told.client_listeners
    assert (only.lends_identity, only.has_realms, told.only_passes_logins) == (False, True, True)
    it = problem(f"{NAME}upstream.identity=client", "security.protocol=SASL_PLAINTEXT")
    assert it.name == f"{NAME}sasl.enabled.mechanisms", "PLAIN reveals no key for brokers"
    it = found(*SCRAM, *OWN_LOGIN, environ=ENVIRON)
    assert it.name == f"{NAME}upstream.identity", "there may be several"


def test_forebay_needs_a_login_of_its_own_where_brokers_want_one() -> None:
    assert problem("security.protocol=SASL_PLAINTEXT").name == "sasl.mechanism"
    works(*OWN_LOGIN, "upstream.identity.shared=true")


def test_several_users_act_as_forebay_only_where_that_is_allowed() -> None:
    """Brokers could not tell who may do less."""
    it = problem(*OWN_LOGIN)
    assert it.name == f"{NAME}upstream.identity"
    assert "upstream.identity.shared=true" in it.message
    works(*OWN_LOGIN, f"{NAME}plain.sasl.jaas.config=${{env:ALICE}}")
    # Brokers that know nobody by name are lent nothing.
    works("security.protocol=PLAINTEXT")


def test_a_listener_without_logins_beside_it_is_judged_by_itself() -> None:
    more = "listeners=SASL_SSL://0.0.0.0:19092,PLAINTEXT://0.0.0.0:19192"
    it = problem(*OWN_LOGIN, f"{NAME}plain.sasl.jaas.config=${{env:ALICE}}", more)
    assert (it.name, "can be reached from other hosts" in it.message) == ("listeners", True)
