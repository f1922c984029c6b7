"""What is kept of a password: someone else's SCRAM derives the same, and nobody is shown it."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scramp import ScramMechanism

from forebay_codecs.scram import HASHES, Challenge, salt_password
from forebay_codecs.scram_credential import ScramCredential, credential_of


@pytest.mark.parametrize("mechanism", HASHES)
@given(
    password=st.text("abcXYZ019 =,!é", min_size=1).filter(lambda text: text == text.strip()),
    salt=st.binary(min_size=12),
)
@settings(max_examples=10, deadline=None)
def test_someone_elses_scram_keeps_the_same(mechanism: str, password: str, salt: bytes) -> None:
    challenge = Challenge(salt, 4096)
    made = credential_of(mechanism, salt_password(mechanism, password, challenge), challenge)
    kept_salt, stored_key, server_key, iterations = ScramMechanism(mechanism).make_auth_info(password, 4096, salt)
    assert made == ScramCredential(kept_salt, iterations, stored_key, server_key)


def test_keys_are_not_shown() -> None:
    shown = f"{ScramCredential(b'salt', 4096, b'stored-key', b'server-key')!r}"
    assert "key" not in shown
    assert "4096" in shown
