"""One place for a worker: its current process, the channel to it, and its last report.

A slot outlives its processes: the supervisor runs one process after the other in it (`live`), and takes over what each
of them had counted (`retire`).
"""

from __future__ import annotations

import asyncio
import socket
import sys
from asyncio.subprocess import DEVNULL, Process
from collections.abc import Callable, Sequence
from typing import Any, Final

import msgspec

from forebay_proxy import __version__
from forebay_proxy.config.settings import Settings
from forebay_proxy.logs import get_logger
from forebay_proxy.metrics.registry import Snapshot, decode
from forebay_proxy.process import handed_sockets
from forebay_proxy.process.control import (
    Ask,
    Channel,
    Commit,
    Drain,
    Dump,
    Dumped,
    Hello,
    Message,
    Prepare,
    Prepared,
    Reload,
    Renewed,
    Report,
    Share,
    StartFailed,
)
from forebay_proxy.process.lifecycle import FAILED
from forebay_proxy.security.renewals import SECRETS, Outcome

Clock = Callable[[], float]
"""Seconds; only differences count."""

SILENT_S: Final = 10.0
"""A worker whose event loop has not turned for this long makes /healthz fail."""
HUNG_S: Final = 30.0
"""After this long the worker is killed and replaced: its clients have given up by then."""
MIN_PINGS_BEFORE_KILL: Final = 30
MAX_UNANSWERED: Final = 100
"""A worker that has not answered this many questions is not asked again until it does."""
NOT_HEARD_FROM: Final = "starting"


