"""In which rack a client is: by the network that it comes from, else by its listener, else as Forebay itself."""

from __future__ import annotations

from collections.abc import Mapping
from ipaddress import ip_address, ip_network

from forebay_policies.rack_partitioner import NO_RACK


class ClientRacks:
    """`networks` as in the setting client.racks; `otherwise` is the rack of clients that are in none of them."""

    def __init__(self, networks: Mapping[str, str], otherwise: str) -> None:
        parsed = [(ip_network(network), rack) for network, rack in networks.items()]
        self._networks = sorted(parsed, key=lambda each: each[0].prefixlen, reverse=True)
        self._otherwise = otherwise

    def of(self, address: str) -> str:
        """Of a client at that address, by the smallest network that it is in; NO_RACK where nothing is known."""
        if not self._networks:
            return self._otherwise
        try:
            client = ip_address(address)
        except ValueError:  # it has left already
            return NO_RACK
        for network, rack in self._networks:
            if client in network:
                return rack
        return self._otherwise
