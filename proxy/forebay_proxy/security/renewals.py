"""Certificates, keys and secrets that change: their files are watched, and what is made of them is made anew.

    a look, every LOOK_S or when told ── a file has changed, and stands still ──▶ prepared aside ──▶ put in place
                                                                                    └ fails ──▶ nothing changes

In: settings, and what is made of them (Renewable). Out: new contexts and logins for connections that begin from then
on; established ones stay. A file is known by where its links lead, so a folder that is swapped whole, as Kubernetes
does, is noticed. What fails is told once, counted, and tried again with each look, until it succeeds. A certificate
that has expired, or soon will, is used and told.
"""

from __future__ import annotations

import asyncio
import math
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from time import time
from typing import Final, Protocol

import msgspec

from forebay_proxy.config.rereading import files, reread
from forebay_proxy.config.settings import Settings
from forebay_proxy.errors import StartError
from forebay_proxy.logs import RateLimited, get_logger
from forebay_proxy.security import expiry

SECRETS: Final = "certificates and secrets"
"""All of them."""
LOOK_S: Final = 10.0
SETTLE_S: Final = 1.0
"""A file that was seen to change must stand still for so long: who writes it may not be done."""

CHANGING: Final = "its files are just being written, and are read again soon"

Seen = tuple[tuple[str, tuple[int, ...]], ...]
Commit = Callable[[], None]


class Told(Protocol):
    """Who counts what becomes of renewals; `side` is a Renewable's."""

    def renewed(self, side: str) -> None:
        """One is in place."""

    def failed(self, side: str) -> None:
        """One could not be made."""

    def watched(self, side: str, sound: Callable[[], bool]) -> None:
        """There are files; said once a side. `sound`: as they are, they can be used."""

    def expires(self, side: str, first_expiry: Callable[[], float]) -> None:
        """There may be certificates, in files or not; said once a side. When the first of that side expires."""


@dataclass(frozen=True)
class Renewable:
    """`what` is for the log; `side` one of catalog.RENEWED_SIDES; `prefixes` those of the settings it is made of.

    `prepare` makes it anew and changes nothing, in a thread: it raises StartError, or returns what puts it in place.
    `expires_at`: when the certificate in use expires, in seconds since 1970; inf: there is none.
    """

    side: str
    what: str
    prefixes: tuple[str, ...]
    prepare: Callable[[Settings], Commit]
    expires_at: Callable[[], float] = lambda: math.inf


class Outcome(msgspec.Struct, frozen=True):
    """What came of a Renewable, `of` being what it is: it is in place, or `error` says why not."""

    of: str
    error: str = ""


