"""SCRAM at Forebay itself, by what a file keeps of users, as a broker keeps it (credentials_file).

In: a client's messages. Out: a challenge for whoever is named; that it knows the password; and the key by which Forebay
can log in as it, where the brokers keep the same of it. A user that there is not is challenged like the others, to the
end, so that nobody learns which there are. A broker tells so in its first answer.
"""

from __future__ import annotations

from collections import Counter
from typing import Final, NamedTuple

from forebay_codecs.scram import LEAST_ITERATIONS
from forebay_codecs.scram_server import ScramServer, phantom
from forebay_proxy.config.secret import Secret
from forebay_proxy.security.client_exchanges import LoginRefused, Proved, Said
from forebay_proxy.security.credentials_file import Credentials
from forebay_proxy.security.logins import ScramKeyLogin


class ScramUsers(NamedTuple):
    """All that is kept. `phantom_key`: what challenges for users that there are not are made with."""

    credentials: Credentials
    phantom_key: bytes

    def iterations(self, mechanism: str) -> int:
        """Those that most users have."""
        found = Counter(kept.iterations for (_, of), kept in self.credentials.items() if of == mechanism)
        return found.most_common(1)[0][0] if found else LEAST_ITERATIONS


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
                kept = phantom(mechanism, self._user, users.phantom_key, users.iterations(mechanism))
            return Said(self._server.challenge(kept, self._nonce))
        answer, client_key = self._server.final(token)
        kept = users.credentials.get((self._user, mechanism))
        if kept is None:
            raise LoginRefused("no such user")
        login = ScramKeyLogin(mechanism, self._user, Secret(client_key.hex()), kept)
        return Said(answer, Proved(self._user, mechanism, login=login))
