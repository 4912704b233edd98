"""One run of a study: its id, and its training and test in the study's workspace."""

import hashlib
import json
import re
import time
from dataclasses import dataclass, replace
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import numpy as np

from abaca.data.log import read_log
from abaca.data.prepare import prepare
from abaca.data.sequences import Sequences, is_prepared
from abaca.data.synthetic import synthetic_log
from abaca.durable import locked, whole_file
from abaca.errors import SequencesError, SpecError
from abaca.evaluation.baselines import BASELINES
from abaca.evaluation.evaluate import Evaluation, evaluate
from abaca.recommender import Recommender
from abaca.study.plan import DataSet, Options, RowKey
from abaca.training.callbacks import Callback

METRICS = ("ndcg@10", "hr@10", "mrr@10")
CURVE = ("epoch", "loss", *METRICS, "lr", "seconds", "validation_seconds")
"""The values of each epoch that a result keeps."""


@dataclass(frozen=True)
class Run:
    """One training: a row's model with one configuration and one seed on data with this fingerprint."""

    row: RowKey
    options: tuple[tuple[str, Any], ...]
    seed: int
    fingerprint: str

    @cached_property
    def id(self) -> str:
        """Equal for equal model, options, seed and data, on any machine and in any study."""
        return digest([self.row.encoder, self.row.output, self.options, self.seed, self.fingerprint])

    @property
    def origin(self) -> tuple[str, str]:
        """The data set's name and fingerprint."""
        return self.row.data, self.fingerprint

    @property
    def folder(self) -> str:
        """A readable folder name."""
        return re.sub(r"[^\w.+-]", "_", f"{'-'.join(self.row)}-{self.id}")

    def with_options(self, options: Options) -> "Run":
        """The run with other options."""
        return replace(self, options=tuple(sorted(options.items())))

    def with_seed(self, seed: int) -> "Run":
        """The run with another seed."""
        return replace(self, seed=seed)

    def recommender(self) -> Recommender:
        """The recommender that trains it."""
        options = {"options": "fixed", **dict(self.options)}
        return Recommender(self.row.encoder, self.row.output, seed=self.seed, **options)


def digest(value: Any) -> str:
    """A short checksum of JSON values."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:12]


class Workspace:
    """The folder of a study's sequences, models and test ranks; all of them can be computed again."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.mkdir(parents=True, exist_ok=True)
        (path / ".gitignore").write_text("*\n", encoding="utf-8")

    def sequences(self, data: DataSet) -> Sequences:
        """The prepared data set; prepared again if its log or options have changed."""
        place = self.path / "sequences" / f"{data.name}-{digest(_source(data))}"
        place.parent.mkdir(exist_ok=True)
        with locked(Path(f"{place}.lock")):
            if not is_prepared(place):
                source = _log_of(data)
                with read_log(source, **data.columns) as log:
                    prepare(log, place, options=data.prepare, items=data.items)
        return _opened(place)

    def train(self, run: Run, sequences: Sequences, callback: Callback) -> Recommender:
        """The run's model; an interrupted training is resumed."""
        return run.recommender().fit(sequences, folder=self.path / "runs" / run.folder, resume=True, callback=callback)

    def test(self, run: Run, sequences: Sequences, callback: Callback) -> tuple[Evaluation, float]:
        """The evaluation of the run's model on the test targets, and its seconds."""
        file = self.path / "ranks" / f"{run.folder}.npz"
        file.parent.mkdir(exist_ok=True)
        with locked(Path(f"{file}.lock")):
            if not _is_complete(file):
                recommender = self.train(run, sequences, callback)
                began = time.perf_counter()
                result = recommender.evaluate(sequences)
                _save(file, result, time.perf_counter() - began)
        return _load(file, " ".join(run.row[1:]), sequences)

    def is_tested(self, run: Run) -> bool:
        """Whether the ranks of the run's test targets are here; without them the model would be trained again."""
        return _is_complete(self.path / "ranks" / f"{run.folder}.npz")

    def baseline(self, name: str, sequences: Sequences) -> Evaluation:
        """A baseline's evaluation on the test targets."""
        file = self.path / "ranks" / f"{name.replace(' ', '-')}-{sequences.fingerprint[:12]}.npz"
        file.parent.mkdir(exist_ok=True)
        with locked(Path(f"{file}.lock")):
            if not _is_complete(file):
                began = time.perf_counter()
                result = evaluate(BASELINES[name]().fit(sequences), sequences)
                _save(file, result, time.perf_counter() - began)
        return _load(file, name, sequences)[0]