class Renewals:
    """What is in use has been tried, or was in use before; it is never changed, only replaced.

    Times in seconds; `environ` as for providers.
    """

    def __init__(
        self,
        settings: Settings,
        told: Told,
        look_s: float = LOOK_S,
        settle_s: float = SETTLE_S,
        environ: Mapping[str, str] = os.environ,
        time_of_day: Callable[[], float] = time,
    ) -> None:
        self._settings = settings
        self._told = told
        self._look_s = look_s
        self._settle_s = settle_s
        self._environ = environ
        self._time_of_day = time_of_day
        self._log = RateLimited(get_logger())
        self._wake = asyncio.Event()
        self._asked: asyncio.Future[list[Outcome]] | None = None
        self._added: list[Renewable] = []
        self._watched: list[_Watched] = []
        self._shown: set[str] = set()
        """Sides whose first expiry is told."""

    def add(self, renewable: Renewable) -> None:
        """Watch its files from now on: to be called before it is made for the first time."""
        self._added.append(renewable)
        paths = files(self._settings, renewable.prefixes)
        if not paths:
            return
        side = renewable.side
        if all(each.it.side != side for each in self._watched):
            self._told.watched(side, lambda: self._sound(side))
            self._show_expiry(side)
        self._watched.append(_Watched(renewable, paths, _look_at(paths)))

    def now(self) -> asyncio.Future[list[Outcome]]:
        """Make everything anew soon, whether or not a file seems to have changed: somebody says so (SIGHUP).

        What came of it; several who ask share it.
        """
        if self._asked is None:
            self._asked = asyncio.get_running_loop().create_future()
            self._wake.set()
        return self._asked

    async def run(self) -> None:
        """Look, until cancelled. All that was added has been made."""
        for it in self._added:
            self._warn_of_expiry(it)
            if math.isfinite(it.expires_at()):
                self._show_expiry(it.side)
        while True:
            try:
                async with asyncio.timeout(self._look_s):
                    await self._wake.wait()
            except TimeoutError:
                pass
            self._wake.clear()
            asked, self._asked = self._asked, None
            outcomes = [await self._look(each, asked=asked is not None) for each in self._watched]
            if asked is not None and not asked.done():
                asked.set_result(outcomes)
            self._log.flush()

    async def _look(self, each: _Watched, *, asked: bool) -> Outcome:
        seen = await asyncio.to_thread(_look_at, each.paths)
        changed = seen != each.seen
        what = each.it.what
        if not changed and not asked and each.error is None:
            return Outcome(what)
        if changed and not asked:
            await asyncio.sleep(self._settle_s)
        paths = await asyncio.to_thread(files, self._settings, each.it.prefixes)
        if paths != each.paths:  # one of them refers to others than before
            each.paths, seen = paths, await asyncio.to_thread(_look_at, paths)
        made = await asyncio.to_thread(self._prepare, each.it)
        if await asyncio.to_thread(_look_at, each.paths) != seen:
            return Outcome(what, CHANGING)  # the next look takes it
        each.seen = seen
        if isinstance(made, Exception):
            error = str(made) if isinstance(made, StartError) else f"{type(made).__name__}: {made}"
            if changed or asked or error != each.error:
                self._failed(each, error, made)
            each.error = error
        else:
            made()
            self._renewed(each.it)
            each.error = None
        return Outcome(what, each.error or "")

    def _prepare(self, it: Renewable) -> Commit | Exception:
        """In a thread: files may be slow, and a handshake takes milliseconds."""
        try:
            return it.prepare(reread(self._settings, it.prefixes, self._environ))
        except Exception as error:  # what a file can do that nobody foresaw ends no renewal but its own
            return error

    def _renewed(self, it: Renewable) -> None:
        self._told.renewed(it.side)
        expires_at = it.expires_at()
        until = "" if math.isinf(expires_at) else expiry.written(expires_at)
        self._log.info("certificates and secrets renewed", of=it.what, **({"valid_until": until} if until else {}))
        self._warn_of_expiry(it)

    def _warn_of_expiry(self, it: Renewable) -> None:
        left_s = (expires_at := it.expires_at()) - self._time_of_day()
        if left_s < expiry.SOON_S:
            event = "a certificate expires soon" if left_s > 0 else "a certificate has expired: others may refuse it"
            self._log.warning(event, of=it.what, valid_until=expiry.written(expires_at))

    def _failed(self, each: _Watched, error: str, why: Exception) -> None:
        self._told.failed(each.it.side)
        self._log.error(
            "certificates or secrets cannot be renewed: those in use stay",
            of=each.it.what,
            error=error,
            files=each.paths,
            **({} if isinstance(why, StartError) else {"exc_info": why}),
        )

    def _show_expiry(self, side: str) -> None:
        if side not in self._shown:
            self._shown.add(side)
            self._told.expires(side, lambda: min(it.expires_at() for it in self._added if it.side == side))

    def _sound(self, side: str) -> bool:
        return all(each.error is None for each in self._watched if each.it.side == side)


class _Watched:
    __slots__ = ("error", "it", "paths", "seen")

    def __init__(self, it: Renewable, paths: tuple[str, ...], seen: Seen) -> None:
        self.it = it
        self.paths = paths
        self.seen = seen
        """The files when it was last made, or was last tried to be."""
        self.error: str | None = None


def _look_at(paths: tuple[str, ...]) -> Seen:
    """What tells a file from the one that stood there before; nothing, where it cannot be told."""
    return tuple((os.path.realpath(path), _state(path)) for path in paths)


def _state(path: str) -> tuple[int, ...]:
    try:
        found = os.stat(path)
    except OSError:
        return ()
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns
