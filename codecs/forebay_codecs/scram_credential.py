"""What a SCRAM server keeps of a user: enough to check who knows the password, and not enough to log in with it.

    salted password = PBKDF2(password, salt, iterations)
    StoredKey = H(HMAC(salted password, "Client Key"))
    ServerKey = HMAC(salted password, "Server Key")

Sources: RFC 5802, 3; Kafka's ScramCredential has the same four.
"""

from __future__ import annotations

import hashlib
import hmac
from typing import NamedTuple

from forebay_codecs.scram import HASHES, Challenge


class ScramCredential(NamedTuple):
    """Of one user for one mechanism. Whoever holds the ServerKey can pretend to be the server: keep it."""

    salt: bytes
    iterations: int
    stored_key: bytes
    server_key: bytes

    def __repr__(self) -> str:
        return f"ScramCredential(iterations={self.iterations}, …)"


def credential_of(mechanism: str, salted_password: bytes, challenge: Challenge) -> ScramCredential:
    """What is kept of a password that was salted (scram.salt_password) by a `challenge`."""
    hashed = HASHES[mechanism]
    client_key = hmac.digest(salted_password, b"Client Key", hashed)
    server_key = hmac.digest(salted_password, b"Server Key", hashed)
    return ScramCredential(challenge.salt, challenge.iterations, hashlib.new(hashed, client_key).digest(), server_key)
