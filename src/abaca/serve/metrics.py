"""What Prometheus reads."""

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


class Meters:
    """The server's own registry of counters."""

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
            "abaca_unknown_ids", "Ids of questions that the model does not know", registry=self.registry
        )
        self._reloads = Counter("abaca_reloads", "Reloads of the models", ["result"], registry=self.registry)
        self._events = Counter("abaca_events", "Events taken in", ["result"], registry=self.registry)
        self._models = Gauge("abaca_model_info", "Models that are served", ["name", "version"], registry=self.registry)

    def request(self, method: str, route: str | None, status: int, seconds: float) -> None:
        """A request was answered; addresses that are no route are counted together."""
        named = route or "none"
        known = method if method in ("GET", "POST", "DELETE", "HEAD", "OPTIONS", "PUT", "PATCH") else "other"
        self._requests.labels(known, named, str(status)).inc()
        self._seconds.labels(named).observe(seconds)

    def batch(self, histories: int) -> None:
        """A batch went through a model."""
        self._batches.observe(histories)

    def unknown(self, ids: int) -> None:
        """Some ids were not known."""
        self._unknown.inc(ids)

    def reload(self, result: str) -> None:
        """A reload was done or refused."""
        self._reloads.labels(result).inc()

    def events(self, stored: int, duplicates: int) -> None:
        """Events were remembered, or were there before."""
        self._events.labels("stored").inc(stored)
        self._events.labels("duplicate").inc(duplicates)

    def models(self, versions: dict[str, str]) -> None:
        """These versions serve now."""
        self._models.clear()
        for name, version in versions.items():
            self._models.labels(name, version).set(1)

    def waiting(self, count: Callable[[], int]) -> None:
        """Where to read how many histories wait."""
        Gauge("abaca_waiting_histories", "Histories that wait", registry=self.registry).set_function(count)

    def text(self) -> bytes:
        """All of it, in Prometheus' own format."""
        return generate_latest(self.registry)
