"""Every metric of the catalog, counted once."""

from __future__ import annotations

import time
from collections.abc import Callable

from forebay_proxy.metrics.catalog import METRICS
from forebay_proxy.metrics.registry import MetricRegistry


def everything(clock: Callable[[], float] = time.monotonic) -> MetricRegistry:
    """Each metric is there, with one value of each of its labels."""
    stats = MetricRegistry(clock)
    for metric in METRICS.values():
        labels = {label: (values or ("7",))[0] for label, values in metric.labels.items()}
        if metric.kind == "counter":
            stats.counter(metric.name, **labels).value += 1
        elif metric.kind == "gauge":
            stats.gauge(metric.name, lambda: 1.0, **labels)
        else:
            stats.histogram(metric.name, **labels).observe(1.0)
    return stats
