"""A collector of OpenTelemetry's, as far as metrics go: what it was sent by OTLP over HTTP, read by their schema."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.metrics.v1.metrics_pb2 import Metric

from tests.kit.ports import LOOPBACK

Numbers = dict[tuple[str, frozenset[tuple[str, str]]], float]
"""By name and labels."""
HANGS_S = 60.0


class Collector:
    """Takes exports on a port of its own, and answers with `status`, once it is let."""

    def __init__(self) -> None:
        self.status = 200
        self.exports: list[ExportMetricsServiceRequest] = []
        self.headers: list[dict[str, str]] = []
        self.answers = threading.Event()
        self.answers.set()
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                outer.exports.append(ExportMetricsServiceRequest.FromString(body))
                outer.headers.append(dict(self.headers))
                outer.answers.wait(HANGS_S)
                self.send_response(outer.status)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *args: object) -> None:
                """Says nothing."""

        self._server = ThreadingHTTPServer((LOOPBACK, 0), Handler)
        self.url = f"http://{LOOPBACK}:{self._server.server_port}/v1/metrics"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self.answers.set()
        self._server.shutdown()
        self._server.server_close()


@contextmanager
def collecting() -> Iterator[Collector]:
    there = Collector()
    try:
        yield there
    finally:
        there.close()


def told(export: ExportMetricsServiceRequest) -> Numbers:
    """All numbers by name and labels, as Prometheus names them."""
    found: Numbers = {}
    (resource,) = export.resource_metrics
    (scope,) = resource.scope_metrics
    for metric in scope.metrics:
        for name, labels, value in of_metric(metric):
            found[name, frozenset(labels.items())] = value
    return found


def of_metric(metric: Metric) -> Iterator[tuple[str, dict[str, str], float]]:
    kind = metric.WhichOneof("data") or ""
    for point in getattr(metric, kind).data_points:
        labels = {it.key: it.value.string_value for it in point.attributes}
        assert point.time_unix_nano > 0
        assert kind == "gauge" or 0 < point.start_time_unix_nano < point.time_unix_nano
        if kind != "histogram":
            yield metric.name, labels, point.as_double
            continue
        assert not point.HasField("min")
        assert not point.HasField("max")
        reached = 0
        for bound, count in zip([*map(float, point.explicit_bounds), float("inf")], point.bucket_counts, strict=True):
            reached += count
            yield f"{metric.name}_bucket", {**labels, "le": "+Inf" if bound == float("inf") else str(bound)}, reached
        yield f"{metric.name}_count", labels, point.count
        yield f"{metric.name}_sum", labels, point.sum
