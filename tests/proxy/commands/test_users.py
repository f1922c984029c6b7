"""`forebay users`, as a person uses it, before brokers whose every answer the test decides."""

from __future__ import annotations

import asyncio
import json
import os
import stat
from collections.abc import Sequence
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from forebay_codecs.api_keys import ALTER_USER_SCRAM_CREDENTIALS, DESCRIBE_USER_SCRAM_CREDENTIALS
from forebay_codecs.header import PEEK_SIZE
from forebay_codecs.primitives import FLEXIBLE, Reader, Writer
from forebay_codecs.scram import HASHES
from forebay_codecs.scram_credential import ScramCredential
from forebay_proxy.commands import cli
from forebay_proxy.commands.users import Row, as_table
from forebay_proxy.security.credentials_file import changing, read
from tests.kit.event_loop import in_loop
from tests.kit.fake_broker import FakeBroker, FakeCluster
from tests.kit.ports import LOOPBACK, free_port

SHA_256, SHA_512 = HASHES
PASSWORD = "canary-9f, ü"
KEPT = {
    name: ScramCredential(b"salt", 4096, b"s" * size, b"v" * size) for name, size in zip(HASHES, (32, 64), strict=True)
}
REFUSED = (31, "canary of the broker")


class Stage:
    """A broker, a file, and the command between them."""

    def __init__(self, cluster: FakeCluster, folder: Path) -> None:
        self.broker: FakeBroker = cluster[0]
        self.broker.holds(ALTER_USER_SCRAM_CREDENTIALS, DESCRIBE_USER_SCRAM_CREDENTIALS)
        self._server = str(cluster.bootstrap[0])
        self.file = folder / "credentials.json"

    def begin(self, *arguments: str, told: str | None = f"{PASSWORD}\n") -> asyncio.Task[Result]:
        where = ("--bootstrap-servers", self._server, "--credentials", str(self.file))
        run = asyncio.to_thread(CliRunner().invoke, cli.main, ("users", *arguments, *where), input=told)
        return asyncio.create_task(run)

    async def alters(self, *error: tuple[int, str | None]) -> bytes:
        asked = await self.broker.receives(ALTER_USER_SCRAM_CREDENTIALS)
        writer = Writer()
        writer.tags()
        writer.i32(0)
        writer.array(1, FLEXIBLE)
        writer.string("alice", FLEXIBLE)
        code, message = error[0] if error else (0, None)
        writer.i16(code)
        writer.nullable_string(message, FLEXIBLE)
        writer.tags()
        writer.tags()
        asked.respond(writer.getvalue())
        return asked.frame

    async def describes(self, *known: tuple[str, int, int], error: tuple[int, str | None] = (0, None)) -> bytes:
        """`known`: user, number of the mechanism, iterations."""
        asked = await self.broker.receives(DESCRIBE_USER_SCRAM_CREDENTIALS)
        writer = Writer()
        writer.tags()
        writer.i32(0)
        writer.i16(error[0])
        writer.nullable_string(error[1], FLEXIBLE)
        writer.array(len(known), FLEXIBLE)
        for user, mechanism, iterations in known:
            writer.string(user, FLEXIBLE)
            writer.i16(0)
            writer.nullable_string(None, FLEXIBLE)
            writer.array(1, FLEXIBLE)
            writer.i8(mechanism)
            writer.i32(iterations)
            for _ in range(2):
                writer.tags()
        writer.tags()
        asked.respond(writer.getvalue())
        return asked.frame

    def knows(self, *users: tuple[str, str]) -> None:
        with changing("s", str(self.file)) as found:
            found.update({(user, mechanism): KEPT[mechanism] for user, mechanism in users})


def said(result: Result, exit_code: int = 0) -> str:
    assert result.exit_code == exit_code, result.output
    assert PASSWORD.split(",")[0] not in result.output
    return result.output


def deletions(frame: bytes) -> list[tuple[str, int]]:
    reader = Reader(frame, PEEK_SIZE)
    reader.client_id()
    reader.skip_tags()
    found = []
    for _ in range(reader.array(FLEXIBLE)):
        found.append((reader.string(FLEXIBLE), reader.i8()))
        reader.skip_tags()
    return found


