"""Requests that were gathered whole: each is answered here, or goes to the client's broker as it came.

frame ┬ ApiVersions → answered here, or upstream for a client with a login of its own
      ├ Metadata    → metadata handler ┐
      ├ Produce     → produce handler  ┴ not theirs, or not to be read here → upstream
      ├ checked     → refused, or upstream
      └ login       → upstream, and whoever recognises clients is told
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

from forebay_codecs import metadata_request, produce_request, producers_only
from forebay_codecs.apis import Api
from forebay_codecs.errors import Malformed
from forebay_codecs.header import peek
from forebay_codecs.produce_request import ProduceRequest
from forebay_proxy.clients.answered_client import AnsweredClient
from forebay_proxy.clients.api_versions_answer import answer_api_versions, misreads
from forebay_proxy.clients.client_identity import ClientIdentity
from forebay_proxy.clients.client_upstream import ClientUpstream
from forebay_proxy.clients.connection_context import ConnectionContext
from forebay_proxy.clients.divided_upstream import DividedUpstream
from forebay_proxy.clients.login_watch import LoginWatch, Member
from forebay_proxy.clients.request_router import Route
from forebay_proxy.clients.response_orderer import Slot
from forebay_proxy.produce.handler import ACKS

_PRODUCE: Final = Route.PRODUCE
_API_VERSIONS: Final = Route.API_VERSIONS
_LOGIN: Final = Route.LOGIN
_TOKEN: Final = Route.TOKEN
"""Members of an enum are looked up anew wherever they are named."""


class GatheredRequests:
    """Each frame is answered in its place or passed on, once; none is lost because it cannot be read here.

    `broker` is the one that the client's own upstream connection goes to; None: any.
    """

    def __init__(
        self,
        shared: ConnectionContext,
        client: AnsweredClient,
        upstream: ClientUpstream,
        who: ClientIdentity,
        broker: int | None,
    ) -> None:
        self._shared = shared
        self.handler = shared.handler
        self._metadata_handler = shared.metadata
        self.logins: LoginWatch | None = None
        """Recognises clients that log in themselves; None: they are not to be."""
        self._client = client
        self._upstream = upstream
        self._who = who
        self._broker = broker
        self._divided = upstream if isinstance(upstream, DividedUpstream) else None

    def serve(self, member: Member | None) -> None:
        """From now on requests are answered by the realm that the client is a member of; None: of none."""
        self.handler = member.handler if member is not None else self._shared.handler
        self._metadata_handler = member.metadata if member is not None else self._shared.metadata

    def take(self, frame: bytes, api: Api, route: Route, peer: str) -> None:
        """`frame` without its size, of an API that goes by `route`; `peer` is the client's address, for the log."""
        if route is _TOKEN:
            self._upstream.expect_token(frame, self.logins.token(frame) if self.logins is not None else None)
            self._pass_on(frame)
            return
        _, version, correlation_id = peek(frame, 0)
        if route is _LOGIN and self.logins is not None:
            self._upstream.expect(api, version, correlation_id, self.logins.asked(frame, api.key, version))
            self._pass_on(frame)
            return
        if route is _API_VERSIONS and self._upstream.own_login and api.supports(version):
            # In front of a login its broker expects it on this very connection, at most once.
            told = partial(self._told_by_others, version, correlation_id)
            self._upstream.unreached = told if misreads(version, self._who.software) else None
            self._forward(frame, api, version, correlation_id, acks_0=False)
            return
        if route is _API_VERSIONS:
            admin = self._shared.admin if self._who.is_own_command else None
            answer, misread = self._client.reserve_answer(), misreads(version, self._who.software)
            gateway = self._shared.gateway
            answer_api_versions(gateway, self._broker, version, correlation_id, admin, answer, misread=misread)
            return
        acks: int | None = None
        try:
            if route is _PRODUCE:
                request = produce_request.parse(frame)
                acks = request.acks
                handled = self._produce(frame, request)
            else:
                handled = self._metadata(frame) if route is Route.METADATA else self._refused(frame)
        except Malformed as error:  # by us; the broker may think otherwise
            self._shared.metrics.unread(api.name)
            self._shared.log.info("a request goes on unread", client=peer, api=api.name, error=str(error))
            handled = False
            if route is _PRODUCE:
                acks = produce_request.peek_acks(frame)
        if not handled:
            self._forward(frame, api, version, correlation_id, acks_0=acks == 0)

    def _told_by_others(self, version: int, correlation_id: int, slot: Slot) -> None:
        gateway, answer = self._shared.gateway, self._client.answer_in(slot)
        another = gateway.another_node(self._broker)
        answer_api_versions(gateway, another, version, correlation_id, None, answer, misread=True)

    def _metadata(self, frame: bytes) -> bool:
        if self._client.own_login:  # what a client may know of is the broker's to say
            return False
        return self._metadata_handler.handle(self._client, frame, metadata_request.parse_metadata_request(frame))

    def _produce(self, frame: bytes, request: ProduceRequest) -> bool:
        # Acks that there are not: the broker's to refuse, if it knows the version.
        unheard_of = request.acks not in ACKS and request.version >= produce_request.RECORD_BATCHES_FROM
        if unheard_of:
            return False
        return self.handler.handle(self._client, frame, request) or self._divide(frame, request)

    def _divide(self, frame: bytes, request: ProduceRequest) -> bool:
        """Untouched, but for several brokers. False: it goes to one, as it came."""
        if self._divided is None:
            return False
        answer = self._client.reserve_answer() if request.acks else _to_nobody
        heard = self._client.heard()
        self._divided.produce(frame, request, answer if heard is None else _heard_first(heard, answer))
        return True

    def _refused(self, frame: bytes) -> bool:
        """It is no producer's."""
        refusal = producers_only.refusal(frame)
        if refusal is None:
            return False
        self._client.reserve_answer()(refusal)
        return True

    def _forward(self, frame: bytes, api: Api, version: int, correlation_id: int, *, acks_0: bool) -> None:
        if acks_0:
            self._upstream.expect_none()
        else:
            self._upstream.expect(api, version, correlation_id, self._client.heard())
        self._pass_on(frame)

    def _pass_on(self, frame: bytes) -> None:
        self._upstream.pass_on(len(frame).to_bytes(4, "big"))
        self._upstream.pass_on(frame)


def _to_nobody(answer: bytes | None) -> None:
    """There is no answer to records without acks."""


def _heard_first(
    heard: Callable[[bytes], None], answer: Callable[[bytes | None], None]
) -> Callable[[bytes | None], None]:
    def told(frame: bytes | None) -> None:
        if frame is not None:
            heard(frame[4:])  # without its size
        answer(frame)

    return told
