"""SCRAM, the client's side, as Kafka speaks it: SCRAM-SHA-256 and SCRAM-SHA-512 without channel binding.

    first()                         n,,n=user,r=nonce
    challenge(server_first)         r=nonce…,s=salt,i=iterations   → salt and iterations, for `salt_password`
    final(salted_password)          c=biws,r=nonce…,p=proof
    verify(server_final)            v=signature                    → the server knows the password, too

In: the user's name, and a nonce, which must be new each time: 128 random bits, printable, without a comma. What the
server says and must not raises Malformed. Names and passwords are UTF-8 as they are: Kafka applies no SASLprep.
Sources: RFC 5802, RFC 7677; KIP-84.
"""

from __future__ import annotations

import binascii
import hashlib
import hmac
from base64 import b64decode, b64encode
from typing import Final, NamedTuple

from forebay_codecs.errors import Malformed

HASHES: Final = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
LEAST_ITERATIONS: Final = 4096
"""Kafka allows no fewer. A server that asks for fewer would make the password easy to guess from the proof."""
MOST_ITERATIONS: Final = 16_384
"""Kafka allows no more; they cost 23 ms."""
_HEADER: Final = "n,,"


class Challenge(NamedTuple):
    """What the salted password is made with."""

    salt: bytes
    iterations: int


def salt_password(mechanism: str, password: str, challenge: Challenge) -> bytes:
    """PBKDF2, which is slow by design: 2.3 ms for 4,096 iterations."""
    return hashlib.pbkdf2_hmac(HASHES[mechanism], password.encode(), challenge.salt, challenge.iterations)


class ScramClient:
    """One exchange: each method once, in the order above."""

    def __init__(self, mechanism: str, username: str, nonce: str, *, by_token: bool = False) -> None:
        """`by_token`: the user is a delegation token's id (delegation_tokens; KIP-48)."""
        self._hash = HASHES[mechanism]
        self._nonce = nonce
        name = username.replace("=", "=3D").replace(",", "=2C")
        self._first = f"n={name},r={nonce}{',tokenauth=true' if by_token else ''}"
        self._server_first = ""
        self._whole_nonce = ""
        self._signature = b""

    def first(self) -> bytes:
        """The client's first message."""
        return (_HEADER + self._first).encode()

    def challenge(self, server_first: bytes) -> Challenge:
        """The server's first message, checked."""
        self._server_first = _text(server_first)
        fields = self._server_first.split(",")
        if len(fields) < 3 or [field[:2] for field in fields[:3]] != ["r=", "s=", "i="]:
            raise Malformed("SCRAM: the broker's first message is not nonce, salt and iterations")
        self._whole_nonce, salt, iterations = (field[2:] for field in fields[:3])
        if not self._whole_nonce.startswith(self._nonce) or len(self._whole_nonce) == len(self._nonce):
            raise Malformed("SCRAM: the broker's nonce does not continue ours")
        if not (iterations.isascii() and iterations.isdigit() and len(iterations) <= 9):
            raise Malformed("SCRAM: the broker's iterations are no number")
        if not LEAST_ITERATIONS <= int(iterations) <= MOST_ITERATIONS:
            allowed = f"{LEAST_ITERATIONS} to {MOST_ITERATIONS}"
            raise Malformed(f"SCRAM: the broker asks for {int(iterations)} iterations, and only {allowed} are taken")
        return Challenge(_decoded(salt), int(iterations))

    def final(self, salted_password: bytes) -> bytes:
        """The client's final message, which proves that the password is known and does not tell it."""
        return self.final_of(self._hmac(salted_password, b"Client Key"), self._hmac(salted_password, b"Server Key"))

    def final_of(self, client_key: bytes, server_key: bytes) -> bytes:
        """The same by what is made of the password, where that is not known."""
        stored_key = hashlib.new(self._hash, client_key).digest()
        without_proof = f"c={b64encode(_HEADER.encode()).decode()},r={self._whole_nonce}"
        said = f"{self._first},{self._server_first},{without_proof}".encode()
        signature = self._hmac(stored_key, said)
        proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
        self._signature = self._hmac(server_key, said)
        return f"{without_proof},p={b64encode(proof).decode()}".encode()

    def verify(self, server_final: bytes) -> None:
        """The server's final message: nobody but who has the user's keys can have signed it."""
        field = _text(server_final).split(",")[0]
        if field.startswith("e="):
            raise Malformed(f"SCRAM: the broker refuses: {field[2:]}")
        if not field.startswith("v=") or not self._signature:
            raise Malformed("SCRAM: the broker's final message has no signature")
        if not hmac.compare_digest(_decoded(field[2:]), self._signature):
            raise Malformed("SCRAM: the broker's signature is wrong: it does not know the password")

    def _hmac(self, key: bytes, data: bytes) -> bytes:
        return hmac.digest(key, data, self._hash)


def _text(message: bytes) -> str:
    try:
        return message.decode()
    except UnicodeDecodeError:
        raise Malformed("SCRAM: the broker's message is not UTF-8") from None


def _decoded(text: str) -> bytes:
    try:
        return b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise Malformed("SCRAM: the broker's message is not in base64") from None
