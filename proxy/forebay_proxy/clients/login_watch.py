"""Recognises a client that logs in at its broker by itself, once the broker has taken its login, by PLAIN or a token.

    SaslHandshake → SaslAuthenticate, or → the broker says yes → the client is a member of its realm
                    a raw token (v0)                            ↓ handshake again, expiry, refusal elsewhere
                                                                served untouched again, or its connection ends

In: the frames of a login, which go on as they came, and what the broker answered to each. Out: membership of the realm
of exactly the login that this broker accepted on this connection (security.logins), as long as it would let the client
go on: until the session that it told has expired (KIP-368), or until the client begins another login.
Other mechanisms, and whatever cannot be read here: the client stays as it is.
"""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic, time
from typing import Final, Protocol

from forebay_codecs import sasl
from forebay_codecs.api_keys import SASL_HANDSHAKE
from forebay_codecs.error_codes import NONE
from forebay_codecs.errors import Malformed
from forebay_proxy.clients.answered_client import AnsweredClient
from forebay_proxy.clients.client_upstream import ClientUpstream
from forebay_proxy.clients.connection_life import ConnectionLife
from forebay_proxy.clients.connection_state import Cause
from forebay_proxy.clients.gateway import Gateway
from forebay_proxy.clients.metadata_handler import MetadataHandler
from forebay_proxy.produce.handler import ProduceHandler
from forebay_proxy.security.logins import BearerLogin, Login, read_login

LARGEST_LOGIN: Final = 16_384
"""Bytes of a frame; neither a name and a password nor a token have need for more."""
SHORTEST_S: Final = 0.001
"""Of a token that the broker took for good a moment ago: its clock is not ours."""
_LIFETIME_FROM: Final = 1
"""Version of SaslAuthenticate that tells for how long the broker takes the login."""

OnResponse = Callable[[bytes], None]


class Member(Protocol):
    """One connection's place in a realm."""

    @property
    def principal(self) -> str:
        """Whose records the client's are (producer_batch.Lane)."""

    @property
    def handler(self) -> ProduceHandler:
        """Serves its Produce requests."""

    @property
    def metadata(self) -> MetadataHandler:
        """Serves its Metadata requests."""

    @property
    def gateway(self) -> Gateway:
        """Reaches brokers as the client's identity."""

    @property
    def lifetime(self) -> float:
        """Seconds for which a broker last took the login, when it was Forebay's turn; 0: for ever, or not known."""

    @property
    def refused(self) -> bool:
        """A broker does not take the login any more."""

    def leave(self) -> None:
        """The connection is a member no more. To be called once."""


class Realms(Protocol):
    """Where whoever has proved who it is becomes a member."""

    def join(self, login: Login, gateway: Gateway) -> Member | None:
        """A broker has accepted `login` on a connection that came by the listener of `gateway`. None: no room."""

    async def prove(self, login: Login) -> None:
        """Have a broker accept `login`, unless one has whose word still counts.

        Raises AuthenticationFailed, or OSError or Malformed where no broker says anything.
        """


class _Attempt:
    """One login: the mechanism that was asked for, whether the broker has it, what was presented, and when.

    The broker counts a session's time from a little later on.
    """

    __slots__ = ("began", "login", "mechanism", "offered")

    def __init__(self, mechanism: str) -> None:
        self.mechanism = mechanism
        self.offered = False
        self.began = 0.0
        self.login: Login | None = None


