"""One run of a study: what names it, and how it is trained and tested in the study's workshop."""

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
from abaca.training.trainer import Callback

FIGURES = ("ndcg@10", "hr@10", "mrr@10")
CURVE = ("epoch", "loss", *FIGURES, "lr", "seconds", "validation_seconds")
"""What a result keeps of each epoch."""


@dataclass(frozen=True)
class Run:
    """One training: a row's model with one configuration and one seed on data with this fingerprint."""

    row: RowKey
    options: tuple[tuple[str, Any], ...]
    seed: int
    fingerprint: str

    @cached_property
    def id(self) -> str:
        """The same for the same model, options, seed and data, on any machine and in any study."""
        return digest([self.row.encoder, self.row.output, self.options, self.seed, self.fingerprint])

    @property
    def origin(self) -> tuple[str, str]:
        """The data set's name and fingerprint."""
        return self.row.data, self.fingerprint

    @property
    def folder(self) -> str:
        """A name for people and file systems."""
        return re.sub(r"[^\w.+-]", "_", f"{'-'.join(self.row)}-{self.id}")

    def with_options(self, options: Options) -> "Run":
        """The same run but for its options."""
        return replace(self, options=tuple(sorted(options.items())))

    def with_seed(self, seed: int) -> "Run":
        """The same run but for its seed."""
        return replace(self, seed=seed)

    def recommender(self) -> Recommender:
        """What trains it."""
        return Recommender(self.row.encoder, self.row.output, seed=self.seed, **dict(self.options))


def digest(value: Any) -> str:
    """Name plain data by its content."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:12]


class Workshop:
    """The folder where a study's sequences, models and test ranks are kept; all of it can be made again."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.mkdir(parents=True, exist_ok=True)
        (path / ".gitignore").write_text("*\n", encoding="utf-8")

    def sequences(self, data: DataSet) -> Sequences:
        """The prepared data set; prepared now if it was not, or if its log or options have changed."""
        place = self.path / "sequences" / f"{data.name}-{digest(_source(data))}"
        place.parent.mkdir(exist_ok=True)
        with locked(Path(f"{place}.lock")):
            if not is_prepared(place):
                source = _log_of(data)
                with read_log(source, **data.columns) as log:
                    prepare(log, place, options=data.prepare, items=data.items)
        return _opened(place)

    def train(self, run: Run, sequences: Sequences, callback: Callback) -> Recommender:
        """The run's model: trained, taken up where it was stopped, or as it is if it was complete."""
        return run.recommender().fit(sequences, folder=self.path / "runs" / run.folder, resume=True, callback=callback)

    def test(self, run: Run, sequences: Sequences, callback: Callback) -> tuple[Evaluation, float]:
        """Every test target's rank under the run's model, and the seconds that ranking took."""
        file = self.path / "ranks" / f"{run.folder}.npz"
        file.parent.mkdir(exist_ok=True)
        with locked(Path(f"{file}.lock")):
            if not file.exists():
                recommender = self.train(run, sequences, callback)
                began = time.perf_counter()
                result = recommender.evaluate(sequences)
                _save(file, result, time.perf_counter() - began)
        return _load(file, " ".join(run.row[1:]), sequences)


def check_validation(sequences: Sequences, where: str = "") -> None:
    """Refuse data on which nothing could be chosen."""
    if not len(sequences.valid.users):
        raise SequencesError(
            f"{where}there is no validation target to choose by; prepare a log whose users have three interactions or "
            "more, or other cuts in time"
        )


def baseline(name: str, sequences: Sequences) -> Evaluation:
    """A simple ranker's test ranks."""
    return evaluate(BASELINES[name]().fit(sequences), sequences)


def run_values(run: Run, recommender: Recommender) -> dict[str, Any]:
    """What is worth keeping of a finished training."""
    assert recommender.saved is not None
    training = recommender.saved.training
    weights = sum(weight.numel() for weight in recommender.saved.model.parameters())
    return {
        **_names(run),
        "parameters": weights,
        "best": training["best"],
        "best_epoch": training["best_epoch"],
        "epochs": [{key: epoch[key] for key in CURVE if key in epoch} for epoch in training["records"]],
        "all_options": {**training["options"], **training["encoder_options"]},
    }


def failed_values(run: Run, error: Exception) -> dict[str, Any]:
    """What is worth keeping of a training that diverged: it cannot be chosen."""
    return {**_names(run), "best": None, "error": str(error)}


def _names(run: Run) -> dict[str, Any]:
    return {**run.row._asdict(), "seed": run.seed, "options": dict(run.options), "fingerprint": run.fingerprint}


def _log_of(data: DataSet) -> Any:
    """The log's path, or the synthetic log itself."""
    if data.log is None:
        try:
            return synthetic_log(**data.synthetic)
        except ValueError as error:
            raise SpecError(f"data '{data.name}': synthetic: {error}") from error
    if is_prepared(data.log):
        raise SpecError(f"data '{data.name}': {data.log} is a prepared folder; give the log that it was prepared from")
    return data.log


def _source(data: DataSet) -> list[Any]:
    """What the sequences follow from: a log is named by its files' sizes and times of change."""
    files = [path for path in (data.log, data.items) if path is not None]
    for path in files:
        if not path.exists():
            raise SpecError(f"data '{data.name}': {path} is not there; --data FOLDER says where the logs are")
    inside = [file for path in files for file in ([path] if path.is_file() else sorted(path.rglob("*")))]
    facts = [[file.name, file.stat().st_size, file.stat().st_mtime_ns] for file in inside]
    return [facts, data.synthetic, data.columns, repr(data.prepare)]


@cache
def _opened(place: Path) -> Sequences:
    return Sequences.open(place)


_ARRAYS = ("users", "positions", "items", "rank", "repeat", "top", "top_repeat", "repeat_probability")


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
