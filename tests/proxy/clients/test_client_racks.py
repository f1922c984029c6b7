"""The smallest network that a client is in says where it is."""

from __future__ import annotations

import pytest

from forebay_policies.rack_partitioner import NO_RACK
from forebay_proxy.clients.client_racks import ClientRacks

NETWORKS = {"10.0.0.0/8": "elsewhere", "10.1.0.0/16": "az-a", "10.1.2.0/24": "az-b", "fd00:2::/32": "az-c"}


@pytest.mark.parametrize(
    ("address", "rack"),
    [
        ("10.9.9.9", "elsewhere"),
        ("10.1.9.9", "az-a"),
        ("10.1.2.9", "az-b"),
        ("fd00:2:3::4", "az-c"),
        ("fd00:3::4", "own"),
        ("192.168.0.1", "own"),
        ("", NO_RACK),
    ],
)
def test_the_smallest_network_counts(address: str, rack: str) -> None:
    assert ClientRacks(NETWORKS, "own").of(address) == rack


def test_without_networks_all_are_where_forebay_is() -> None:
    assert ClientRacks({}, "own").of("10.1.2.3") == "own"
    assert ClientRacks({}, NO_RACK).of("10.1.2.3") == NO_RACK
