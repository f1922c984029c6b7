"""What aiohttp's server says of the admin endpoint, in the form of our log and as seldom.

In: its log records. Out: events of a RateLimited. The parser's errors quote what was sent, an Authorization header for
one, before anybody is admitted: of those only the kind is said.
"""

from __future__ import annotations

import logging

from aiohttp.http import HttpProcessingError
from aiohttp.web import RequestPayloadError

from forebay_proxy.logs import RateLimited


def admin_log(log: RateLimited) -> logging.Logger:
    """A logger for the server, which nobody else has."""
    logger = logging.Logger("admin", logging.WARNING)
    logger.addHandler(_Saying(log))
    return logger


class _Saying(logging.Handler):
    def __init__(self, log: RateLimited) -> None:
        super().__init__()
        self._log = log

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None
        if isinstance(error, (HttpProcessingError, RequestPayloadError)):
            client = record.args[0] if isinstance(record.args, tuple) and record.args else None
            self._log.warning("admin endpoint cannot read a request", client=client, error=type(error).__name__)
        else:
            self._log.error("admin endpoint fails at a request", message=record.getMessage(), exc_info=error)
