"""Counters for Prometheus."""

from collections.abc import Callable

from prometheus_client import (
    CONTENT_TYPE_LATEST,
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    ProcessCollector,
    generate_latest,
)

CONTENT_TYPE = CONTENT_TYPE_LATEST


class Metrics:
    """The counters of one server."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        self._requests = Counter(
            "abaca_requests", "Requests answered", ["method", "route", "status"], registry=self.registry
        )
        self._seconds = Histogram("abaca_request_seconds", "Time to answer", ["route"], registry=self.registry)
        self._batches = Histogram(
            "abaca_batch_histories", "Histories in a batch", buckets=(1, 2, 4, 8, 16, 32, 64), registry=self.registry
        )
        self._unknown = Counter(
            "abaca_unknown_ids", "Ids of requests that the model does not know", registry=self.registry
        )
        self._reloads = Counter("abaca_reloads", "Reloads of the models", ["result"], registry=self.registry)
        self._events = Counter("abaca_events", "Events received", ["result"], registry=self.registry)
        self._models = Gauge("abaca_model_info", "Models that are served", ["name", "version"], registry=self.registry)

    def request(self, method: str, route: str | None, status: int, seconds: float) -> None:
        """Count an answered request; addresses without a route are counted together."""
        named = route or "none"
        known = method if method in ("GET", "POST", "DELETE", "HEAD", "OPTIONS", "PUT", "PATCH") else "other"
        self._requests.labels(known, named, str(status)).inc()
        self._seconds.labels(named).observe(seconds)

    def batch(self, histories: int) -> None:
        """Count a batch."""
        self._batches.observe(histories)

    def unknown(self, ids: int) -> None:
        """Count unknown ids."""
        self._unknown.inc(ids)

    def reload(self, result: str) -> None:
        """Count a reload: done or refused."""
        self._reloads.labels(result).inc()

    def events(self, stored: int, duplicates: int) -> None:
        """Count new and repeated events."""
        self._events.labels("stored").inc(stored)
        self._events.labels("duplicate").inc(duplicates)

    def models(self, versions: dict[str, str]) -> None:
        """Set the versions that are served."""
        self._models.clear()
        for name, version in versions.items():
            self._models.labels(name, version).set(1)

    def watch_queue(self, count: Callable[[], int]) -> None:
        """Set the function that counts waiting histories."""
        Gauge("abaca_waiting_histories", "Histories in the queue", registry=self.registry).set_function(count)

    def watch_learning(self, figures: Callable[[], dict[str, int]]) -> None:
        """Set the function that gives the figures of learning: events, pairs, items."""
        for name in figures():
            gauge = Gauge(f"abaca_learned_{name}", f"{name.capitalize()} that were learned", registry=self.registry)
            gauge.set_function(lambda name=name: figures()[name])  # type: ignore[misc]

    def text(self) -> bytes:
        """All counters in the format of Prometheus."""
        return generate_latest(self.registry)
