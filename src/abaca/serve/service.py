"""The models that are served: loaded, asked in batches, and replaced while they answer."""

import gc
import json
import logging
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from abaca.errors import ModelError, QueryError
from abaca.memory import give_back
from abaca.policy import Policy
from abaca.recommendation import Recommendations
from abaca.recommender import Recommender, load
from abaca.serve.batching import Batcher
from abaca.serve.finding import Finder
from abaca.training.checkpoint import MODEL
from abaca.types import Id

logger = logging.getLogger(__name__)

BATCH = 64
"""Histories that go through a model together at most."""

ROOM = 4096
"""Histories that may wait; a request beyond is refused, so that nobody waits for long."""

TRIES = 3
"""How often a model is read again when it is replaced while being read."""


@dataclass(frozen=True)
class Loaded:
    """One version of a model, ready to answer."""

    name: str
    version: str
    recommender: Recommender
    finder: Finder
    facts: dict[str, Any]
    """What it is: encoder, output layer, sizes, when and on what it was trained."""


class _Way:
    """A model under a policy; hashed once, since a policy may hold long lists and go with many histories."""

    def __init__(self, model: Loaded, policy: Policy) -> None:
        self.model, self.policy = model, policy
        self._hash = hash((id(model), policy))

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Way) and self.model is other.model and self.policy == other.policy


class _Asked(NamedTuple):
    way: _Way
    history: Sequence[Id]


class Service:
    """Answers histories with the current version of each model.

    A request keeps the version it began with. `reload` reads every model anew and replaces all or none.
    """

    def __init__(self, folders: Sequence[Path], batch: int = BATCH, observe: Callable[[int], None] | None = None):
        self._folders = _named(folders)
        self._models = {name: _load(name, folder) for name, folder in self._folders.items()}
        self._reloading = threading.Lock()
        _settle()
        self._observe = observe or (lambda size: None)
        self.batcher: Batcher[_Asked, Recommendations] = Batcher(self._answer, batch, ROOM)

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
            raise QueryError(f"there is no model '{name}'; there is {', '.join(models)}")
        return models[name]

    async def recommend(
        self, model: Loaded, histories: Sequence[Sequence[Id]], policy: Policy
    ) -> list[Recommendations]:
        """One answer per history; concurrent requests share the model's passes."""
        way = _Way(model, policy)
        return await self.batcher.submit([_Asked(way, history) for history in histories])

    def reload(self) -> list[Loaded]:
        """Read every model anew; a broken one is refused with ModelError, and then all the old ones stay."""
        with self._reloading:
            try:
                models = {name: _load(name, folder) for name, folder in self._folders.items()}
            except Exception as error:
                logger.error("reload refused, the old models stay: %s", error)
                raise
            self._models = models
        _settle()
        logger.info("reloaded %s", ", ".join(f"{model.name} {model.version}" for model in models.values()))
        return list(models.values())

    def close(self) -> None:
        """Finish what waits."""
        self.batcher.close()

    def _answer(self, asked: list[_Asked]) -> list[Recommendations | Exception]:
        """Those with the same model and policy go through the model together."""
        self._observe(len(asked))
        groups: dict[_Way, list[int]] = {}
        for place, one in enumerate(asked):
            groups.setdefault(one.way, []).append(place)
        results: list[Recommendations | Exception] = [QueryError("not asked")] * len(asked)
        for places in groups.values():
            for place, result in zip(places, _ask([asked[place] for place in places]), strict=True):
                results[place] = result
        return results


def _ask(asked: list[_Asked]) -> Sequence[Recommendations | Exception]:
    """Answers of one model under one policy; a history that cannot be answered does not spoil the others'."""
    way = asked[0].way
    options = {**vars(way.policy)}
    try:
        return way.model.recommender.recommend_many([one.history for one in asked], options.pop("n"), **options)
    except Exception as error:
        if len(asked) == 1:
            return [error]
        return [result for one in asked for result in _ask([one])]


def _settle() -> None:
    """Models stay: the garbage collector need not look at them again, which would hold requests up."""
    gc.collect()
    gc.freeze()
    give_back()


def _named(folders: Sequence[Path]) -> dict[str, Path]:
    """Folders by a short name: the last part of their path, numbered where two are alike."""
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
    """Read a model and try it, again if it was replaced meanwhile."""
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
    raise ModelError(f"{folder} was replaced again and again while it was read; try later")


def _version(folder: Path) -> str:
    """Names what is in a model directory: the beginning of its checksum; empty where there is none."""
    try:
        return str(json.loads((folder / MODEL).read_text(encoding="utf-8"))["sha256"])[:12]
    except (OSError, ValueError, KeyError, TypeError):
        return ""


def _loaded(name: str, folder: Path, version: str, recommender: Recommender) -> Loaded:
    saved = recommender.saved
    assert saved is not None
    if not saved.catalogue.size:
        raise ModelError(f"{folder} has an empty catalogue; train on a log with items")
    recommender.recommend([saved.catalogue.ids[0]], 1)  # a version that cannot answer is found before it serves
    training = saved.training
    written = datetime.fromtimestamp((folder / MODEL).stat().st_mtime, UTC)
    facts = {
        "encoder": saved.encoder,
        "output": saved.output,
        "window": recommender.training.window,
        "items": saved.catalogue.size,
        "parameters": sum(weight.numel() for weight in saved.model.parameters()),
        "trained": {
            "saved": written.isoformat(timespec="seconds"),
            "data": training["fingerprint"],
            "everything": training["everything"],
            "split": training["split"],
            "epochs": len(training["records"]),
            "validation": {"metric": recommender.training.metric, "best": training["best"]},
            "options": {**training["encoder_options"], **training["options"]},
        },
    }
    return Loaded(name, version, recommender, Finder(saved.catalogue), facts)
