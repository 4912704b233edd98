"""Counters for Prometheus."""

from collections.abc import Callable, Iterable, Iterator

from prometheus_client import (
    CONTENT_TYPE_LATEST,
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    ProcessCollector,
    generate_latest,
)
from prometheus_client.metrics_core import Metric
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector

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
        for result in ("done", "refused"):  # from 0, so that `increase` sees the first one
            self._reloads.labels(result)
        self._events = Counter("abaca_events", "Events received", ["result"], registry=self.registry)
        self._models = Gauge("abaca_model_info", "Models that are served", ["name", "version"], registry=self.registry)

        self._answers = Counter(
            "abaca_recommendations", "Histories that a model answered", ["model"], registry=self.registry
        )
        self._feedback = Counter("abaca_feedback", "Feedback received", ["model", "kind"], registry=self.registry)

    def answered(self, model: str, histories: int) -> None:
        """Count the histories that a model answered."""
        self._answers.labels(model).inc(histories)

    def feedback(self, received: Iterable[tuple[str, str]]) -> None:
        """Count feedback by model and kind."""
        for model, kind in received:
            self._feedback.labels(model, kind).inc()

    def request(self, method: str, route: str | None, status: int, seconds: float) -> None:
        """Count an answered request; addresses without a route are counted together."""
        named = route or "none"
        known = method if method in ("GET", "POST", "DELETE", "HEAD", "OPTIONS", "PUT", "PATCH") else "other"
        self._requests.labels(known, named, str(status)).inc()
        self._seconds.labels(named).observe(seconds)

    def refusal(self, status: int) -> None:
        """Count a connection that was refused before there was a request."""
        self._requests.labels("other", "none", str(status)).inc()

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

    def watch_queue(self, count: Callable[[], int], seconds: Callable[[], float]) -> None:
        """Set the functions that count waiting histories and expect their time in the queue."""
        Gauge("abaca_queue_seconds", "Expected time in the queue", registry=self.registry).set_function(seconds)
        Gauge("abaca_waiting_histories", "Histories in the queue", registry=self.registry).set_function(count)

    def watch_log(self, dropped: Callable[[], int]) -> None:
        """Set the function that counts lines of the log that were dropped."""
        gauge = Gauge("abaca_log_lines_dropped", "Lines of the log that nobody read in time", registry=self.registry)
        gauge.set_function(dropped)

    def watch_learning(self, figures: Callable[[], dict[str, int]]) -> None:
        """Set the function that gives the figures of learning: events, pairs, items."""
        for name in figures():
            gauge = Gauge(f"abaca_learned_{name}", f"{name.capitalize()} that were learned", registry=self.registry)
            gauge.set_function(lambda name=name: figures()[name])  # type: ignore[misc]

    def text(self) -> bytes:
        """All counters in the format of Prometheus."""
        return generate_latest(self.registry)


class _Merged(Collector):
    """The counters of several workers, each with a label for its number."""

    def __init__(self, texts: Iterable[tuple[int, str]]) -> None:
        self._families: dict[str, Metric] = {}
        for number, text in texts:
            for family in text_string_to_metric_families(text):
                known = self._families.setdefault(family.name, Metric(family.name, family.documentation, family.type))
                for sample in family.samples:
                    labels = {**sample.labels, "worker": str(number)}
                    known.samples.append(sample._replace(labels=labels))

    def collect(self) -> Iterator[Metric]:
        yield from self._families.values()


def merged(texts: Iterable[tuple[int, str]]) -> bytes:
    """The counters of several workers in the format of Prometheus, each with a label `worker`."""
    registry = CollectorRegistry()
    registry.register(_Merged(texts))
    return generate_latest(registry)
