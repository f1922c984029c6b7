"""Every error that a broker may answer to Produce, in terms of clients of old."""

from __future__ import annotations

import pytest

from forebay_codecs import error_codes as codes
from forebay_codecs.old_error_codes import ALIKE, KNOWN, known_to

EVERY = range(-1, 135)
TRIED_AGAIN_BY_0_8_2_2 = {1, 2, 3, 5, 6, 7, 13, 19, 20}
"""What is a RetriableException there."""


@pytest.mark.parametrize("version", range(3))
def test_an_old_client_is_told_nothing_that_it_does_not_know(version: int) -> None:
    assert all(known_to(version, code) in KNOWN[version] for code in EVERY)


@pytest.mark.parametrize("version", range(3))
def test_what_it_knows_it_is_told(version: int) -> None:
    assert all(known_to(version, code) == code for code in KNOWN[version])


@pytest.mark.parametrize("version", range(3, 13))
def test_newer_clients_are_told_all(version: int) -> None:
    assert all(known_to(version, code) == code for code in EVERY)


@pytest.mark.parametrize("version", range(3))
def test_an_error_stays_an_error(version: int) -> None:
    assert all(known_to(version, code) != codes.NONE for code in EVERY if code)


@pytest.mark.parametrize("code", ALIKE)
def test_what_is_tried_again_stays_so(code: int) -> None:
    assert {known_to(version, code) for version in range(3)} - {code} <= TRIED_AGAIN_BY_0_8_2_2
