"""The file of those who log in at Forebay by SCRAM: what a server keeps of each user and mechanism, as a broker does.

    {"version": 1, "phantom_key": "…", "credentials": [
        {"user": "alice", "mechanism": "SCRAM-SHA-512", "salt": "…", "iterations": 4096,
         "stored_key": "…", "server_key": "…"}
    ]}

`phantom_key` is made with the file, and stays: all processes derive from it with what users that there are not are
challenged. Bytes are in base64. In: a path. Out: the credentials; or the file with others, replaced as a whole, so that
who reads it meanwhile gets the old or the new one. It is made with mode 0600, and keeps its owner and mode afterwards;
one that others than its owner and group can read is refused. What a person must mend is raised as StartError, which
shows none of the contents.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import secrets
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from forebay_codecs.scram import HASHES, LEAST_ITERATIONS, MOST_ITERATIONS
from forebay_codecs.scram_credential import ScramCredential
from forebay_proxy.config.providers import read_private
from forebay_proxy.errors import StartError

MAX_BYTES: Final = 16 << 20
"""An entry takes some 300: room for twenty thousand users with two mechanisms each."""
_VERSION: Final = 1
_PHANTOM_KEY_BYTES: Final = 32

Key = tuple[str, str]
"""User, mechanism."""
Credentials = Mapping[Key, ScramCredential]


class _Entry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    user: str
    mechanism: str
    salt: bytes
    iterations: int
    stored_key: bytes
    server_key: bytes


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    version: int
    credentials: list[_Entry]
    phantom_key: bytes = b""


class Kept(NamedTuple):
    """What the file holds. `phantom_key` is empty in one that was made by hand without it."""

    credentials: Credentials
    phantom_key: bytes


def read(setting: str, path: str) -> Credentials:
    """The credentials in the file; `setting` is named where something is wrong. Raises StartError."""
    return read_all(setting, path).credentials


def read_all(setting: str, path: str) -> Kept:
    """What is in the file, as `read`."""
    try:
        return _parse(read_private(Path(path), MAX_BYTES))
    except msgspec.DecodeError as error:
        raise StartError(f"{setting}: {path} is no file of credentials: {error}") from None
    except RecursionError:
        raise StartError(f"{setting}: {path} is no file of credentials: it is nested too deeply") from None
    except ValueError as error:
        raise StartError(f"{setting}: {error}") from None


@contextmanager
def changing(setting: str, path: str) -> Iterator[dict[Key, ScramCredential]]:
    """The credentials in the file (none if there is none), to be changed in place; written when the block has ended.

    Nothing is written if it ends with an exception. That the file can be written, and that nobody else changes it, is
    known before the block begins. Raises StartError.
    """
    target = os.path.realpath(path)
    folder = os.path.dirname(target)
    with ExitStack() as stack:
        with _told(setting, path):
            lock = stack.enter_context(_locked(folder))
            beside = stack.enter_context(_beside(target))
        before = read_all(setting, target) if os.path.exists(target) else Kept({}, b"")
        found = dict(before.credentials)
        yield found
        with _told(setting, path):
            _write(beside, Kept(found, before.phantom_key or secrets.token_bytes(_PHANTOM_KEY_BYTES)))
            os.replace(beside, target)
            os.fsync(lock)


def _parse(text: str) -> Kept:
    """Raises ValueError, of which msgspec's are."""
    if (version := msgspec.json.decode(text, type=_Version).version) != _VERSION:
        raise msgspec.ValidationError(f"its version is {version}, and only {_VERSION} is known")
    found: dict[Key, ScramCredential] = {}
    file = msgspec.json.decode(text, type=_File)
    for number, each in enumerate(file.credentials):
        if (why := _wrong(each)) or (why := "is there twice" if (each.user, each.mechanism) in found else ""):
            raise msgspec.ValidationError(f"credentials[{number}] {why}")
        kept = ScramCredential(each.salt, each.iterations, each.stored_key, each.server_key)
        found[each.user, each.mechanism] = kept
    return Kept(found, file.phantom_key)


class _Version(msgspec.Struct):
    version: int


def _wrong(entry: _Entry) -> str:
    """Why nobody can log in with it; empty: they can."""
    if not entry.user:
        return "has no user"
    if entry.mechanism not in HASHES:
        return f"has a mechanism that is not {' or '.join(HASHES)}"
    if not LEAST_ITERATIONS <= entry.iterations <= MOST_ITERATIONS:
        return f"must have {LEAST_ITERATIONS} to {MOST_ITERATIONS} iterations"
    size = hashlib.new(HASHES[entry.mechanism]).digest_size
    if not entry.salt or {len(entry.stored_key), len(entry.server_key)} != {size}:
        return "has a salt or a key of a wrong length"
    return ""


@contextmanager
def _told(setting: str, path: str) -> Iterator[None]:
    try:
        yield
    except BlockingIOError:
        raise StartError(f"{setting}: {path} is being changed by another command") from None
    except OSError as error:
        raise StartError(f"{setting}: {path} cannot be written: {error.strerror or error}") from None


@contextmanager
def _locked(folder: str) -> Iterator[int]:
    """Only one at a time: what two have read and changed, one of them would undo. The folder's descriptor."""
    lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield lock
    finally:
        os.close(lock)


@contextmanager
def _beside(target: str) -> Iterator[str]:
    """A new file that can take the place of `target`, with its owner and mode; gone at the end if it has not."""
    made, name = tempfile.mkstemp(prefix=f".{os.path.basename(target)}.", dir=os.path.dirname(target))
    try:
        if os.path.exists(target):
            old = os.stat(target)
            os.fchown(made, old.st_uid, old.st_gid)
            os.fchmod(made, old.st_mode & 0o777)
        os.close(made)
        yield name
    finally:
        if os.path.exists(name):
            os.unlink(name)


def _write(path: str, all_of_it: Kept) -> None:
    entries = [
        _Entry(user, mechanism, kept.salt, kept.iterations, kept.stored_key, kept.server_key)
        for (user, mechanism), kept in sorted(all_of_it.credentials.items())
    ]
    with open(path, "wb") as file:
        file.write(
            msgspec.json.format(msgspec.json.encode(_File(_VERSION, entries, all_of_it.phantom_key)), indent=2) + b"\n"
        )
        file.flush()
        os.fsync(file.fileno())
