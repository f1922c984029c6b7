"""sasl_answers.py against kio in every version, and against what reads a broker's."""

from __future__ import annotations

from typing import Any

import pytest

from forebay_codecs import sasl_answers
from forebay_codecs.error_codes import NONE, SASL_AUTHENTICATION_FAILED, UNSUPPORTED_SASL_MECHANISM
from forebay_codecs.sasl import MAX_AUTHENTICATE_VERSION, parse_authenticate, parse_handshake
from tests.codecs.kio_oracle import CORRELATION_ID, decode_response, message


def whole(frame: bytes) -> bytes:
    """Without its size, which must be right."""
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    return frame[4:]


@pytest.mark.parametrize("version", [0, 1])
@pytest.mark.parametrize("mechanisms", [(), ("PLAIN",), ("SCRAM-SHA-512", "PLAIN")])
def test_a_handshake_tells_the_mechanisms_and_whether_there_is_the_one(
    version: int, mechanisms: tuple[str, ...]
) -> None:
    answer = whole(sasl_answers.handshake(CORRELATION_ID, UNSUPPORTED_SASL_MECHANISM, mechanisms))
    told = decode_response(message("sasl_handshake", version, "SaslHandshakeResponse"), answer)
    assert (told.error_code.value, told.mechanisms) == (UNSUPPORTED_SASL_MECHANISM, mechanisms)
    assert parse_handshake(answer) == (UNSUPPORTED_SASL_MECHANISM, list(mechanisms))


@pytest.mark.parametrize("version", range(MAX_AUTHENTICATE_VERSION + 1))
@pytest.mark.parametrize(
    "said", [(NONE, "", b"v=x" * 100, 3_600_000), (SASL_AUTHENTICATION_FAILED, "words", b"", 0), (NONE, None, b"", 0)]
)
def test_an_answer_has_bytes_or_an_error(version: int, said: tuple[int, str | None, bytes, int]) -> None:
    error_code, words, token, lifetime = said
    answer = whole(sasl_answers.authenticate(CORRELATION_ID, version, error_code, words, token, lifetime))
    told: Any = decode_response(message("sasl_authenticate", version, "SaslAuthenticateResponse"), answer)
    assert (told.error_code.value, told.error_message, told.auth_bytes) == (error_code, words, token)
    assert parse_authenticate(answer, version) == (error_code, words, token, lifetime if version else 0)


def test_a_token_has_its_size_only() -> None:
    assert whole(sasl_answers.token(b"token")) == b"token"
    assert sasl_answers.token(b"") == bytes(4)
