"""An issuer of tokens (JWT), in a thread: its keys at `jwks_url`, tokens for whoever asks at `token_url`.

with Issuer() as issuer:
    issuer.token("alice")                      # signed with its newest key
    issuer.rotate()                            # another one; the old ones stay unless keep=False
    issuer.status = 500                        # what it answers instead, 200: its keys; with `location`, if that is set
    … issuer.jwks_asked                        # how often
"""

from __future__ import annotations

import base64
import json
import ssl
import time
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from types import TracebackType
from typing import Any, Self

from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from jwt import api_jws
from jwt.algorithms import get_default_algorithms

from tests.kit.ports import LOOPBACK

ISSUER, AUDIENCE = "https://issuer.test", "kafka"
TOKEN_S = 3600
PrivateKey = rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey | ed25519.Ed25519PrivateKey


def new_key(algorithm: str = "ES256", bits: int = 2048) -> PrivateKey:
    if algorithm == "EdDSA":
        return ed25519.Ed25519PrivateKey.generate()
    if algorithm.startswith("ES"):
        curve = {"ES256": ec.SECP256R1(), "ES384": ec.SECP384R1(), "ES512": ec.SECP521R1()}[algorithm]
        return ec.generate_private_key(curve)
    return rsa.generate_private_key(65537, bits)


def jwk_of(key: PrivateKey, algorithm: str, **more: object) -> dict[str, Any]:
    told: dict[str, Any] = json.loads(get_default_algorithms()[algorithm].to_jwk(key.public_key()))
    return {name: value for name, value in told.items() if name != "key_ops"} | more


def pem_of(key: PrivateKey) -> bytes:
    return key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)


class Issuer:
    """`keys`: what it tells, by id. With `tls` it speaks HTTPS."""

    def __init__(self, tls: ssl.SSLContext | None = None, token_s: int = TOKEN_S) -> None:
        self.keys: list[dict[str, Any]] = []
        self.status = 200
        self.body: bytes | None = None
        self.location = ""
        self.token_s = token_s
        self.jwks_asked = 0
        self._key_id = 0
        self._algorithm = "ES256"
        self._server = _Server(self, tls)
        self._scheme = "http" if tls is None else "https"
        self.rotate()

    @property
    def jwks_url(self) -> str:
        return f"{self._scheme}://{LOOPBACK}:{self._server.server_port}/jwks"

    @property
    def token_url(self) -> str:
        """Gives whoever asks, with any secret, a token for the user that is the client's id."""
        return f"{self._scheme}://{LOOPBACK}:{self._server.server_port}/token"

    def rotate(self, algorithm: str = "ES256", *, keep: bool = True, bits: int = 2048) -> PrivateKey:
        """Sign with another key from now on."""
        self._key_id += 1
        self._algorithm = algorithm
        self.key = new_key(algorithm, bits)
        told = jwk_of(self.key, algorithm, kid=str(self._key_id), use="sig")
        self.keys = [*(self.keys if keep else []), told]
        return self.key

    def claims(self, user: str, **other: object) -> dict[str, object]:
        now = int(time.time())
        made = {"iss": ISSUER, "aud": AUDIENCE, "sub": user, "iat": now, "exp": now + self.token_s}
        return {name: value for name, value in {**made, **other}.items() if value is not None}

    def token(self, user: str = "alice", headers: Mapping[str, object] | None = None, **claims: object) -> str:
        """Signed with the newest key; a claim of None is left out."""
        told = {"kid": str(self._key_id), **(headers or {})}
        return api_jws.encode(json.dumps(self.claims(user, **claims)).encode(), self.key, self._algorithm, told)

    def answer(self, path: str, client: str) -> tuple[int, bytes]:
        if path == "/token":
            told: object = {"access_token": self.token(client), "token_type": "Bearer", "expires_in": self.token_s}
            return 200, json.dumps(told).encode()
        self.jwks_asked += 1
        if self.body is not None:
            return self.status, self.body
        return self.status, json.dumps({"keys": self.keys}).encode()

    def __enter__(self) -> Self:
        Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._server.shutdown()
        self._server.server_close()


class _Server(ThreadingHTTPServer):
    def __init__(self, issuer: Issuer, tls: ssl.SSLContext | None) -> None:
        super().__init__((LOOPBACK, 0), _Answers)
        self.issuer = issuer
        if tls is not None:
            self.socket = tls.wrap_socket(self.socket, server_side=True)


class _Answers(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self._answer("")

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length", "0")))  # else the answer may be lost
        login = self.headers.get("Authorization", "").removeprefix("Basic ")
        self._answer(base64.b64decode(login).decode().partition(":")[0])

    def _answer(self, client: str) -> None:
        assert isinstance(self.server, _Server)
        status, body = self.server.issuer.answer(self.path, client)
        self.send_response(status)
        self.send_header("Content-Type", "application/json")  # librdkafka reads nothing else
        self.send_header("Content-Length", str(len(body)))
        if self.server.issuer.location:
            self.send_header("Location", self.server.issuer.location)
        self.end_headers()
        try:
            self.wfile.write(body)
        except OSError:
            pass  # who asked has heard enough

    def log_message(self, *_: object) -> None: ...
