"""The file of identities: what it says, and that what is wrong with it is told without its secrets."""

from __future__ import annotations

from pathlib import Path

import pytest

from forebay_proxy.config.identity_map import Target, read, referenced
from forebay_proxy.config.secret import Secret
from tests.kit.sasl import login_line

CANARY = "canary-5c5c"
ALICE = login_line("SCRAM-SHA-512", CANARY, "team-a")
PLAIN = login_line("PLAIN", CANARY, "team-b")


def written(folder: Path, text: str, mode: int = 0o600) -> str:
    path = folder / "identities.toml"
    path.write_text(text)
    path.chmod(mode)
    return str(path)


def two(**changed: str) -> str:
    told = {
        "a": f'"sasl.mechanism" = "SCRAM-SHA-512"\n"sasl.jaas.config" = \'{ALICE}\'',
        "b": '"sasl.mechanism" = "PLAIN"\n"sasl.jaas.config" = "${env:PLAIN}"',
        "principals": '"User:alice" = "a"\n"User:amy" = "a"\n"*" = "b"',
        **changed,
    }
    return f"[identities.a]\n{told['a']}\n[identities.b]\n{told['b']}\n[principals]\n{told['principals']}\n"


def test_each_principal_has_a_login(tmp_path: Path) -> None:
    found = read(written(tmp_path, two()), {"PLAIN": PLAIN})
    team_a, team_b = Target("SCRAM-SHA-512", "team-a", Secret(CANARY)), Target("PLAIN", "team-b", Secret(CANARY))
    assert found == {"User:alice": team_a, "User:amy": team_a, "*": team_b}
    assert CANARY not in repr(found)


def test_other_files_that_it_refers_to_are_known(tmp_path: Path) -> None:
    path = written(tmp_path, two(b='"sasl.mechanism" = "PLAIN"\n"sasl.jaas.config" = "${dir:/run/secrets:b}"'))
    assert referenced(path) == ("/run/secrets/b",)
    assert referenced(str(tmp_path / "absent")) == ()


WRONG = {
    "is not valid TOML": CANARY,
    "is nested too deeply": f"{CANARY} = " + "[" * 100_000,
    "must have a table identities": "[principals]\n'*' = 'a'",
    "must have a table principals": two().partition("[principals]")[0],
    "User:bob in principals must be one of identities": two(principals='"User:bob" = "c"'),
    "bob in principals must be like User:alice": two(principals='"bob" = "a"'),
    "User: in principals must be like User:alice": two(principals='"User:" = "a"'),
    "more is none of identities and principals": f"more = '{CANARY}'\n" + two(),
    "identities.a must have sasl.mechanism and sasl.jaas.config": two(a=f"\"password\" = '{CANARY}'"),
    "identities.a must be a table of texts": two(a='"sasl.mechanism" = 1'),
    "must be one of PLAIN": two(a=f'"sasl.mechanism" = "GSSAPI"\n"sasl.jaas.config" = \'{ALICE}\''),
    "is for SCRAM-SHA-256 or SCRAM-SHA-512, not for PLAIN": two(
        a=f'"sasl.mechanism" = "PLAIN"\n"sasl.jaas.config" = \'{ALICE}\''
    ),
    "identities.a: sasl.jaas.config must begin with": two(
        a=f'"sasl.mechanism" = "PLAIN"\n"sasl.jaas.config" = \'{CANARY}\''
    ),
    "identities.a: sasl.jaas.config refers to the environment variable ABSENT": two(
        a='"sasl.mechanism" = "PLAIN"\n"sasl.jaas.config" = "${env:ABSENT}"'
    ),
    "identities.a: sasl.jaas.config refers to a provider that is not known": two(
        a=f'"sasl.mechanism" = "PLAIN"\n"sasl.jaas.config" = \'{ALICE.replace(CANARY, f"${{vault:{CANARY}:b}}")}\''
    ),
}


@pytest.mark.parametrize(("why", "text"), WRONG.items(), ids=WRONG)
def test_what_is_wrong_is_told_without_a_secret(why: str, text: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"identities\.toml") as error:
        read(written(tmp_path, text), {"PLAIN": PLAIN})
    assert why in str(error.value)
    assert CANARY not in str(error.value)


def test_one_that_others_can_read_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="can be read by others"):
        read(written(tmp_path, two(), 0o644), {})
    with pytest.raises(ValueError, match="cannot be read"):
        read(str(tmp_path / "absent"), {})
