"""A client logs in here, as at a broker, and again when its session is over (KIP-368).

    FIRST ──ApiVersions──▶ HANDSHAKE ◀─────────SaslHandshake, 1 s after the last one began──────────┐
      └───SaslHandshake──────┴─v1─▶ AUTHENTICATE ──the client is somebody, and the same as before──▶ DONE
                             └─v0─▶ TOKENS ───────────────────────────────────────────────────────────┘

    anything else, but in DONE ──▶ OVER

Where a certificate is the login, it begins in DONE.

In: frames of a connection whose client has not logged in, or logs in again. Out: answers in their places; who the
client is; or the connection's end, some time later, so that guessing takes time. What comes before the login and is
not part of it is not parsed. Where a broker answers, and what: Kafka's SaslServerAuthenticator.
"""

from __future__ import annotations

import asyncio
import enum
from collections.abc import Callable
from dataclasses import dataclass
from time import monotonic, time
from typing import Final

from forebay_codecs import api_versions, sasl, sasl_answers
from forebay_codecs.api_keys import API_VERSIONS, SASL_AUTHENTICATE, SASL_HANDSHAKE
from forebay_codecs.apis import APIS
from forebay_codecs.error_codes import (
    ILLEGAL_SASL_STATE,
    NONE,
    SASL_AUTHENTICATION_FAILED,
    UNSUPPORTED_SASL_MECHANISM,
)
from forebay_codecs.errors import Malformed
from forebay_codecs.frame import Head
from forebay_codecs.header import PEEK_SIZE, peek
from forebay_policies.hold_reason import HoldReason
from forebay_proxy.clients.answered_client import AnsweredClient
from forebay_proxy.clients.api_versions_answer import answer_api_versions, misreads
from forebay_proxy.clients.client_upstream import ClientUpstream
from forebay_proxy.clients.connection_life import ConnectionLife
from forebay_proxy.clients.connection_state import Cause
from forebay_proxy.clients.gateway import Gateway
from forebay_proxy.clients.login_watch import Member, Realms, nobody
from forebay_proxy.clients.request_router import LOGINS
from forebay_proxy.clients.response_orderer import ResponseOrderer, Slot
from forebay_proxy.logs import RateLimited
from forebay_proxy.metrics.traffic import LoginMetrics, TrafficMetrics
from forebay_proxy.security.authenticator import AuthenticationFailed
from forebay_proxy.security.certificate_login import CertificateLogin
from forebay_proxy.security.client_exchanges import Exchange, LoginRefused, Proved
from forebay_proxy.security.client_logins import ClientLogins
from forebay_proxy.security.logins import Login
from forebay_proxy.security.upstream_identities import UpstreamIdentities

BETWEEN_LOGINS_S: Final = 1.0
"""Brokers take no login sooner after the last."""
INTRODUCTION: Final = 4096
"""Bytes of an ApiVersions request that are kept until it is known who sent it: it names the client's software."""
_LATE: Final = "SaslAuthenticate request received after successful authentication"


@dataclass(frozen=True, slots=True)
class LoginDoor:
    """What all logins at one listener have in common. Times in seconds, sizes in bytes."""

    logins: ClientLogins
    max_receive: int
    timeout: float
    """From when a connection is accepted until its client must have proved who it is."""
    failure_delay: float
    session: float
    """For how long a login is good; 0: for ever."""
    certificates: CertificateLogin | None
    """Where a certificate is the login; None: where SASL is."""
    identities: UpstreamIdentities
    realms: Realms
    metrics: LoginMetrics


class _State(enum.Enum):
    FIRST = "first"
    HANDSHAKE = "handshake"
    AUTHENTICATE = "authenticate"
    TOKENS = "tokens"
    DONE = "done"
    OVER = "over"


class _Asked:
    """What an answer must fit: a SaslAuthenticate request of a version, or (None) a token without a header."""

    __slots__ = ("correlation_id", "slot", "version")

    def __init__(self, slot: Slot, version: int | None, correlation_id: int) -> None:
        self.slot = slot
        self.version = version
        self.correlation_id = correlation_id

    def answer(self, error_code: int, message: str, token: bytes, lifetime_ms: int = 0) -> bytes:
        if self.version is None:
            return sasl_answers.token(token)
        return sasl_answers.authenticate(self.correlation_id, self.version, error_code, message, token, lifetime_ms)


