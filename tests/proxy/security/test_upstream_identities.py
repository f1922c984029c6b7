"""As whom brokers know a client that has logged in here."""

from __future__ import annotations

from pathlib import Path

import pytest

from forebay_proxy.config.kinds import ListenerAddress
from forebay_proxy.config.listeners import ListenerSettings, UpstreamIdentity
from forebay_proxy.config.secret import Secret
from forebay_proxy.config.settings import HostPort, Mechanism, Settings
from forebay_proxy.errors import StartError
from forebay_proxy.security.client_exchanges import LoginRefused, Proved
from forebay_proxy.security.logins import DelegatedLogin, PasswordLogin, Token
from forebay_proxy.security.upstream_identities import UpstreamIdentities
from tests.kit.sasl import login_line


def told(identity: UpstreamIdentity, path: Path, mechanism: Mechanism = "") -> Settings:
    own = ListenerSettings(
        client_authentication="terminate", upstream_identity=identity, upstream_identities_location=str(path)
    )
    return Settings(
        bootstrap_servers=(HostPort("b", 9092),),
        listeners=(ListenerAddress("SASL_SSL", "h", 19092),),
        listener_name={"sasl_ssl": own},
        sasl_mechanism=mechanism,
    )


def write(path: Path, principals: str, password: str = "secret") -> Path:
    line = login_line("SCRAM-SHA-512", password, "team")
    path.write_text(
        f"[identities.team]\n'sasl.mechanism' = 'SCRAM-SHA-512'\n'sasl.jaas.config' = '{line}'\n"
        f"[principals]\n{principals}\n"
    )
    path.chmod(0o600)
    return path


def identities(path: Path, identity: UpstreamIdentity = "mapped", mechanism: Mechanism = "") -> UpstreamIdentities:
    settings = told(identity, path, mechanism)
    return UpstreamIdentities(settings, settings.client_listeners[0], TOKENS)


class NoTokens:
    async def of(self, owner: str) -> Token:
        raise ConnectionError(owner)

    def refused(self, owner: str) -> bool:
        return False

    def end(self, owner: str) -> None:
        """There is none."""


TOKENS = NoTokens()


ALICE, BOB = Proved("alice", "PLAIN"), Proved("bob", "PLAIN")
TEAM = PasswordLogin("SCRAM-SHA-512", "team", Secret("secret"))


def test_service_is_forebay_itself(tmp_path: Path) -> None:
    assert identities(tmp_path / "absent", "service").of(ALICE) is None


def test_a_delegation_token_is_for_whoever_has_logged_in(tmp_path: Path) -> None:
    it = identities(tmp_path / "absent", "delegation_token")
    login = it.of(ALICE)
    assert login == DelegatedLogin("SCRAM-SHA-512", "alice", TOKENS)
    assert login.identity == ("SCRAM-SHA-512", "alice", "tokenauth", "true"), "whichever token it is"
    assert login.identity != PasswordLogin("SCRAM-SHA-512", "alice", Secret("tokenauth")).identity


@pytest.mark.parametrize(
    ("own", "presented"),
    [
        ("SCRAM-SHA-256", "SCRAM-SHA-256"),
        ("SCRAM-SHA-512", "SCRAM-SHA-512"),
        ("PLAIN", "SCRAM-SHA-512"),
        ("OAUTHBEARER", "SCRAM-SHA-512"),
    ],
)
def test_it_is_presented_as_forebay_itself_logs_in_if_that_is_by_scram(
    own: Mechanism, presented: str, tmp_path: Path
) -> None:
    login = identities(tmp_path / "absent", "delegation_token", own).of(ALICE)
    assert isinstance(login, DelegatedLogin)
    assert login.mechanism == presented


def test_who_is_mapped_has_a_login_and_who_is_not_is_refused(tmp_path: Path) -> None:
    it = identities(write(tmp_path / "map", "'User:alice' = 'team'"))
    assert it.of(ALICE) == TEAM
    assert "secret" not in repr(it.of(ALICE))
    with pytest.raises(LoginRefused, match="User:bob has no identity at the brokers"):
        it.of(BOB)


def test_everybody_else_may_have_one(tmp_path: Path) -> None:
    it = identities(write(tmp_path / "map", "'*' = 'team'"))
    assert it.of(BOB) == it.of(ALICE) == TEAM


def test_it_changes_with_its_file_and_tells_so(tmp_path: Path) -> None:
    path = write(tmp_path / "map", "'User:alice' = 'team'")
    it = identities(path)
    settings, before = told("mapped", path), it.generation
    it.renewable.prepare(settings)()
    assert it.generation == before, "nothing has changed"
    commit = it.renewable.prepare(told("mapped", write(path, "'User:bob' = 'team'", "other")))
    assert it.of(ALICE) == TEAM, "what is prepared changes nothing"
    commit()
    assert it.generation != before
    assert it.of(BOB) == TEAM._replace(password=Secret("other"))
    with pytest.raises(LoginRefused):
        it.of(ALICE)


def test_a_file_that_is_wrong_is_told_under_its_settings_name(tmp_path: Path) -> None:
    with pytest.raises(StartError, match=r"listener\.name\.sasl_ssl\.upstream\.identities\.location: .* be read"):
        identities(tmp_path / "absent")
