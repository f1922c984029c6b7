"""A token endpoint in a thread: tokens that nobody has signed, as only a test's Kafka takes them.

with unsigned_tokens(10) as endpoint:      # good for ten seconds
    … endpoint.url …                       # endpoint.asked: the Authorization headers that came

Whoever asks gets one, unless `endpoint.secrets` says which clients' secrets count. With `tls` it speaks HTTPS.
"""

from __future__ import annotations

import base64
import json
import ssl
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

from tests.kit.ports import LOOPBACK


class _Endpoint(ThreadingHTTPServer):
    def __init__(self, seconds: int, tls: ssl.SSLContext | None) -> None:
        super().__init__((LOOPBACK, 0), _Tokens)
        if tls is not None:
            self.socket = tls.wrap_socket(self.socket, server_side=True)
        self._scheme = "http" if tls is None else "https"
        self.seconds = seconds
        self.secrets: set[str] | None = None
        self.asked: list[str] = []
        self.given: list[str] = []
        self.shown: list[str] = []
        """The secret for which each of these was given."""

    @property
    def url(self) -> str:
        return f"{self._scheme}://{LOOPBACK}:{self.server_port}/"


class _Tokens(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        endpoint = self.server
        assert isinstance(endpoint, _Endpoint)
        login = self.headers.get("Authorization", "")
        endpoint.asked.append(login)
        secret = base64.b64decode(login.removeprefix("Basic ")).decode().partition(":")[2]
        if endpoint.secrets is not None and secret not in endpoint.secrets:
            self.send_error(401)
            return
        now = int(time.time())
        parts = ({"alg": "none"}, {"sub": "forebay", "iat": now, "exp": now + endpoint.seconds})
        encoded = [base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=").decode() for part in parts]
        token = ".".join([*encoded, ""])
        endpoint.given.append(token)
        endpoint.shown.append(secret)
        body = json.dumps({"access_token": token, "expires_in": endpoint.seconds}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None: ...


@contextmanager
def unsigned_tokens(seconds: int, tls: ssl.SSLContext | None = None) -> Iterator[_Endpoint]:
    endpoint = _Endpoint(seconds, tls)
    Thread(target=endpoint.serve_forever, daemon=True).start()
    try:
        yield endpoint
    finally:
        endpoint.shutdown()
        endpoint.server_close()