class LoginWatch:
    """A client is served as somebody only while its broker takes it for that one. One a connection.

    `serve` is told of the member that serves it from now on, or None.
    """

    def __init__(
        self,
        realms: Realms,
        gateway: Gateway,
        client: AnsweredClient,
        upstream: ClientUpstream,
        life: ConnectionLife,
        serve: Callable[[Member | None], None],
    ) -> None:
        self._realms = realms
        self._gateway = gateway
        self._client = client
        self._upstream = upstream
        self._life = life
        self._serve = serve
        self._attempt: _Attempt | None = None
        self._member: Member | None = None
        self._serving = False
        self._in_session = False
        """Its login was accepted, and it has not begun another: served or not, it ends with that."""
        self._since = 0.0
        self._lifetime: float | None = None
        """Seconds, as the broker told; 0: for ever; None: it does not tell this client."""
        self._gone = False

    @property
    def under_way(self) -> bool:
        """Whether another request of a login must come before all others."""
        attempt = self._attempt
        return attempt is not None and attempt.offered and attempt.login is None

    # Requests

    def admit(self, key: int) -> bool:
        """Whether a request of that API may be taken: not once the session has expired, but for another login."""
        member = self._member
        if member is None or not self._in_session or key == SASL_HANDSHAKE:
            return True
        lifetime = self._lifetime if self._lifetime is not None else member.lifetime
        if lifetime and monotonic() - self._since >= lifetime:
            self._life.end(Cause.SESSION_OVER, client=self._life.peer)
            return False
        if self._serving and member.refused and not self._client.producing:
            self._stop()
        return True

    def asked(self, frame: bytes, key: int, version: int) -> OnResponse | None:
        """A request of the login, without its size, goes to the broker. What is to be told of the answer."""
        try:
            return self._handshake(frame) if key == SASL_HANDSHAKE else self._authenticate(frame, version)
        except Malformed:  # the broker's to judge
            self._attempt = None
            return None

    def unseen(self) -> None:
        """A request of the login goes to the broker that is not looked at."""
        self._in_session = False
        self._stop()
        self._attempt = None

    def _handshake(self, frame: bytes) -> OnResponse:
        self._in_session = False
        self._stop()
        self._attempt = None
        attempt = self._attempt = _Attempt(sasl.asked_mechanism(frame))

        def answered(response: bytes) -> None:
            try:
                attempt.offered = sasl.parse_handshake(response).error_code == NONE
            except Malformed:
                attempt.offered = False

        return answered

    def _authenticate(self, frame: bytes, version: int) -> OnResponse | None:
        attempt = self._presented(sasl.asked_bytes(frame, version))
        if attempt is None:
            return None

        def answered(response: bytes) -> None:
            try:
                said = sasl.parse_authenticate(response, version)
            except Malformed:
                return
            lifetime = said.session_lifetime_ms / 1000 if version >= _LIFETIME_FROM else None
            if said.error_code != NONE:
                return
            if isinstance(attempt.login, BearerLogin) and (said.auth_bytes or lifetime == 0):
                return  # a broker tells first why it will refuse a token, and no token is for ever
            self._accepted(attempt, lifetime)

        return answered

    def token(self, token: bytes) -> OnResponse | None:
        """A token without a header goes to the broker, behind SaslHandshake v0: it says yes by one without bytes."""
        try:
            attempt = self._presented(token)
        except Malformed:
            attempt = self._attempt = None
        if attempt is None:
            return None

        def answered(response: bytes) -> None:
            if not response:
                self._accepted(attempt, None)

        return answered

    def _presented(self, token: bytes) -> _Attempt | None:
        """The login that `token` completes; None: none. Raises Malformed where it cannot be presented again."""
        attempt = self._attempt
        if attempt is None or attempt.login is not None:
            self._attempt = None  # each of these mechanisms has one token: whatever this is, it is something else
            return None
        attempt.login = read_login(attempt.mechanism, token)
        attempt.began = monotonic()
        return attempt

    # Membership

    def _accepted(self, attempt: _Attempt, lifetime: float | None) -> None:
        """The broker has said yes."""
        if attempt is not self._attempt or not attempt.offered or attempt.login is None:
            return
        self._attempt = None
        if self._gone or self._upstream.has_records:  # which what comes now must not overtake
            return
        member = self._realms.join(attempt.login, self._gateway)
        if member is None:
            return
        before, self._member = self._member, member
        changed = before is None or before.principal != member.principal
        if before is not None:
            before.leave()
        if changed and self._client.producing:
            self._life.end(Cause.SESSION_OVER, client=self._life.peer)
            return
        if lifetime is None and attempt.login.expires_at:
            lifetime = max(SHORTEST_S, attempt.login.expires_at - time())
        self._since, self._lifetime = attempt.began, lifetime
        self._serving = self._in_session = True
        self._client.served_as(member.principal)
        self._upstream.vouch(member.gateway)
        self._serve(member)

    def _stop(self) -> None:
        """It is served as nobody. If its own connection is lost from now on, so is its own login."""
        if self._serving:
            self._serving = False
            self._client.served_as("")
            self._upstream.vouched = False
            self._serve(None)

    def gone(self) -> None:
        """The connection has ended. What it sent while it was served still goes out as it (`vouched`)."""
        self._serving = False
        self._gone = True
        self._attempt = None
        if self._member is not None:
            member, self._member = self._member, None
            member.leave()
        self._serve = nobody


def nobody(member: Member | None) -> None:
    """Serves a connection that has ended."""
