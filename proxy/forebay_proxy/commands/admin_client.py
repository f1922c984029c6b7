"""How commands steer a Forebay that runs on this host: JSON over the Unix socket that `admin.socket` names.

In: the socket's path, what to ask. Out: what Forebay answers. Raises AdminError, one line for people, where nobody
can be asked or the answer is no.
"""

from __future__ import annotations

import http.client
from typing import Any, Final

import msgspec

from forebay_proxy.commands.admin_endpoint import AdminError
from forebay_proxy.commands.socket_http import SocketConnection
from forebay_proxy.console.entry import PREFIX

CONNECT_S: Final = 30.0
ANSWER_S: Final = 600.0
"""Where workers are replaced each may take half a minute to get ready, and to drain; who comes behind waits for it."""
MOST_BYTES: Final = 64 << 20
"""Of an answer."""


class AdminClient:
    """`path`: of the socket."""

    def __init__(self, path: str) -> None:
        self._path = path

    def ask(self, method: str, what: str, body: object | None = None) -> dict[str, Any]:
        """What /api/v1/`what` answers. Raises AdminError."""
        sent = msgspec.json.encode({} if body is None else body)
        connection = SocketConnection(self._path, connect_s=CONNECT_S, answer_s=ANSWER_S)
        try:
            connection.request(method, PREFIX + what, body=sent, headers={"Content-Type": "application/json"})
            response = connection.getresponse()
            told = response.read(MOST_BYTES)
        except TimeoutError:
            raise AdminError(f"{self._path}: no answer in time: the log says what came of it") from None
        except (OSError, http.client.HTTPException) as error:
            why = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
            raise AdminError(f"{self._path}: {why}: is Forebay running, with this admin.socket?") from None
        finally:
            connection.close()
        try:
            found: dict[str, Any] = msgspec.json.decode(told, type=dict[str, Any])
        except msgspec.DecodeError:
            raise AdminError(f"{self._path} answers with {response.status} and no JSON: is it Forebay?") from None
        if response.status >= http.HTTPStatus.BAD_REQUEST:
            raise AdminError(str(found.get("error", f"refused with {response.status}")))
        return found
