"""Who may read the admin endpoint; with TLS and over HTTP in test_admin.py."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from forebay_proxy.config.secret import Secret
from forebay_proxy.errors import StartError
from forebay_proxy.metrics.admin_access import AdminAccess
from tests.kit.app import settings
from tests.kit.certificates import Authority


def test_without_token_and_authority_everybody_may_read() -> None:
    access = AdminAccess(settings((), 1))
    assert access.admits("", None)
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
    assert AdminAccess(settings((), 1, admin_bearer_token=Secret("t-1"))).admits(shown, None) is admitted


def test_a_certificate_counts_only_where_an_authority_is_named(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    keystore = str(authority.issue("admin", "a.example"))
    verified = {"subject": ()}
    told = {"admin_ssl_keystore_location": keystore, "admin_bearer_token": Secret("t-1")}
    assert not AdminAccess(settings((), 1, **told)).admits("", verified)
    by_both = AdminAccess(settings((), 1, **told, admin_ssl_truststore_location=str(authority.pem)))
    assert by_both.admits("", verified)
    assert not by_both.admits("", {})
    only_certificates = {"admin_ssl_keystore_location": keystore, "admin_ssl_truststore_location": str(authority.pem)}
    assert not AdminAccess(settings((), 1, **only_certificates)).admits("Bearer ", None)
    assert by_both.expires_at < math.inf


def test_a_keystore_that_is_none_is_named(tmp_path: Path) -> None:
    with pytest.raises(StartError, match=r"admin\.ssl\.keystore\.location: .*cannot be read"):
        AdminAccess(settings((), 1, admin_ssl_keystore_location=str(tmp_path / "none")))
