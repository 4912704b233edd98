"""The models that are served: loaded, called in batches, and replaced while they answer."""

import gc
import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from abaca.data.moments import Moment, Times
from abaca.errors import AbacaError, ModelError, QueryError
from abaca.memory import give_back
from abaca.policy import Policy
from abaca.recommendation import Recommendations
from abaca.recommender import Recommender, load
from abaca.serve.batching import Batcher
from abaca.serve.item_search import ItemSearch
from abaca.serve.trial import try_out
from abaca.shapes import loads
from abaca.training.checkpoint import COUNTS, MODEL, POPULARITY
from abaca.training.newitems import checked_items, with_items
from abaca.types import Id

logger = logging.getLogger(__name__)

BATCH = 64
"""Largest batch of histories."""

ROOM = 4096
"""Length of the queue of histories; a request beyond it is refused."""

QUEUE_SECONDS = 5.0
"""Longest time in the queue; a request that would wait for longer is refused."""

FAILURES = 3
"""Passes that fail one after another before a model is no longer ready."""

TRIES = 3
"""Number of times that a model is read when it is replaced meanwhile."""


@dataclass(frozen=True)
class Loaded:
    """One version of a model, ready to answer."""

    name: str
    version: str
    recommender: Recommender
    search: ItemSearch
    facts: dict[str, Any]
    """Encoder, output layer, sizes, and the training."""


class _Query:
    """A model and a policy. The hash is computed once: a policy may hold long lists and serve many histories."""

    def __init__(self, model: Loaded, policy: Policy) -> None:
        self.model, self.policy = model, policy
        self._hash = hash((id(model), policy))

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Query) and self.model is other.model and self.policy == other.policy


class _Job(NamedTuple):
    query: _Query
    history: Sequence[Id]
    times: Sequence[Moment] | None
    now: Moment | None
    types: Sequence[str | None] | None


class Service:
    """Recommends with the current version of each model.

    A request keeps the version that it began with. `reload` reads every model again and replaces all or none.
    """

    def __init__(
        self,
        folders: Sequence[Path],
        batch: int = BATCH,
        observe: Callable[[int], None] | None = None,
        patience: float = QUEUE_SECONDS,
    ) -> None:
        self._folders = _named(folders)
        self._models = {name: _load(name, folder) for name, folder in self._folders.items()}
        self._reloading, self._adding, self._swapping = threading.Lock(), threading.Lock(), threading.Lock()
        _settle()
        self._observe = observe or (lambda size: None)
        self._failures: dict[str, int] = {}
        """Passes of a model that failed, one after another."""
        self.batcher: Batcher[_Job, Recommendations] = Batcher(self._answer, batch, ROOM, patience)

    @property
    def models(self) -> list[Loaded]:
        """The current versions, the first one being the default."""
        return list(self._models.values())

    def model(self, name: str | None = None) -> Loaded:
        """A model by its name; without one, the first."""
        models = self._models
        if name is None:
            return next(iter(models.values()))
        if name not in models:
            raise QueryError(f"there is no model '{name}'; available: {', '.join(models)}")
        return models[name]

    async def recommend(
        self,
        model: Loaded,
        histories: Sequence[Sequence[Id]],
        policy: Policy,
        times: Times = None,
        now: Moment | None = None,
        types: Sequence[Sequence[str | None] | None] | None = None,
    ) -> list[Recommendations]:
        """One answer per history, with its times and types where known; concurrent requests share batches."""
        query = _Query(model, policy)
        nothing = [None] * len(histories)
        each = zip(histories, times or nothing, types or nothing, strict=True)
        return await self.batcher.submit([_Job(query, history, known, now, kinds) for history, known, kinds in each])

    def reload(self, check: Callable[[Sequence[Loaded]], object] | None = None) -> list[Loaded]:
        """Read every model again. Where one is broken, or `check` raises an error, all the old ones stay."""
        with self._reloading:
            try:
                models = {name: _load(name, folder) for name, folder in self._folders.items()}
                if check is not None:
                    check(list(models.values()))
            except Exception as error:
                logger.error("reload refused, the old models stay: %s", error)
                raise
            with self._swapping:  # `replace` does not wait while models are read
                self._models = models
        _settle()
        logger.info("reloaded %s", ", ".join(f"{model.name} {model.version}" for model in models.values()))
        return list(models.values())

    def replace(self, model: Loaded) -> bool:
        """Answer with another form of a model from now on; False where the model was read again meanwhile."""
        with self._swapping:
            if self._models[model.name].facts is not model.facts:
                return False
            self._models = {**self._models, model.name: model}
            return True

    def add_items(self, name: str, items: Sequence[Mapping[str, Any]]) -> None:
        """Answer with further items from now on, until the models are read again."""
        with self._adding:
            while not self.replace(_with_items(self.model(name), items)):
                pass  # the model was read again meanwhile

    async def works(self, model: Loaded) -> bool:
        """Whether a model answers; one that failed several times is tried again."""
        if self._failures.get(model.name, 0) < FAILURES:
            return True
        try:
            await self.recommend(model, [[model.search.catalogue.ids[0]]], Policy(n=1))
        except Exception:
            return False
        return True

    def close(self) -> None:
        """Finish the queue."""
        self.batcher.close()

    def _answer(self, jobs: list[_Job]) -> list[Recommendations | Exception]:
        """Histories with the same model and policy go through the model together."""
        self._observe(len(jobs))
        groups: dict[_Query, list[int]] = {}
        for place, job in enumerate(jobs):
            groups.setdefault(job.query, []).append(place)
        results: list[Recommendations | Exception] = [QueryError("no answer")] * len(jobs)
        for query, places in groups.items():
            found = _recommend([jobs[place] for place in places])
            for place, result in zip(places, found, strict=True):
                results[place] = result
            failed = all(isinstance(one, Exception) and not isinstance(one, AbacaError) for one in found)
            self._failures[query.model.name] = self._failures.get(query.model.name, 0) + 1 if failed else 0
        return results


