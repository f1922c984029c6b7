"""Logs: one line per event, with keys, to stderr; never a payload.

On a terminal the lines are coloured text, without what could speak to it, elsewhere JSON, unless `log.format` says
otherwise. An event is a short fixed phrase; what varies goes into keys: `log.warning("upstream connection lost",
node=1)`.
"""

from __future__ import annotations

import io
import logging
import sys
import time
from collections.abc import Callable
from typing import Final, TextIO, cast

import structlog
from structlog.typing import EventDict, ExcInfo, FilteringBoundLogger, Processor, WrappedLogger

LEVELS: Final = {
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warning": logging.WARNING,
    "error": logging.ERROR,
}


def visible(text: str) -> str:
    """`text` with what is not to be seen escaped: names come from the wire, and must not speak to a terminal."""
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in text)


def _all_visible(_: WrappedLogger, __: str, event: EventDict) -> EventDict:
    """The renderer escapes what is in lists and the like, but prints texts as they are."""
    return {key: visible(value) if isinstance(value, str) else value for key, value in event.items()}


class _Forgiving:
    """A stream that raises nothing: a full disk, or a reader that is gone, ends nobody who logs.

    The first line that can be written again says how many could not; some of those may still come late.
    """

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._lost = 0

    def write(self, text: str) -> None:
        try:
            self._out.write(text)
            self._out.flush()
            self._lost = 0
        except (OSError, ValueError):  # ValueError: it is closed
            self._lost += 1

    def flush(self) -> None:
        """`write` has done it."""

    def own_up(self, _: WrappedLogger, __: str, event: EventDict) -> EventDict:
        return {**event, "lines_lost": self._lost} if self._lost else event


def _traceback(out: TextIO, error: ExcInfo) -> None:
    text = io.StringIO()
    structlog.dev.plain_traceback(text, error)
    out.write("\n".join(map(visible, text.getvalue().split("\n"))))


def configure(level: str, form: str, stream: TextIO | None = None) -> None:
    """Set up logging for this process.

    `level` is a key of LEVELS; `form` is auto, console or json; `stream` is stderr by default.
    """
    out = stream if stream is not None else sys.stderr
    console = form == "console" or (form == "auto" and out.isatty())
    forgiving = _Forgiving(out)
    common: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=not console),
        forgiving.own_up,
    ]
    # Neither renderer shows the local variables of a traceback: they may hold payloads.
    if console:
        last: list[Processor] = [
            _all_visible,
            structlog.dev.ConsoleRenderer(colors=out.isatty(), exception_formatter=_traceback),
        ]
    else:
        last = [structlog.processors.format_exc_info, structlog.processors.JSONRenderer()]
    structlog.configure(
        processors=[*common, *last],
        wrapper_class=structlog.make_filtering_bound_logger(LEVELS[level]),
        logger_factory=structlog.WriteLoggerFactory(file=cast(TextIO, forgiving)),
        cache_logger_on_first_use=False,
    )
    _adopt_standard_library(forgiving, common, last)


def set_level(level: str) -> None:
    """Log from this level on; a key of LEVELS."""
    structlog.configure(
        **{**structlog.get_config(), "wrapper_class": structlog.make_filtering_bound_logger(LEVELS[level])}
    )


def _adopt_standard_library(out: _Forgiving, common: list[Processor], last: list[Processor]) -> None:
    """Messages of asyncio and aiohttp (mainly unhandled exceptions) take the same form."""
    handler = logging.StreamHandler(out)
    remove_meta = structlog.stdlib.ProcessorFormatter.remove_processors_meta
    handler.setFormatter(structlog.stdlib.ProcessorFormatter(foreign_pre_chain=common, processors=[remove_meta, *last]))
    logging.root.handlers = [handler]
    logging.root.setLevel(logging.WARNING)


def get_logger(**keys: object) -> FilteringBoundLogger:
    """A logger whose events all carry `keys`."""
    logger: FilteringBoundLogger = structlog.get_logger(**keys)
    return logger


class RateLimited:
    """Logs at most `max_events` events of one kind per `window_s` seconds, so that thousands
    of failing connections do not flood the log.

    Example, max_events 2: of five failing clients in one window 2 are logged; the first one after the window follows a
    line with left_out=3. If no other event of its kind comes, `flush`, to be called now and then, logs that line.

    An event's kind is its phrase, so a phrase never holds what varies.
    """

    def __init__(
        self,
        log: FilteringBoundLogger,
        max_events: int = 5,
        window_s: float = 10.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._log = log
        self._max_events = max_events
        self._window_s = window_s
        self._clock = clock
        self._kinds: dict[str, _Kind] = {}

    def info(self, event: str, **keys: object) -> None:
        """Log at level info, or count as left out. `keys` are what varies."""
        if self._admit(event):
            self._log.info(event, **keys)

    def warning(self, event: str, **keys: object) -> None:
        """As `info`, at level warning."""
        if self._admit(event):
            self._log.warning(event, **keys)

    def error(self, event: str, **keys: object) -> None:
        """As `info`, at level error."""
        if self._admit(event):
            self._log.error(event, **keys)

    def flush(self) -> None:
        """Log what was left out in windows that have ended."""
        now = self._clock()
        for event, kind in list(self._kinds.items()):
            if now - kind.began >= self._window_s:
                del self._kinds[event]
                self._tell(event, kind)

    def _admit(self, event: str) -> bool:
        now = self._clock()
        kind = self._kinds.get(event)
        if kind is None or now - kind.began >= self._window_s:
            self._kinds[event] = _Kind(now)
            if kind is not None:
                self._tell(event, kind)
            return True
        if kind.seen < self._max_events:
            kind.seen += 1
            return True
        kind.left_out += 1
        return False

    def _tell(self, event: str, kind: _Kind) -> None:
        if kind.left_out:
            self._log.warning("similar events left out", of=event, left_out=kind.left_out, within_s=self._window_s)


class _Kind:
    """What happened to one kind of event in its current window."""

    __slots__ = ("began", "left_out", "seen")

    def __init__(self, began: float) -> None:
        self.began = began
        self.seen = 1
        self.left_out = 0