@in_loop
async def test_a_user_is_added_at_the_brokers_and_then_in_the_file(tmp_path: Path) -> None:
    async with FakeCluster({}) as cluster:
        stage = Stage(cluster, tmp_path)
        adding = stage.begin("add", "alice")
        asked = [await stage.alters(), await stage.alters()]
        told = said(await adding)
    lines = [f"alice can log in by {name}: at the brokers, and by {stage.file}." for name in HASHES]
    assert told.splitlines() == lines
    kept = read("s", str(stage.file))
    assert set(kept) == {("alice", SHA_256), ("alice", SHA_512)}
    assert [kept["alice", name].salt in frame for name, frame in zip(HASHES, asked, strict=True)] == [True, True]
    assert kept["alice", SHA_256].salt != kept["alice", SHA_512].salt
    assert not any(PASSWORD.encode() in frame for frame in asked)
    assert stat.S_IMODE(stage.file.stat().st_mode) == 0o600


@in_loop
async def test_what_the_brokers_refuse_is_not_in_the_file(tmp_path: Path) -> None:
    async with FakeCluster({}) as cluster:
        stage = Stage(cluster, tmp_path)
        adding = stage.begin("add", "alice", "--mechanism", SHA_512)
        await stage.alters(REFUSED)
        told = said(await adding, 1)
    assert told == "forebay: the brokers refuse: canary of the broker (error 31)\n"
    assert os.listdir(tmp_path) == []


@in_loop
async def test_what_was_done_for_one_mechanism_stays_where_the_next_is_refused(tmp_path: Path) -> None:
    async with FakeCluster({}) as cluster:
        stage = Stage(cluster, tmp_path)
        adding = stage.begin("add", "alice")
        await stage.alters()
        await stage.alters(REFUSED)
        said(await adding, 1)
    assert set(read("s", str(stage.file))) == {("alice", SHA_256)}


@in_loop
async def test_a_broker_that_leaves_before_it_answers_leaves_the_file_as_it_is(tmp_path: Path) -> None:
    async with FakeCluster({}) as cluster:
        stage = Stage(cluster, tmp_path)
        stage.knows(("alice", SHA_256))
        before = stage.file.read_bytes()
        adding = stage.begin("add", "alice")
        (await stage.broker.receives(ALTER_USER_SCRAM_CREDENTIALS)).close()
        told = said(await adding, 1)
    assert "whether it was done is not known: do it again" in told
    assert stage.file.read_bytes() == before


@in_loop
async def test_a_file_that_cannot_be_written_is_told_before_the_brokers_are(tmp_path: Path) -> None:
    async with FakeCluster({}) as cluster:
        stage = Stage(cluster, tmp_path / "missing")
        told = said(await stage.begin("add", "alice"), 1)
        assert "cannot be written" in told
        assert stage.broker.accepted == 0


@in_loop
async def test_the_password_stands_in_a_file_that_nobody_else_can_read(tmp_path: Path) -> None:
    secret = tmp_path / "password"
    secret.touch(mode=0o600)
    secret.write_text(f"{PASSWORD}\n")
    async with FakeCluster({}) as cluster:
        stage = Stage(cluster, tmp_path)
        words = ("add", "alice", "--password-file", str(secret), "--mechanism", SHA_256)
        adding = stage.begin(*words, told=None)
        await stage.alters()
        said(await adding)
        assert set(read("s", str(stage.file))) == {("alice", SHA_256)}
        os.chmod(secret, 0o644)
        assert "can be read by others" in said(await stage.begin(*words, told=None), 1)


@pytest.mark.parametrize(
    ("arguments", "told", "why", "code"),
    [
        (("add", "alice"), "", "the password is empty", 1),
        (("add", "alice"), "\n", "the password is empty", 1),
        (("add", ""), "x", "the user's name is empty", 2),
        (("add", "alice", "--password", "x"), "x", "No such option", 2),
        (("add", "alice", "--iterations", "4095"), "x", "4096<=x<=16384", 2),
        (("add", "alice", "--mechanism", "PLAIN"), "x", "is not one of", 2),
    ],
)
@in_loop
async def test_what_cannot_be_asked_for(
    tmp_path: Path, arguments: Sequence[str], told: str, why: str, code: int
) -> None:
    async with FakeCluster({}) as cluster:
        stage = Stage(cluster, tmp_path)
        assert why in said(await stage.begin(*arguments, told=told), code)
        assert stage.broker.accepted == 0


