"""Clients that guess passwords as fast as they are let: `python -m tests.chaos.guesser ADDRESS CA N`.

A process of its own with N of them at a time, half by PLAIN and half by SCRAM-SHA-256, with a new connection and TLS
for each guess. Prints a line after the first refusal, and when its stdin ends how many there were. Whatever else
becomes of a connection counts for nothing.
"""

from __future__ import annotations

import ssl
import sys
import threading
from contextlib import suppress
from typing import Final

from forebay_codecs.error_codes import SASL_AUTHENTICATION_FAILED
from forebay_codecs.sasl import parse_authenticate, plain
from forebay_codecs.scram import ScramClient, salt_password
from tests.kit.login_wire import Wire, authenticate, handshake

USER: Final = "alice"
SCRAM: Final = "SCRAM-SHA-256"


def _by_plain(wire: Wire) -> bytes | None:
    if wire.say(handshake(1, "PLAIN")) is None:
        return None
    return wire.say(authenticate(plain(USER, "a guess")))


def _by_scram(wire: Wire) -> bytes | None:
    client = ScramClient(SCRAM, USER, "nonce-of-a-guess")
    if wire.say(handshake(1, SCRAM)) is None or (first := wire.say(authenticate(client.first()))) is None:
        return None
    challenge = client.challenge(parse_authenticate(first, 1).auth_bytes)
    return wire.say(authenticate(client.final(salt_password(SCRAM, "a guess", challenge))))


class _Guessers:
    def __init__(self, address: str, context: ssl.SSLContext) -> None:
        self._address = address
        self._context = context
        self._refused = 0
        self._counting = threading.Lock()
        self._over = threading.Event()

    def run(self, many: int) -> int:
        threads = [threading.Thread(target=self._guess, args=(number % 2 == 0,)) for number in range(many)]
        for thread in threads:
            thread.start()
        sys.stdin.read()
        self._over.set()
        for thread in threads:
            thread.join()
        return self._refused

    def _guess(self, by_plain: bool) -> None:
        while not self._over.is_set():
            with suppress(OSError), Wire(self._address, self._context) as wire:
                answer = (_by_plain if by_plain else _by_scram)(wire)
                if answer is not None and parse_authenticate(answer, 1).error_code == SASL_AUTHENTICATION_FAILED:
                    with self._counting:
                        self._refused += 1
                        if self._refused == 1:
                            print("refused", flush=True)


if __name__ == "__main__":
    print(_Guessers(sys.argv[1], ssl.create_default_context(cafile=sys.argv[2])).run(int(sys.argv[3])))
