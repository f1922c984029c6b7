"""SCRAM, the server's side, as Kafka's brokers have it: SCRAM-SHA-256 and SCRAM-SHA-512 without channel binding.

    first(client_first)        n,,n=user,r=nonce          → the user's name, by which the server looks for what it keeps
    challenge(credential, …)   r=nonce…,s=salt,i=iterations
    final(client_final)        c=biws,r=nonce…,p=proof    → v=signature, and the ClientKey that the proof reveals

In: what the server keeps of the user (scram_credential), and a nonce of its own, which must be new each time. What the
client says and must not, and a wrong proof, raise Malformed. Names are UTF-8 as they are: Kafka applies no SASLprep.

    ClientProof = ClientKey xor HMAC(StoredKey, AuthMessage), StoredKey = H(ClientKey)

So whoever has the StoredKey learns the ClientKey from a proof, and can log in with it elsewhere, where the user has the
same keys; the password stays unknown.
Sources: RFC 5802, RFC 7677; KIP-84; Kafka's ScramMessages, whose patterns say what is taken.
"""

from __future__ import annotations

import binascii
import hashlib
import hmac
import re
from base64 import b64decode, b64encode
from typing import Final

from forebay_codecs.errors import Malformed
from forebay_codecs.scram import HASHES
from forebay_codecs.scram_credential import ScramCredential

MAX_MESSAGE: Final = 4096
"""Bytes; names and nonces have some tens."""
SALT_SIZE: Final = 24
"""Bytes, as `forebay users add` makes salts."""
TOKEN_AUTH: Final = "tokenauth=true"
"""The extension by which a delegation token is presented (KIP-48)."""

_FIRST: Final = re.compile(
    r"n,(?:a=(?P<authzid>(?:[^=,\x00]|=2C|=3D)+))?,(?P<bare>(?:m=[^,\x00]+,)?"
    r"n=(?P<name>(?:[^=,\x00]|=2C|=3D)+),r=(?P<nonce>[\x21-\x2B\x2D-\x7E]+)(?P<extensions>(?:,[A-Za-z]+=[^,\x00]+)*))"
)
_FINAL: Final = re.compile(
    r"(?P<without>c=(?P<channel>[A-Za-z0-9+/]+={0,2}),r=(?P<nonce>[\x21-\x2B\x2D-\x7E]+)(?:,[A-Za-z]+=[^,\x00]+)*)"
    r",p=(?P<proof>[A-Za-z0-9+/]+={0,2})"
)


class ScramServer:
    """One exchange: each method once, in the order above."""

    def __init__(self, mechanism: str) -> None:
        self._hash = HASHES[mechanism]
        self._bare = self._nonce = self._first = ""
        self._credential: ScramCredential | None = None

    def first(self, message: bytes) -> str:
        """The user's name. Raises Malformed where it wants to be somebody else (authzid), or shows a token."""
        found = _FIRST.fullmatch(_text(message))
        if found is None:
            raise Malformed("SCRAM: a first message that Kafka does not take")
        name = _plain(found["name"])
        if found["authzid"] is not None and _plain(found["authzid"]) != name:
            raise Malformed("SCRAM: for somebody else than the user (authzid)")
        if TOKEN_AUTH in found["extensions"].split(","):
            raise Malformed("SCRAM: a delegation token")
        self._bare, self._nonce = found["bare"], found["nonce"]
        return name

    def challenge(self, credential: ScramCredential, nonce: str) -> bytes:
        """The server's first message; `nonce`: printable, without a comma."""
        self._credential = credential
        self._nonce += nonce
        self._first = f"r={self._nonce},s={b64encode(credential.salt).decode()},i={credential.iterations}"
        return self._first.encode()

    def final(self, message: bytes) -> tuple[bytes, bytes]:
        """(the server's final message, the user's ClientKey). Raises Malformed where the proof is wrong."""
        assert self._credential is not None
        found = _FINAL.fullmatch(_text(message))
        if found is None or found["nonce"] != self._nonce:
            raise Malformed("SCRAM: a final message that Kafka does not take")
        said = f"{self._bare},{self._first},{found['without']}".encode()
        signature = hmac.digest(self._credential.stored_key, said, self._hash)
        proof = _decoded(found["proof"])
        client_key = bytes(a ^ b for a, b in zip(proof, signature, strict=False))
        stored_key = hashlib.new(self._hash, client_key).digest()
        if len(proof) != len(signature) or not hmac.compare_digest(stored_key, self._credential.stored_key):
            raise Malformed("SCRAM: a wrong proof")
        server = b64encode(hmac.digest(self._credential.server_key, said, self._hash)).decode()
        return f"v={server}".encode(), client_key


def phantom(mechanism: str, user: str, key: bytes, iterations: int) -> ScramCredential:
    """What stands for a user that there is not, so that nobody learns which there are: the same each time he is asked
    for, and known to nobody without the `key`."""

    def derived(what: str) -> bytes:
        return hmac.digest(key, f"{what} {mechanism} {user}".encode(), HASHES[mechanism])

    return ScramCredential(derived("salt")[:SALT_SIZE], iterations, derived("stored"), derived("server"))


def _plain(name: str) -> str:
    return name.replace("=2C", ",").replace("=3D", "=")


def _text(message: bytes) -> str:
    if len(message) > MAX_MESSAGE:
        raise Malformed("SCRAM: a message that is too large")
    try:
        return message.decode()
    except UnicodeDecodeError:
        raise Malformed("SCRAM: a message that is not UTF-8") from None


def _decoded(text: str) -> bytes:
    try:
        return b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise Malformed("SCRAM: a proof that is not in base64") from None
