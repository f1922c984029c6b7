"""The file of credentials: written whole, for its owner only, and read with suspicion."""

from __future__ import annotations

import json
import os
import re
import stat
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from forebay_codecs.scram import HASHES, LEAST_ITERATIONS, MOST_ITERATIONS
from forebay_codecs.scram_credential import ScramCredential
from forebay_proxy.errors import StartError
from forebay_proxy.security.credentials_file import Credentials, changing, read, read_all

SHA_256, SHA_512 = HASHES
ALICE = ScramCredential(b"salt", 4096, b"s" * 64, b"v" * 64)
CANARY = "c2FsdC1jYW5hcnk="
SIZES = {SHA_256: 32, SHA_512: 64}


def entry(**other: Any) -> dict[str, Any]:
    made = {"user": "alice", "mechanism": SHA_256, "salt": CANARY, "iterations": 4096}
    return {**made, "stored_key": "ab" * 21 + "a=", "server_key": "cd" * 21 + "c=", **other}


def write(path: Path, *entries: dict[str, Any], version: object = 1) -> str:
    path.touch(mode=0o600)
    path.write_text(json.dumps({"version": version, "credentials": entries}))
    return str(path)


@st.composite
def credentials(draw: st.DrawFn) -> Credentials:
    found = {}
    for user, mechanism in draw(
        st.sets(st.tuples(st.text(st.characters(codec="utf-8"), min_size=1), st.sampled_from(list(HASHES))))
    ):
        key = st.binary(min_size=SIZES[mechanism], max_size=SIZES[mechanism])
        iterations = draw(st.integers(LEAST_ITERATIONS, MOST_ITERATIONS))
        found[user, mechanism] = ScramCredential(draw(st.binary(min_size=1)), iterations, draw(key), draw(key))
    return found


@settings(deadline=None)  # it waits for the disk
@given(kept=credentials())
def test_what_was_written_is_read(tmp_path_factory: pytest.TempPathFactory, kept: Credentials) -> None:
    path = str(tmp_path_factory.mktemp("file") / "credentials.json")
    with changing("s", path) as found:
        assert found == {}
        found.update(kept)
    assert read("s", path) == kept


def test_the_key_for_phantoms_is_made_once_and_stays(tmp_path: Path) -> None:
    path = str(tmp_path / "credentials.json")
    with changing("s", path) as found:
        found["alice", SHA_512] = ALICE
    first = read_all("s", path)
    with changing("s", path) as found:
        found.clear()
    assert (first.credentials, read_all("s", path).credentials) == ({("alice", SHA_512): ALICE}, {})
    assert len(first.phantom_key) == 32
    assert read_all("s", path).phantom_key == first.phantom_key
    by_hand = write(tmp_path / "by-hand.json", entry())
    assert read_all("s", by_hand).phantom_key == b""
    with changing("s", by_hand):
        pass
    assert len(read_all("s", by_hand).phantom_key) == 32


def test_it_is_for_its_owner_and_nothing_stays_beside_it(tmp_path: Path) -> None:
    path = tmp_path / "credentials.json"
    with changing("s", str(path)) as found:
        found["alice", SHA_512] = ALICE
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert list(tmp_path.iterdir()) == [path]
    with changing("s", str(path)) as found:
        found["bob", SHA_512] = ALICE
    assert read("s", str(path)) == {("alice", SHA_512): ALICE, ("bob", SHA_512): ALICE}


def test_a_block_that_fails_changes_nothing_and_its_error_is_its_own(tmp_path: Path) -> None:
    path = write(tmp_path / "credentials.json", entry())
    before = Path(path).read_bytes()

    def fail() -> None:
        with changing("s", path) as found:
            found.clear()
            raise ConnectionError("the broker is gone")

    with pytest.raises(ConnectionError, match="the broker is gone"):
        fail()
    assert Path(path).read_bytes() == before
    assert list(tmp_path.iterdir()) == [Path(path)]