class TerminatedLogin:
    """No request of a client is taken before it has proved who it is, or once its session is over. One a connection."""

    def __init__(
        self,
        door: LoginDoor,
        gateway: Gateway,
        broker: int | None,
        client: AnsweredClient,
        orderer: ResponseOrderer,
        life: ConnectionLife,
        upstream: ClientUpstream,
        serve: Callable[[Member | None], None],
        metrics: TrafficMetrics,
        log: RateLimited,
    ) -> None:
        """`broker`: whose ApiVersions the client is told; None: any. `serve` is told whom it is a member of."""
        self._door = door
        self._gateway = gateway
        self._broker = broker
        self._client = client
        self._orderer = orderer
        self._life = life
        self._upstream = upstream
        self._serve = serve
        self._metrics = metrics
        self._log = log
        self._loop = asyncio.get_running_loop()
        self._state = _State.FIRST
        self._mechanism = ""
        self._exchange: Exchange | None = None
        self._proved: Proved | None = None
        self._login: Login | None = None
        """As whom brokers know it; None: as Forebay."""
        self._member: Member | None = None
        self._generation = 0
        self._introduction = b""
        self._expires_at: float | None = None
        """The session, by `monotonic`; None: it does not end."""
        self._began_again = float("-inf")
        self._task: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None

    def begin(self, certificate: bytes | None) -> None:
        """The connection was accepted. `certificate`: what the client has shown, in DER form."""
        if self._door.certificates is None:
            self._timer = self._loop.call_later(self._door.timeout, self._too_slow)
            return
        try:
            proved = self._door.certificates.of(certificate)
            why_not = self._enter(proved)
        except LoginRefused as error:
            why_not = str(error)
        if why_not:
            self._refuse(why_not)
        else:
            self._accepted(proved)

    @property
    def shortest(self) -> int:
        """Bytes of the shortest frame that may come."""
        return 0 if self._state is _State.TOKENS else PEEK_SIZE

    @property
    def under_way(self) -> bool:
        """Whether another request of the login must come before all others."""
        return self._state not in (_State.DONE, _State.OVER)

    # Frames

    def takes(self, head: Head) -> bool:
        """Whether a frame is the login's, or ends the connection; else it is a request of a client that may ask.

        Raises Malformed where it is none.
        """
        if self._state is not _State.DONE:
            if head.size > self._door.max_receive:
                self._refuse("a request that is too large for a login")
            return True
        if head.size < PEEK_SIZE:  # which tokens may be, and after them no request
            raise Malformed(f"a frame of {head.size} bytes")
        key, version, _ = peek(head.start, 0)
        if key == SASL_HANDSHAKE and self._may_begin_again():
            self._began_again = monotonic()
            self._state = _State.HANDSHAKE
            return self.takes(head)
        if self._expires_at is not None and monotonic() > self._expires_at:
            self._over(Cause.SESSION_OVER, client=self._life.peer)
            return True
        if self._generation != self._door.identities.generation and self._is_somebody_else():
            self._over(Cause.SESSION_OVER, client=self._life.peer)
            return True
        return key in LOGINS and APIS[key].supports(version)

    def take(self, frame: bytes) -> None:
        """One of those, whole, without its size."""
        if self._state is _State.OVER:
            return
        if self._state is _State.TOKENS:
            self._step(frame, _Asked(self._orderer.open(), None, 0))
            return
        key, version, correlation_id = peek(frame, 0)
        try:
            if self._state is _State.DONE:
                self._late(key, version, correlation_id)
            elif self._state is _State.AUTHENTICATE:
                self._authenticate(frame, key, version, correlation_id)
            else:
                self._before(frame, key, version, correlation_id)
        except Malformed as error:
            self._refuse(str(error))

    def _before(self, frame: bytes, key: int, version: int, correlation_id: int) -> None:
        if key == SASL_HANDSHAKE and APIS[key].supports(version):
            self._handshake(frame, version, correlation_id)
        elif key == API_VERSIONS and self._state is _State.FIRST:
            self._versions(frame, version, correlation_id)
        else:
            self._refuse("a request that is no login")

    def _versions(self, frame: bytes, version: int, correlation_id: int) -> None:
        self._metrics.request(APIS[API_VERSIONS].name)
        if APIS[API_VERSIONS].supports(version):  # else it asks again, in a version that it is told
            self._state = _State.HANDSHAKE
            if len(frame) <= INTRODUCTION:
                self._introduction = frame
        answer = self._client.reserve_answer()
        misread = misreads(version, _software(frame, version))
        answer_api_versions(self._gateway, self._broker, version, correlation_id, None, answer, misread=misread)

    def _handshake(self, frame: bytes, version: int, correlation_id: int) -> None:
        self._metrics.request(APIS[SASL_HANDSHAKE].name)
        mechanism = sasl.asked_mechanism(frame)
        mechanisms = self._door.logins.mechanisms
        self._exchange = self._door.logins.begin(mechanism)
        if self._exchange is None:
            answer = sasl_answers.handshake(correlation_id, UNSUPPORTED_SASL_MECHANISM, mechanisms)
            # Whom a broker knows already it tells nothing.
            slot = self._orderer.open() if self._proved is None else None
            self._refuse("a mechanism that is not in sasl.enabled.mechanisms", answer, slot)
            return
        if not self._introduction:
            self._introduction = frame
        changed = self._proved is not None and mechanism != self._proved.mechanism
        self._mechanism = mechanism
        self._state = _State.AUTHENTICATE if version else _State.TOKENS
        if changed:  # a broker says so to nobody: it closes at the next request
            self._exchange = None
        self._orderer.write(self._orderer.open(), sasl_answers.handshake(correlation_id, NONE, mechanisms), last=True)

    def _authenticate(self, frame: bytes, key: int, version: int, correlation_id: int) -> None:
        if key != SASL_AUTHENTICATE or not 0 <= version <= sasl.MAX_AUTHENTICATE_VERSION:
            self._refuse("a request that is no login")
            return
        self._metrics.request(APIS[key].name)
        token = sasl.asked_bytes(frame, version)
        self._step(token, _Asked(self._orderer.open(), version, correlation_id))

    def _late(self, key: int, version: int, correlation_id: int) -> None:
        """A login in the wrong place; the connection stays as it is."""
        self._metrics.request(APIS[key].name)
        if key == SASL_HANDSHAKE:
            answer = sasl_answers.handshake(correlation_id, ILLEGAL_SASL_STATE, ())
        else:
            answer = sasl_answers.authenticate(correlation_id, version, ILLEGAL_SASL_STATE, _LATE, b"")
        self._orderer.write(self._orderer.open(), answer, last=True)

    # The exchange

    def _step(self, token: bytes, asked: _Asked) -> None:
        if self._exchange is None:
            self._refuse("another mechanism than before", b"", asked.slot)
            return
        self._life.hold(HoldReason.LOGIN)
        self._task = self._loop.create_task(self._answer(self._exchange, token, asked))
        self._task.add_done_callback(self._answered)

    async def _answer(self, exchange: Exchange, token: bytes, asked: _Asked) -> None:
        try:
            said = await exchange.step(token)
        except (LoginRefused, Malformed) as error:
            self._fail(str(error), asked)
            return
        lifetime_ms = 0
        if said.proved is not None:
            if self._proved is not None and said.proved.principal != self._proved.principal:
                self._fail("another user than before", asked)
                return
            try:
                why_not = await self._prove(said.proved) or self._enter(said.proved)
            except LoginRefused as error:
                self._fail(str(error), asked)
                return
            if why_not:  # it is welcome to come again
                self._refuse(why_not, b"", asked.slot)
                return
            lifetime_ms = self._accepted(said.proved)
        self._orderer.write(asked.slot, asked.answer(NONE, "", said.token, lifetime_ms), last=True)
        self._life.release(HoldReason.LOGIN)

    def _answered(self, task: asyncio.Task[None]) -> None:
        self._task = None
        if not task.cancelled() and task.exception() is not None:
            self._log.error("a login could not be looked at: this is a bug in Forebay", exc_info=task.exception())
            self._over(Cause.LOGIN_REFUSED, client=self._life.peer, error="see above")

    async def _prove(self, proved: Proved) -> str:
        """Why it cannot be known now whether brokers take its login; empty: they do. Raises LoginRefused."""
        identities = self._door.identities
        login = identities.of(proved)
        if login is None or not identities.need_proof:
            return ""
        try:
            await self._door.realms.prove(login)
        except AuthenticationFailed as error:
            raise LoginRefused(f"a broker does not take the login: {error}") from None
        except OSError as error:
            return f"no broker says whether it takes the login: {error}"
        return ""

    def _enter(self, proved: Proved) -> str:
        """Into the realm of the identity that it has at brokers, where it stays. Why that cannot be now; empty: it is.

        Raises LoginRefused where it has none.
        """
        self._generation = self._door.identities.generation
        login = self._door.identities.of(proved)
        if self._proved is not None:
            return "" if login == self._login else "another identity at the brokers than before"
        self._login = login
        if login is None:
            return ""
        self._member = self._door.realms.join(login, self._gateway)
        if self._member is None:
            return "too many identities"
        self._upstream.vouch(self._member.gateway)
        self._serve(self._member)
        return ""

    def _is_somebody_else(self) -> bool:
        """Whether it is not any more to be at the brokers whom it is."""
        assert self._proved is not None
        self._generation = self._door.identities.generation
        try:
            return self._door.identities.of(self._proved) != self._login
        except LoginRefused:
            return True

    def _accepted(self, proved: Proved) -> int:
        """Returns the milliseconds after which the client must log in again; 0: never."""
        again = self._proved is not None
        self._state = _State.DONE
        self._exchange = None
        self._proved = proved
        self._stop_timer()
        limits = [self._door.session] if self._door.session else []
        if proved.expires_at:
            limits.append(max(0.0, proved.expires_at - time()))
        self._expires_at = monotonic() + min(limits) if limits else None
        self._door.metrics.accepted(proved.mechanism)
        if not again:
            principal = self._member.principal if self._member is not None else ""
            self._client.is_user(proved.principal, principal, self._introduction)
            self._introduction = b""
        return int(min(limits, default=0.0) * 1000)

    def _may_begin_again(self) -> bool:
        """Only where sessions end."""
        return self._expires_at is not None and monotonic() - self._began_again >= BETWEEN_LOGINS_S

    # Ends

    def _fail(self, why: str, asked: _Asked) -> None:
        """The words are the same whatever is wrong: they must not tell which users there are."""
        when = "re-authentication" if self._proved is not None else "authentication"
        told = f"Authentication failed during {when} due to invalid credentials with SASL mechanism {self._mechanism}"
        answer = b"" if asked.version is None else asked.answer(SASL_AUTHENTICATION_FAILED, told, b"")
        self._refuse(why, answer, asked.slot)

    def _refuse(self, why: str, answer: bytes = b"", slot: Slot | None = None) -> None:
        """End the connection, later; `answer` is written then to the `slot` that waits for one."""
        self._state = _State.OVER
        self._stop_timer()
        self._life.hold(HoldReason.LOGIN)
        self._door.metrics.refused(self._mechanism)
        self._timer = self._loop.call_later(self._door.failure_delay, self._refused, why, answer, slot)

    def _refused(self, why: str, answer: bytes, slot: Slot | None) -> None:
        if slot is not None and not self._life.state.over:
            self._orderer.write(slot, answer, last=True)
        self._over(Cause.LOGIN_REFUSED, client=self._life.peer, mechanism=self._mechanism, error=why)

    def _too_slow(self) -> None:
        self._door.metrics.timed_out(self._mechanism)
        self._over(Cause.LOGIN_TIMED_OUT, client=self._life.peer)

    def _over(self, cause: Cause, **keys: object) -> None:
        self._state = _State.OVER
        self._life.end(cause, **keys)

    def gone(self) -> None:
        """The connection has ended."""
        self._state = _State.OVER
        self._stop_timer()
        if self._task is not None:
            self._task.cancel()
        if self._member is not None:
            member, self._member = self._member, None
            member.leave()
        self._serve = nobody

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def _software(frame: bytes, version: int) -> str | None:
    try:
        return api_versions.software(frame, version)[0]
    except Malformed:  # a broker may read it
        return None