@in_loop
async def test_a_user_is_deleted_where_there_is_one(tmp_path: Path) -> None:
    """At the brokers with one mechanism, in the file with both."""
    async with FakeCluster({}) as cluster:
        stage = Stage(cluster, tmp_path)
        stage.knows(("alice", SHA_256), ("alice", SHA_512), ("bob", SHA_512))
        deleting = stage.begin("delete", "alice")
        for _ in HASHES:
            await stage.describes(("alice", 2, 4096))
        assert deletions(await stage.alters()) == [("alice", 2)]
        assert said(await deleting) == f"alice cannot log in by {SHA_256} or {SHA_512} any more.\n"
        assert set(read("s", str(stage.file))) == {("bob", SHA_512)}
        deleting = stage.begin("delete", "alice")
        for _ in HASHES:
            await stage.describes()
        assert "alice has no password" in said(await deleting, 1)


@in_loop
async def test_what_the_brokers_keep_stays_in_the_file(tmp_path: Path) -> None:
    async with FakeCluster({}) as cluster:
        stage = Stage(cluster, tmp_path)
        stage.knows(("alice", SHA_256))
        deleting = stage.begin("delete", "alice")
        await stage.describes(("alice", 1, 4096))
        await stage.alters(REFUSED)
        assert "the brokers refuse" in said(await deleting, 1)
        assert set(read("s", str(stage.file))) == {("alice", SHA_256)}


@in_loop
async def test_users_are_listed_with_who_knows_them(tmp_path: Path) -> None:
    async with FakeCluster({}) as cluster:
        stage = Stage(cluster, tmp_path)
        stage.knows(("alice", SHA_256), ("carol", SHA_512))
        listing = stage.begin("list", "--format", "json")
        await stage.describes(("alice", 1, 8192), ("bob", 2, 4096))
        assert json.loads(said(await listing)) == [
            {"user": "alice", "mechanism": SHA_256, "brokers": 8192, "file": 4096},
            {"user": "bob", "mechanism": SHA_512, "brokers": 4096, "file": None},
            {"user": "carol", "mechanism": SHA_512, "brokers": None, "file": 4096},
        ]
        listing = stage.begin("list")
        await stage.describes(error=REFUSED)
        assert "the brokers refuse: canary of the broker (error 31)" in said(await listing, 1)


def test_the_table_says_what_is_wrong_and_no_name_speaks_to_the_terminal() -> None:
    rows = [
        Row("alice", SHA_256, 4096, 4096),
        Row("bob", SHA_256, 8192, 4096),
        Row("carol", SHA_512, None, 4096),
        Row("dave\x1b[2J", SHA_512, 4096, None),
    ]
    _, _, *lines = as_table(rows, None).splitlines()
    ends = [line.split(maxsplit=3)[3] for line in lines if line.strip("─ ")]
    assert ends == [
        "both",
        "both, but the file has 4,096 iterations: add it again",
        "file only: brokers refuse it",
        "brokers only",
    ]
    assert "\x1b" not in "".join(lines)


def test_where_no_broker_answers_each_is_named(tmp_path: Path) -> None:
    ports = free_port(), free_port()
    servers = ",".join(f"{LOOPBACK}:{port}" for port in ports)
    words = ("users", "list", "--bootstrap-servers", servers, "--credentials", str(tmp_path / "x"))
    told = said(CliRunner().invoke(cli.main, words), 1)
    assert all(str(port) in told for port in ports)
    assert told.startswith("forebay: no broker can be asked: ")


@in_loop
async def test_a_broker_without_such_users_is_told(tmp_path: Path) -> None:
    async with FakeCluster({}) as cluster:
        cluster.hidden = {ALTER_USER_SCRAM_CREDENTIALS}
        told = said(await Stage(cluster, tmp_path).begin("add", "alice"), 1)
    assert "knows no users of SCRAM" in told
