"""SCRAM at Forebay itself, by what a file keeps of users, as a broker keeps it (credentials_file).

In: a client's messages. Out: a challenge for whoever is named; that it knows the password; and the key by which Forebay
can log in as it, where the brokers keep the same of it. A user that there is not is challenged like the others, to the
end, so that nobody learns which there are. A broker tells so in its first answer.
"""

from __future__ import annotations

from collections import Counter
from typing import Final

from forebay_codecs.scram import LEAST_ITERATIONS
from forebay_codecs.scram_credential import ScramCredential
from forebay_codecs.scram_server import ScramServer, phantom
from forebay_proxy.config.secret import Secret
from forebay_proxy.security.client_exchanges import LoginRefused, Proved, Said
from forebay_proxy.security.credentials_file import Credentials
from forebay_proxy.security.logins import ScramKeyLogin


class ScramUsers:
    """All that is kept. `phantom_key`: what challenges for users that there are not are made with."""

    def __init__(self, credentials: Credentials, phantom_key: bytes) -> None:
        self.credentials = credentials
        self._phantom_key = phantom_key
        counted = Counter((mechanism, kept.iterations) for (_, mechanism), kept in credentials.items())
        self._usual = {mechanism: iterations for (mechanism, iterations), _ in reversed(counted.most_common())}
        """Mechanism → the iterations that most users have."""

    def phantom(self, mechanism: str, user: str) -> ScramCredential:
        """Of a user that there is not: it takes as long, whoever there is."""
        return phantom(mechanism, user, self._phantom_key, self._usual.get(mechanism, LEAST_ITERATIONS))


NOBODY: Final = ScramUsers({}, b"")


class ScramExchange:
    """One login: two messages of the client. `nonce`: new each time, printable, without a comma."""

    def __init__(self, mechanism: str, users: ScramUsers, nonce: str) -> None:
        self._mechanism = mechanism
        self._users = users
        self._nonce = nonce
        self._server = ScramServer(mechanism)
        self._user: str | None = None

    async def step(self, token: bytes) -> Said:
        """Answer the client's next message (client_exchanges.Exchange)."""
        users, mechanism = self._users, self._mechanism
        if self._user is None:
            self._user = self._server.first(token)
            kept = users.credentials.get((self._user, mechanism))
            if kept is None:
                kept = users.phantom(mechanism, self._user)
            return Said(self._server.challenge(kept, self._nonce))
        answer, client_key = self._server.final(token)
        kept = users.credentials.get((self._user, mechanism))
        if kept is None:
            raise LoginRefused("no such user")
        login = ScramKeyLogin(mechanism, self._user, Secret(client_key.hex()), kept)
        return Said(answer, Proved(self._user, mechanism, login=login))