def check_validation(sequences: Sequences, where: str = "") -> None:
    """Refuse data without validation targets."""
    if not len(sequences.valid.users):
        raise SequencesError(
            f"{where}there is no validation target; prepare a log whose users have three interactions or more, or with "
            "other split times"
        )


def run_values(run: Run, recommender: Recommender) -> dict[str, Any]:
    """The entry of a finished training."""
    assert recommender.saved is not None
    training = recommender.saved.training
    weights = sum(weight.numel() for weight in recommender.saved.model.parameters())
    return {
        **_names(run),
        "parameters": weights,
        "best": training["best"],
        "best_epoch": training["best_epoch"],
        "with_evidence": training.get("with_evidence"),
        "trained": recommender.saved.encoder,
        "epochs": [{key: epoch[key] for key in CURVE if key in epoch} for epoch in training["records"]],
        "all_options": {**training["options"], **training["encoder_options"]},
    }


def failed_values(run: Run, error: Exception) -> dict[str, Any]:
    """The entry of a training that diverged: it cannot be chosen."""
    return {**_names(run), "best": None, "error": str(error)}


def _names(run: Run) -> dict[str, Any]:
    return {**run.row._asdict(), "seed": run.seed, "options": dict(run.options), "fingerprint": run.fingerprint}


def _log_of(data: DataSet) -> Any:
    """The log's path, or a synthetic log."""
    if data.log is None:
        try:
            return synthetic_log(**data.synthetic)
        except ValueError as error:
            raise SpecError(f"data '{data.name}': synthetic: {error}") from error
    if is_prepared(data.log):
        raise SpecError(f"data '{data.name}': {data.log} is a prepared folder; give the log that it was prepared from")
    return data.log


def _source(data: DataSet) -> list[Any]:
    """Everything that determines the sequences; a log by its files' sizes and modification times."""
    files = [path for path in (data.log, data.items) if path is not None]
    for path in files:
        if not path.exists():
            raise SpecError(f"data '{data.name}': {path} does not exist; pass the folder of the logs as --data FOLDER")
    inside = [file for path in files for file in ([path] if path.is_file() else sorted(path.rglob("*")))]
    facts = [[file.name, file.stat().st_size, file.stat().st_mtime_ns] for file in inside]
    return [facts, data.synthetic, data.columns, repr(data.prepare)]


@cache
def _opened(place: Path) -> Sequences:
    return Sequences.open(place)


_ARRAYS = ("users", "positions", "items", "rank", "shelf_rank", "repeat", "top", "top_repeat", "repeat_probability")


def _is_complete(file: Path) -> bool:
    """Whether ranks are there with every column; an earlier release wrote fewer."""
    if not file.exists():
        return False
    with np.load(file) as arrays:
        return set(_ARRAYS) <= set(arrays.files)


def _save(file: Path, result: Evaluation, seconds: float) -> None:
    arrays = {name: getattr(result, name) for name in _ARRAYS}
    with whole_file(file) as part, part.open("wb") as stream:
        np.savez_compressed(stream, seconds=seconds, cutoffs=result.cutoffs, **arrays)


def _load(file: Path, name: str, sequences: Sequences) -> tuple[Evaluation, float]:
    with np.load(file) as arrays:
        columns = {key: arrays[key] for key in _ARRAYS}
        cutoffs = tuple(arrays["cutoffs"].tolist())
        result = Evaluation(name, "test", cutoffs, sequences.catalogue.size, **columns)
        return result, float(arrays["seconds"])
