"""Translations of broker addresses for tests of the rewriters."""

from __future__ import annotations

from dataclasses import replace
from typing import Any


class Listeners:
    """Translates every broker to its own listener and remembers who was asked for."""

    def __init__(self) -> None:
        self.asked: list[tuple[int, str, int]] = []

    def __call__(self, node_id: int, host: str, port: int) -> tuple[str, int]:
        self.asked.append((node_id, host, port))
        return self.address(node_id)

    @staticmethod
    def address(node_id: int) -> tuple[str, int]:
        return "proxy.example", 9093 + node_id % 1000

    def expected(self, nodes: Any) -> Any:
        """kio's brokers or endpoints, as they should come out."""
        return tuple(self.translated(node) for node in nodes)

    def translated(self, node: Any) -> Any:
        node_id = node.broker_id if hasattr(node, "broker_id") else node.node_id
        host, port = self.address(node_id)
        return replace(node, host=host, port=port)


def identity(_node_id: int, host: str, port: int) -> tuple[str, int]:
    return host, port


def nowhere(_node_id: int, _host: str, _port: int) -> None:
    """No broker has a listener."""
    return