def test_who_reads_meanwhile_gets_the_old_one(tmp_path: Path) -> None:
    path = write(tmp_path / "credentials.json", entry())
    with open(path) as old, changing("s", path) as found:
        found["bob", SHA_512] = ALICE
        assert set(read("s", path)) == {("alice", SHA_256)}
        assert len(json.load(old)["credentials"]) == 1
    assert set(read("s", path)) == {("alice", SHA_256), ("bob", SHA_512)}


def test_a_link_stays_and_what_it_leads_to_keeps_its_mode(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    real = write(tmp_path / "real" / "credentials.json", entry())
    os.chmod(real, 0o640)
    link = tmp_path / "credentials.json"
    link.symlink_to(real)
    with changing("s", str(link)) as found:
        found["bob", SHA_512] = ALICE
    assert link.is_symlink()
    assert len(read("s", real)) == 2
    assert stat.S_IMODE(os.stat(real).st_mode) == 0o640


def test_two_do_not_change_it_at_once(tmp_path: Path) -> None:
    path = str(tmp_path / "credentials.json")
    with changing("--credentials", path) as found:
        found["alice", SHA_512] = ALICE
        with (
            pytest.raises(StartError, match=r"--credentials: .*is being changed by another command"),
            changing("--credentials", path),
        ):
            pass
    assert set(read("s", path)) == {("alice", SHA_512)}


def test_what_cannot_be_written_is_known_before_the_block(tmp_path: Path) -> None:
    with pytest.raises(StartError, match="cannot be written: No such file"), changing("s", str(tmp_path / "no" / "x")):
        pytest.fail("the block has begun")
    path = write(tmp_path / "credentials.json", entry(), version=2)
    with pytest.raises(StartError, match="only 1 is known"), changing("s", path):
        pytest.fail("the block has begun")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "is no file of credentials"),
        ("[]", "is no file of credentials"),
        ('{"version": 1}', "is no file of credentials"),
        ('{"version": 2, "credentials": "of another kind"}', "its version is 2, and only 1 is known"),
    ],
)
def test_another_file_is_refused(tmp_path: Path, text: str, why: str) -> None:
    path = tmp_path / "credentials.json"
    path.touch(mode=0o600)
    path.write_text(text)
    with pytest.raises(StartError, match=rf"sasl\.x: {re.escape(str(path))} .*{why}"):
        read("sasl.x", str(path))


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        ({"user": ""}, "has no user"),
        ({"mechanism": "PLAIN"}, "mechanism that is not SCRAM-SHA-256 or SCRAM-SHA-512"),
        ({"iterations": 4095}, "must have 4096 to 16384 iterations"),
        ({"iterations": 16385}, "must have 4096 to 16384 iterations"),
        ({"salt": ""}, "of a wrong length"),
        ({"mechanism": SHA_512}, "of a wrong length"),
        ({"stored_key": "YQ=="}, "of a wrong length"),
        ({"server_key": CANARY + "!"}, "Invalid base64"),
        ({"password": "canary"}, "unknown field"),
    ],
)
def test_an_entry_that_cannot_be_is_named_and_not_shown(tmp_path: Path, wrong: dict[str, Any], why: str) -> None:
    path = write(tmp_path / "credentials.json", entry(user="bob"), entry(**wrong))
    with pytest.raises(StartError, match=why) as error:
        read("s", path)
    assert "credentials[1]" in str(error.value)
    assert "canary" not in str(error.value)
    assert CANARY not in str(error.value)


def test_one_who_is_there_twice_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StartError, match=re.escape("credentials[1] is there twice")):
        read("s", write(tmp_path / "credentials.json", entry(), entry()))


def test_a_file_that_others_can_read_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "credentials.json", entry())
    os.chmod(path, 0o644)
    with pytest.raises(StartError, match=r"s: .* can be read by others: chmod"):
        read("s", path)


def test_one_that_is_nested_deeply_is_refused_in_a_line(tmp_path: Path) -> None:
    path = tmp_path / "credentials.json"
    path.touch(mode=0o600)
    path.write_text('{"version": 1, "credentials": ' + "[" * 100_000)
    with pytest.raises(StartError, match=r"^s: .* is no file of credentials: it is nested too deeply$"):
        read("s", str(path))