class WorkerSlot:
    """Runs at most one process at a time, and always knows the last report of the current one.

    `index` is the worker's number, from 0; `app_path` names what makes its App (see lifecycle.load_app). What was
    `inherited` is for the first process.
    """

    def __init__(
        self,
        index: int,
        settings: Settings,
        app_path: str,
        clock: Clock,
        inherited: Sequence[socket.socket] = (),
    ) -> None:
        self.index = index
        self._clock = clock
        self.unready: str | None = NOT_HEARD_FROM
        """Why the worker cannot serve clients; None: it can."""
        self.start_failure: str | None = None
        """What a person must fix before a process can start here."""
        self.exit_code = FAILED
        """DRAINED or FAILED, once no process is to start here any more."""
        self.served = asyncio.Event()
        """Some process in this slot has served."""
        self._accepts = False
        """The process takes connections, whether or not it can serve them."""
        self.snapshot = Snapshot()
        self._hello = Hello(index, settings, app_path)
        self._process: Process | None = None
        self._channel: Channel | None = None
        self._inherited = inherited
        self._sockets: socket.socket | None = None
        """The end of a pair over which listening sockets come and go."""
        self._sharing = asyncio.Lock()
        self._drain: Drain | None = None
        """What its process is told, and every one that would follow it."""
        self._is_to_die = False
        self._asked = 0
        self._answered = 0
        self._unanswered_since = 0.0
        self._heard = asyncio.Condition()
        self._app_path = app_path
        self._dumps = 0
        self._dumped: Dumped | None = None
        """What was answered last."""
        self._reloads = 0
        self._renewed: Renewed | None = None
        """What was answered last."""
        self._prepared: Prepared | None = None
        """What was answered last."""

    @property
    def leaving(self) -> bool:
        """Whether no process is to start here any more."""
        return self._drain is not None or self._is_to_die

    @property
    def killed(self) -> bool:
        """Whether its process was to end at once, and none is to start here any more."""
        return self._is_to_die

    @property
    def running(self) -> bool:
        """Whether a process has been started here and has not exited."""
        return self._process is not None

    @property
    def process_id(self) -> int | None:
        """Of the running process; None if there is none."""
        return self._process.pid if self._process is not None else None

    def inherits(self, sockets: Sequence[socket.socket]) -> None:
        """Its first process accepts from these, and from none that it was given before and has not taken."""
        handed_sockets.close(self._inherited)
        self._inherited = sockets

    async def live(self) -> int:
        """Run one process from start to exit; its exit code, negative for the signal that killed it.

        Raises OSError where none can be started, msgspec.DecodeError where it cannot be understood. None is left then.
        """
        ours, theirs = socket.socketpair()
        try:
            with theirs:
                self._process = process = await self._started(theirs)
            self._channel = channel = await Channel.over(ours)
            channel.send(self._hello)
            if self._drain is not None:
                channel.send(self._drain)
            if self._is_to_die:
                process.kill()
            while message := await channel.receive():
                await self._hear(message)
            return await process.wait()
        finally:
            await self._clear(ours)

    async def _started(self, theirs: socket.socket) -> Process:
        self._sockets, their_sockets = socket.socketpair()
        with their_sockets:
            handed_sockets.hand(self._sockets, self._inherited)
            # A session of its own, so that a terminal's Ctrl-C reaches the supervisor only.
            ends = theirs.fileno(), their_sockets.fileno()
            command = (sys.executable, "-P", "-m", "forebay_proxy.process.worker", *map(str, ends), __version__)
            process = await asyncio.create_subprocess_exec(
                *command, stdin=DEVNULL, pass_fds=ends, start_new_session=True
            )
        self.inherits(())  # not before: who waits in them would be reset if no process had started
        return process

    async def _clear(self, ours: socket.socket) -> None:
        """Leave nothing of a process, which may not have exited, nor have started."""
        process, channel = self._process, self._channel
        if process is not None:
            self.end()
            await process.wait()
        self._process = self._channel = None
        if self._sockets is not None:
            self._sockets.close()
            self._sockets = None
        if channel is not None:
            await channel.close()
        ours.close()

    async def _hear(self, message: Message) -> None:
        if isinstance(message, StartFailed):
            self.start_failure = message.message
        elif isinstance(message, Prepared):
            async with self._heard:
                self._prepared = message
                self._heard.notify_all()
        elif isinstance(message, Renewed):
            async with self._heard:
                self._renewed = message
                self._heard.notify_all()
        elif isinstance(message, Dumped):
            async with self._heard:
                self._dumped = message
                self._heard.notify_all()
        elif isinstance(message, Report):
            told, known = decode(message.stats), self.snapshot
            if not message.details:
                told = msgspec.structs.replace(told, clients=known.clients, topics=known.topics)
            self.snapshot = told
            self.unready = message.unready
            self._accepts = message.started and not message.leaving
            if message.started:
                self.served.set()
            async with self._heard:
                self._answered = max(self._answered, message.number)  # a new process says 0
                self._unanswered_since = self._clock()
                self._heard.notify_all()

    async def retire(self) -> Snapshot:
        """Forget the process that has exited; what it had counted. Releases everyone waiting in `fresh`."""
        past, self.snapshot = self.snapshot.without_present(), Snapshot()
        self.unready = NOT_HEARD_FROM
        self._accepts = False
        async with self._heard:
            self._answered = self._asked
            self._heard.notify_all()
        return past

    def ask(self, *, details: bool = True) -> int:
        """Ask for a report, or for one without topics and clients; its number."""
        if self._channel is not None and self._asked - self._answered < MAX_UNANSWERED:
            if self._asked == self._answered:
                self._unanswered_since = self._clock()
            self._asked += 1
            self._channel.send(Ask(self._asked, details))
        return self._asked

    async def fresh(self, timeout_s: float) -> bool:
        """Ask for a report with details and wait for it; after `timeout_s` seconds, False: the last one has to do."""
        number = self.ask()
        return await self._hears(lambda: self._answered >= number, timeout_s)

    async def _hears(self, what: Callable[[], bool], timeout_s: float) -> bool:
        """Whether it comes to be so in time."""
        try:
            async with asyncio.timeout(timeout_s), self._heard:
                return await self._heard.wait_for(what)
        except TimeoutError:
            return False

    @property
    def serves(self) -> bool:
        """Whether clients can be served."""
        return self.served.is_set() and self.unready is None

    @property
    def away(self) -> bool:
        """Whether it has served, and no client can meet it now: its process has died, say, and none is up yet."""
        return self.served.is_set() and not self._accepts

    async def ready(self) -> None:
        """Returns once clients can be served."""
        async with self._heard:
            await self._heard.wait_for(lambda: self.serves)

    def silent_for(self) -> float:
        """Seconds without an answer while one is due; 0.0 if none is."""
        return self._clock() - self._unanswered_since if self._asked > self._answered else 0.0

    @property
    def hung(self) -> bool:
        """Silent for too long, and asked many times: after a pause of the whole machine nothing counts as hung."""
        return self.silent_for() > HUNG_S and self._asked - self._answered >= MIN_PINGS_BEFORE_KILL

    async def reload(self, timeout_s: float) -> list[Outcome]:
        """Have the worker read certificates and secrets again; what came of it. One that is yet to start does so."""
        if self._channel is None:
            return []
        self._reloads += 1
        number = self._reloads
        self._channel.send(Reload(number))
        if not await self._hears(
            lambda: (self._renewed is not None and self._renewed.number >= number) or not self.running, timeout_s
        ):
            return [Outcome(SECRETS, f"no answer within {timeout_s:g} s")]
        told = self._renewed
        return told.outcomes if told is not None and told.number >= number else []  # it has died

    async def prepare(self, generation: int, settings: Settings, timeout_s: float) -> str:
        """Have the worker get ready for other settings; why it cannot, empty: it is. One that is yet to start is."""
        if self._channel is None:
            return ""
        self._channel.send(Prepare(generation, settings))
        if not await self._hears(
            lambda: (self._prepared is not None and self._prepared.generation == generation) or not self.running,
            timeout_s,
        ):
            return f"no answer within {timeout_s:g} s"
        said = self._prepared
        return said.error if said is not None and said.generation == generation else ""  # it has died

    async def dump(self, timeout_s: float) -> dict[str, Any]:
        """How the worker stands; an `error` where it does not say."""
        if self._channel is None:
            return {"error": "not running"}
        self._dumps += 1
        number = self._dumps
        self._channel.send(Dump(number))
        if not await self._hears(
            lambda: (self._dumped is not None and self._dumped.number >= number) or not self.running, timeout_s
        ):
            return {"error": f"no answer within {timeout_s:g} s"}
        told = self._dumped
        if told is None or told.number < number:
            return {"error": "it has died"}
        content: dict[str, Any] = msgspec.json.decode(told.content)
        return content

    async def share(self, timeout_s: float) -> list[socket.socket]:
        """What the worker listens on; it goes on accepting. Empty: it does not say."""
        async with self._sharing:  # they come for one at a time
            over = self._sockets
            if self._channel is None:
                return []
            if over is None:
                get_logger().warning("a worker does not hand over its sockets", worker=self.index, error="it was late")
                return []
            self._channel.send(Share())
            over.settimeout(timeout_s)
            try:
                return await asyncio.to_thread(handed_sockets.take, over)
            except OSError as error:
                get_logger().warning("a worker does not hand over its sockets", worker=self.index, error=str(error))
                over.close()  # with what may still come: clients would wait in those for ever
                if self._sockets is over:
                    self._sockets = None
                return []

    def commit(self, generation: int, settings: Settings) -> None:
        """Have the worker put them into force, and all that follow it in this slot begin with them."""
        self._hello = Hello(self.index, settings, self._app_path)
        if self._channel is not None:
            self._channel.send(Commit(generation, settings))

    def drain(self, *, succeeded: bool) -> None:
        """Tell the worker to drain and exit, also one that is yet to start; `succeeded`: others accept on its ports."""
        self._drain = Drain(succeeded)
        if self._channel is not None:
            self._channel.send(self._drain)

    def kill(self) -> None:
        """Kill the process, and any that would still start in this slot."""
        self._is_to_die = True
        self.end()

    def end(self) -> None:
        """Kill the process; another one may take its place."""
        if self._process is not None and self._process.returncode is None:
            self._process.kill()
