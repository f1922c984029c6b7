"""Who may read the admin endpoint, and who may change things; with TLS and over HTTP in test_admin.py."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from forebay_proxy.config.secret import Secret
from forebay_proxy.errors import StartError
from forebay_proxy.metrics.admin_access import AdminAccess, Standing
from tests.kit.app import settings
from tests.kit.certificates import Authority


def test_without_token_and_authority_everybody_may_read() -> None:
    access = AdminAccess(settings((), 1))
    assert access.standing("", None) is Standing.READER
    assert (access.context, access.expires_at) == (None, math.inf)


@pytest.mark.parametrize(
    ("shown", "admitted"),
    [
        ("Bearer t-1", True),
        ("BEARER t-1", True),
        ("Bearer t-2", False),
        ("Bearer ", False),
        ("", False),
        ("t-1", False),
    ],
)
def test_a_token_is_needed_on_loopback_too(shown: str, admitted: bool) -> None:
    access = AdminAccess(settings((), 1, admin_bearer_token=Secret("t-1")))
    assert access.standing(shown, None) is (Standing.READER if admitted else None)


def test_a_certificate_counts_only_where_an_authority_is_named(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    keystore = str(authority.issue("admin", "a.example"))
    verified = {"subject": ()}
    told = {"admin_ssl_keystore_location": keystore, "admin_bearer_token": Secret("t-1")}
    assert AdminAccess(settings((), 1, **told)).standing("", verified) is None
    by_both = AdminAccess(settings((), 1, **told, admin_ssl_truststore_location=str(authority.pem)))
    assert by_both.standing("", verified) is Standing.READER
    assert by_both.standing("", {}) is None
    only_certificates = {"admin_ssl_keystore_location": keystore, "admin_ssl_truststore_location": str(authority.pem)}
    assert AdminAccess(settings((), 1, **only_certificates)).standing("Bearer ", None) is None
    assert by_both.expires_at < math.inf


def test_a_keystore_that_is_none_is_named(tmp_path: Path) -> None:
    with pytest.raises(StartError, match=r"admin\.ssl\.keystore\.location: .*cannot be read"):
        AdminAccess(settings((), 1, admin_ssl_keystore_location=str(tmp_path / "none")))


@pytest.mark.parametrize("reading", ["", "t-1"])
def test_only_the_token_for_changes_lets_change_things_and_read_too(reading: str) -> None:
    told = {"admin_bearer_token": Secret(reading), "admin_change_token": Secret("t-2")}
    access = AdminAccess(settings((), 1, **told))
    assert access.standing("Bearer t-2", None) is Standing.CHANGER
    assert access.standing("Bearer t-1", None) is Standing.READER
    assert access.standing("Bearer t-3", None) is (None if reading else Standing.READER)


@pytest.mark.parametrize("shown", ["Bearer ", "Bearer", "", "Bearer x"])
def test_where_no_token_for_changes_is_set_none_will_do(shown: str) -> None:
    assert AdminAccess(settings((), 1)).standing(shown, None) is Standing.READER


def test_a_certificate_lets_read_only(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    told = {
        "admin_ssl_keystore_location": str(authority.issue("admin", "a.example")),
        "admin_ssl_truststore_location": str(authority.pem),
        "admin_change_token": Secret("t-2"),
    }
    assert AdminAccess(settings((), 1, **told)).standing("", {"subject": ()}) is Standing.READER
