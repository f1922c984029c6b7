"""Whether metrics are pushed somewhere, and by what: the library for it is an extra."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import Protocol

from prometheus_client.metrics_core import Metric as Family

from forebay_proxy import __version__
from forebay_proxy.config.settings import Settings
from forebay_proxy.errors import StartError
from forebay_proxy.metrics.registry import MetricRegistry


class Runs(Protocol):
    """Something that goes on beside all else."""

    async def run(self) -> None:
        """Does not return."""


def otlp_export(
    settings: Settings, families: Callable[[], Awaitable[Iterable[Family]]], stats: MetricRegistry
) -> Runs | None:
    """What exports to `otlp.endpoint`; None where there is none. Raises StartError without the extra."""
    if not settings.otlp_endpoint:
        return None
    try:
        from forebay_proxy.metrics.otlp import OtlpExport
    except ImportError as error:
        raise StartError(
            f"otlp.endpoint: {error.name} is missing: pip install '.[otlp]' in a clone of Forebay"
        ) from error
    return OtlpExport(settings.otlp_endpoint, settings.otlp_interval_ms / 1000, families, stats, __version__)
