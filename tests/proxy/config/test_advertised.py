"""Which listeners tell an address that may be gone tomorrow, and which are fine."""

from __future__ import annotations

import pytest

from forebay_proxy.config.advertised import KUBERNETES, may_strand
from tests.proxy.config.test_listeners import KEYSTORE, MAP, settings

POD = {KUBERNETES: "10.0.0.1"}


def stranding(*assignments: str, pod: bool = False) -> list[str]:
    return [listener.name for listener in may_strand(settings(*assignments), POD if pod else {})]


@pytest.mark.parametrize("pod", [False, True])
@pytest.mark.parametrize("host", ["0.0.0.0", "[::]"])
def test_on_all_addresses_it_may_be_behind_anything(host: str, pod: bool) -> None:
    assert stranding(f"listen={host}:19092", pod=pod) == ["PLAINTEXT"]


@pytest.mark.parametrize("host", ["10.1.2.3", "pod-7.forebay"])
def test_a_pods_own_address_goes_with_the_pod_and_a_machines_was_chosen(host: str) -> None:
    assert stranding(f"listen={host}:19092", pod=True) == ["PLAINTEXT"]
    assert stranding(f"listen={host}:19092") == []


@pytest.mark.parametrize("pod", [False, True])
@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "[::1]"])
def test_a_sidecars_clients_share_its_fate(host: str, pod: bool) -> None:
    assert stranding(f"listen={host}:19092", pod=pod) == []


@pytest.mark.parametrize("told", ["advertised.host=forebay", "advertised.address=b$(node).forebay:9092"])
def test_who_tells_a_host_strands_nobody(told: str) -> None:
    assert stranding("listen=0.0.0.0:19092", told, pod=True) == []


def test_each_listener_is_looked_at_by_itself() -> None:
    two = "listeners=INTERNAL://0.0.0.0:19092,EXTERNAL://0.0.0.0:19192"
    told = "listener.name.external.advertised.address=b$(node).example.org:443"
    assert stranding(two, MAP, KEYSTORE, told) == ["INTERNAL"]
