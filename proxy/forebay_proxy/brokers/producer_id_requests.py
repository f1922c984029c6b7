"""Asks brokers for the producer ids that batches are sent under (InitProducerId, KIP-98).

In: the kinds of queues that need one, as policies.idempotence says. Out: their ids. Any broker gives them out. One that
cannot, for now, is asked again, or another one, with backoff, and one that hangs has another asked beside it; batches
leave without ids meanwhile. Where brokers do not let this user have ids, or know none, that is logged once, and asked
again every few minutes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from random import Random
from typing import Final

from forebay_codecs import error_codes as codes
from forebay_codecs.api_keys import INIT_PRODUCER_ID
from forebay_codecs.errors import Malformed
from forebay_codecs.init_producer_id import (
    MAX_VERSION,
    ProducerIdResponse,
    encode_init_producer_id,
    parse_init_producer_id,
)
from forebay_policies import retry
from forebay_policies.idempotence import MAX_EPOCH, MAX_IDS, ProducerIds
from forebay_policies.throttling import CLIENT_ID
from forebay_proxy.brokers.broker_addresses import BrokerAddresses
from forebay_proxy.brokers.connector import Connector
from forebay_proxy.brokers.upstream_connection import UpstreamConnection
from forebay_proxy.config.settings import HostPort, Settings
from forebay_proxy.logs import get_logger
from forebay_proxy.metrics.registry import MetricRegistry

log = get_logger()

BESIDE_S: Final = 0.5
"""A broker that has not answered by then has another asked beside it, as for metadata."""
AT_ONCE: Final = 2
AGAIN_S: Final = 300.0
"""From a refusal to the next attempt: somebody may have granted the permission, or upgraded the brokers."""

FIRST_EPOCHS: Final = MAX_EPOCH // 2
"""An id begins with a random one of so many: another cluster behind the same addresses, or this one wiped, gives out
the same ids again, and would take our batches for repeats of those of another producer, which begins with 0."""

_REFUSED: Final = frozenset({codes.CLUSTER_AUTHORIZATION_FAILED, codes.UNSUPPORTED_VERSION})


class _Refused(Exception):
    """A broker lets this user have no ids, or knows none."""

    def __init__(self, error_code: int) -> None:
        self.error_code = error_code


class ProducerIdRequests:
    """Sees to it that each kind that wants an id gets one. As long as none is given, batches leave without."""

    def __init__(
        self,
        ids: ProducerIds,
        addresses: BrokerAddresses,
        connector: Connector,
        settings: Settings,
        stats: MetricRegistry,
        rng: Random,
        has_sent: Callable[[], bool],
    ) -> None:
        """`has_sent`: whether there have been batches that could have had ids."""
        self._ids = ids
        self._addresses = addresses
        self._connector = connector
        self._backoff = settings.retry_backoff_ms / 1000
        self._max_backoff = settings.retry_backoff_max_ms / 1000
        self._rng = rng
        self._wake = asyncio.Event()
        self._refused = stats.counter("forebay_errors_total", side="upstream", kind="idempotence")
        self._told = False
        """It was logged that there are none."""
        stats.gauge("forebay_producer_ids", lambda: ids.count)
        stats.gauge("forebay_identities_without_producer_ids", lambda: not ids.count and has_sent())
        stats.counter_from("forebay_producer_epoch_bumps_total", lambda: ids.bumps)

    async def run(self) -> None:
        """Ask for what is wanted, until cancelled."""
        ids = self._ids
        ids.observe(self._wake.set)
        tries = 0
        ran_out = False
        while True:
            self._wake.clear()
            if ids.ran_out and not ran_out:
                ran_out = True
                log.warning(
                    "no more producer ids: batches of further client ids whose answer is lost are not sent again",
                    most=MAX_IDS,
                    user=self._connector.username,
                )
            if not ids.wanted:
                with suppress(TimeoutError):
                    async with asyncio.timeout(AGAIN_S):
                        await self._wake.wait()
                if not ids.enabled:
                    ids.enable()
                continue
            error = await self._ask()
            if error:
                if tries & (tries + 1) == 0:  # the first, the second, the fourth …
                    log.info("no producer id yet", error=error, tries=tries + 1)
                await asyncio.sleep(retry.backoff(tries, self._backoff, self._max_backoff, self._rng))
                tries += 1
            else:
                tries = 0

    async def _ask(self) -> str:
        """Ask one broker after the other for all that are wanted, and the next beside one that takes its time.

        Empty: there is an answer; else why the last broker gave none. One that refuses ends it, but for whom is asked
        already.
        """
        error, refusal = "no broker is known", codes.NONE
        asking: set[asyncio.Task[str]] = set()
        addresses = self._addresses.of(None)
        loop = asyncio.get_running_loop()
        try:
            while addresses or asking:
                if addresses and len(asking) < AT_ONCE:
                    asking.add(loop.create_task(self._ask_at(addresses.pop(0), last_first=bool(asking))))
                alone = bool(addresses) and len(asking) < AT_ONCE
                done, asking = await asyncio.wait(
                    asking, timeout=BESIDE_S if alone else None, return_when=asyncio.FIRST_COMPLETED
                )
                for each in done:
                    try:
                        error = each.result()
                    except _Refused as refused:
                        refusal = refused.error_code
                        addresses.clear()
                        continue
                    if not error:
                        return ""
        finally:
            for each in asking:
                each.cancel()
        if refusal:
            self._give_up(refusal)
            return ""
        return error

    async def _ask_at(self, address: HostPort, *, last_first: bool) -> str:
        try:
            connection = await self._connector.open(*address)
            try:
                return await self._ask_on(connection, last_first=last_first)
            finally:
                connection.close()
        except (OSError, UnicodeError, Malformed) as failure:
            return str(failure)

    async def _ask_on(self, connection: UpstreamConnection, *, last_first: bool) -> str:
        wanted = list(self._ids.wanted)
        for kind in reversed(wanted) if last_first else wanted:  # two that are both well meet in the middle
            if kind not in self._ids.wanted:
                continue
            answer = await _init_producer_id(connection)
            if answer.error_code in _REFUSED:
                raise _Refused(answer.error_code)
            if answer.error_code != codes.NONE:
                return f"error code {answer.error_code}"
            if kind not in self._ids.wanted:  # another broker, asked beside this one, was faster
                continue
            first = answer.producer_epoch + self._rng.randint(1, FIRST_EPOCHS)
            self._ids.arrived(kind, answer.producer_id, min(first, MAX_EPOCH))
        if self._told:
            self._told = False
            log.info("brokers give out producer ids again", user=self._connector.username)
        return ""

    def _give_up(self, error_code: int) -> None:
        self._ids.disable()
        self._refused.value += 1
        if not self._told:
            self._told = True
            log.warning(
                "brokers give out no producer ids: a batch of this user whose answer is lost is not sent again",
                user=self._connector.username,
                error_code=error_code,
            )


async def _init_producer_id(connection: UpstreamConnection) -> ProducerIdResponse:
    """A broker's answer; UNSUPPORTED_VERSION where it does not know the request. Raises OSError or Malformed."""
    lowest, highest = connection.versions.get(INIT_PRODUCER_ID, (0, -1))
    version = min(MAX_VERSION, highest)
    if version < lowest:
        return ProducerIdResponse(codes.UNSUPPORTED_VERSION, -1, -1)
    answer = await connection.call(lambda correlation_id: encode_init_producer_id(correlation_id, CLIENT_ID, version))
    return parse_init_producer_id(answer, version)
