"""Whether brokers can be reached, where Forebay has no login and so may not ask them for anything else.

In: addresses to try. Out: `answered`, once a broker has spoken TLS, where it is to be spoken, and ApiVersions, which
every broker answers in front of a login. Where brokers are, clients' own responses tell then.
"""

from __future__ import annotations

import asyncio
from random import Random

from forebay_codecs.errors import Malformed
from forebay_policies import retry
from forebay_proxy.brokers.broker_addresses import BrokerAddresses
from forebay_proxy.brokers.connector import Connector
from forebay_proxy.config.settings import Settings
from forebay_proxy.logs import get_logger

log = get_logger()


class BrokerProbe:
    """Asks brokers until one has answered, and none from then on: `answered` stays."""

    def __init__(self, addresses: BrokerAddresses, connector: Connector, settings: Settings, rng: Random) -> None:
        self.answered = False
        self._addresses = addresses
        self._connector = connector
        self._backoff = settings.retry_backoff_ms / 1000
        self._max_backoff = settings.retry_backoff_max_ms / 1000
        self._rng = rng

    async def run(self) -> None:
        """Ask, until cancelled."""
        tries = 0
        while not self.answered:
            error = await self._ask()
            if error is None:
                self.answered = True
                log.info("a broker answers", tries=tries)
                break
            if tries & (tries + 1) == 0:  # the first, the second, the fourth …
                log.warning("no broker answers", error=error, tries=tries + 1)
            await asyncio.sleep(retry.backoff(tries, self._backoff, self._max_backoff, self._rng))
            tries += 1
        await asyncio.Event().wait()

    async def _ask(self) -> str | None:
        """None, or why the last broker has not answered."""
        error = "none is known"
        for address in self._addresses.of(None):
            try:
                connection = await self._connector.open(*address)
            except (OSError, UnicodeError, Malformed) as failure:
                error = str(failure)
            else:
                connection.close()
                return None
        return error