def _recommend(jobs: list[_Job]) -> Sequence[Recommendations | Exception]:
    """Answers of one model under one policy; an error of one history leaves the others' answers as they are."""
    query = jobs[0].query
    try:
        times, now = [job.times for job in jobs], [job.now for job in jobs]
        ask = query.model.recommender.recommend_many
        types = [job.types for job in jobs]
        return ask([job.history for job in jobs], times=times, now=now, types=types, policy=query.policy)
    except Exception as error:
        return [error] if len(jobs) == 1 else [result for job in jobs for result in _recommend([job])]


def _with_items(model: Loaded, items: Sequence[Mapping[str, Any]]) -> Loaded:
    saved = model.recommender.saved
    assert saved is not None
    recommender = model.recommender.with_model(with_items(saved, checked_items(saved, items)))
    assert recommender.saved is not None
    return replace(model, recommender=recommender, search=ItemSearch(recommender.saved.catalogue))


def _settle() -> None:
    """Exclude loaded models from garbage collection, which would delay requests."""
    gc.collect()
    gc.freeze()
    give_back()


def _named(folders: Sequence[Path]) -> dict[str, Path]:
    """Folders by the last part of their path, numbered where two are equal."""
    named: dict[str, Path] = {}
    for folder in folders:
        base = folder.absolute().name or "model"
        name, number = base, 1
        while name in named:
            number += 1
            name = f"{base}-{number}"
        named[name] = folder
    return named


def _load(name: str, folder: Path) -> Loaded:
    """Read and try a model, again if it was replaced meanwhile."""
    for _ in range(TRIES):
        before = _version(folder)
        try:
            recommender = load(folder)
        except ModelError:
            if _version(folder) == before:
                raise
            continue
        if _version(folder) == before:
            return _loaded(name, folder, before, recommender)
    raise ModelError(f"{folder} was replaced {TRIES} times while it was read; try again later")


def _version(folder: Path) -> str:
    """The beginning of the checksum of a model directory; empty where there is none."""
    try:
        return str(loads((folder / MODEL).read_text(encoding="utf-8"))["sha256"])[:12]
    except (OSError, ValueError, KeyError, TypeError):
        return ""


def _loaded(name: str, folder: Path, version: str, recommender: Recommender) -> Loaded:
    saved = recommender.saved
    assert saved is not None
    if not saved.catalogue.size:
        raise ModelError(f"{folder} has an empty catalogue; train on a log with items")
    training = saved.training
    written = datetime.fromtimestamp((folder / MODEL).stat().st_mtime, UTC)
    counts = COUNTS, POPULARITY
    facts = {
        "encoder": saved.encoder,
        "output": saved.output,
        "window": recommender.training.window,
        "items": saved.catalogue.size,
        "parameters": sum(part.numel() for name, part in saved.tensors().items() if not name.startswith(counts)),
        "time_unit": recommender.time_unit,
        "trained": {
            "saved": written.isoformat(timespec="seconds"),
            "data": training["fingerprint"],
            "everything": training["everything"],
            "split": training["split"],
            "epochs": len(training["records"]),
            "targets": training["records"][-1]["targets"] if training["records"] else None,
            "validation": {"metric": recommender.training.metric, "best": saved.figure},
            "options": {**training["encoder_options"], **training["options"]},
        },
    }
    try_out(folder, recommender, facts)
    return Loaded(name, version, recommender, ItemSearch(saved.catalogue), facts)
