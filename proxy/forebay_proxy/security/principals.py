"""Names for those whom brokers tell apart, by which Forebay tells them apart as well.

In: what somebody has presented to a broker. Out: a name for exactly that, the same for as long as the process lives. It
holds the user, and tells nobody the rest: what stands in for it cannot be looked up without the process's own key.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets

from forebay_proxy.security.logins import Login


def as_kafka_writes(principal: str) -> str:
    """A name of `Principals` without what stands in for the secret, as User:alice; empty for the empty name."""
    return f"User:{principal.rpartition('/')[0]}" if principal else ""


class Principals:
    """Two logins have one name only if brokers cannot tell them apart: see Login.identity."""

    def __init__(self) -> None:
        self._key = secrets.token_bytes(32)

    def of(self, login: Login) -> str:
        """The name, as in producer_batch.Lane."""
        parts = [part.encode() for part in login.identity]
        said = b"".join(len(part).to_bytes(4, "big") + part for part in parts)
        return f"{login.username}/{hmac.digest(self._key, said, hashlib.sha256).hex()}"
