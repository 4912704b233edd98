"""The public face: fit, recommend, evaluate, save, load."""

import os
import weakref
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Any

import torch

from abaca.data.catalogue import Catalogue
from abaca.data.folder import check_apart
from abaca.data.log import Log, read_log
from abaca.data.prepare import PrepareOptions, prepare
from abaca.data.queries import HistorySource
from abaca.data.reading.columns import Columns
from abaca.data.sequences import Sequences, is_prepared
from abaca.data.temporary import Temporary
from abaca.errors import ModelError, SpecError
from abaca.evaluation.evaluate import Evaluation, evaluate
from abaca.evaluation.ranker import ModelRanker
from abaca.nn.build import check_memory, make_model
from abaca.nn.device import choose_device
from abaca.nn.encoders import encoder_class
from abaca.nn.outputs import OutputSpec
from abaca.options import DEFAULT_ENCODER, DEFAULT_OUTPUT, TrainingOptions, check_names, sort_options
from abaca.policy import Policy
from abaca.recommendation import Advisor, Recommendations
from abaca.search.answer import IndexSearch
from abaca.training.checkpoint import (
    STATE,
    Saved,
    append_record,
    check_same_run,
    finished_run,
    load_model,
    load_state,
    locked_run,
    save_model,
    write_record,
)
from abaca.training.trainer import Callback, Step, Trainer
from abaca.types import Id, Record

UNTRAINED = "this recommender is not trained yet; call fit, or load a saved one with abaca.load"


class Recommender:
    """A model that learns from a log when to repeat and when to explore.

    `encoder` is gru4rec or sasrec, `output` an output layer such as softmax+CPR:100+Mi. Options are those of the
    training (`epochs`, `lr`, `seed`, …), of the encoder (`dim`, `dropout`, …) and of preparing a log (`min_user`,
    `split`, …). `device` is cpu, cuda, or auto for a GPU where there is one.
    """

    def __init__(
        self, encoder: str = DEFAULT_ENCODER, output: str = DEFAULT_OUTPUT, *, device: str = "auto", **options: Any
    ) -> None:
        sizes_type = encoder_class(encoder).Options
        self.encoder = encoder
        self.output = str(OutputSpec.parse(output))
        self.training, self.encoder_options, self.prepare = sort_options(encoder, sizes_type, options)
        self._of_preparing = [field.name for field in fields(PrepareOptions) if field.name in options]
        self.device = choose_device(device)
        self.saved: Saved | None = None
        self._items: Any = None
        self.sequences: Sequences | None = None
        self._advisor: Advisor | None = None

    def fit(
        self,
        data: Any,
        *,
        refit: bool = False,
        folder: str | Path | None = None,
        resume: bool = False,
        overwrite: bool = False,
        callback: Callback | None = None,
        items: Any = None,
    ) -> "Recommender":
        """Train on a log, a table, or a prepared folder, keeping the epoch that validates best.

        With `refit` it trains on everything, held-out targets included, for as many epochs as the earlier fit found
        best; such a model cannot be evaluated on the same data. With `folder` the run's state is kept there and
        the finished model is saved there; `resume` takes a run up again, `overwrite` replaces what is there.
        """
        if resume and overwrite:
            raise SpecError("resume goes on with what is there, overwrite begins anew: give one of them")
        where = None if folder is None else Path(folder)
        self._check_place(data, where)
        self._items = self._items if items is None else items
        with nullcontext() if where is None else locked_run(where, keep=not (resume or overwrite)):
            sequences = self.open(data, items if _prepared(data) else self._items)
            self._adopt(self._fit(sequences, where, refit, resume, callback or Callback()))
        self.sequences = sequences
        return self

    def _check_place(self, data: Any, where: Path | None) -> None:
        """Refuse what could not end well, before anything is read."""
        if _prepared(data) and self._of_preparing:
            given = ", ".join(f"`{name}`" for name in self._of_preparing)
            raise SpecError(f"the data is prepared already: {given} must be given to `abaca prepare`")
        if where is not None:
            path = data if isinstance(data, str | os.PathLike) else getattr(data, "path", None)
            check_apart(where, None if path is None else Path(path))
            _check_not_prepared(where)

    def _fit(self, sequences: Sequences, where: Path | None, refit: bool, resume: bool, callback: Callback) -> Saved:
        """The trained model with its record; it is also in the folder, if there is one."""
        options = self._refit_options() if refit else self.training
        identity = self._identity(sequences, options, refit)
        done = finished_run(where, identity) if where is not None and resume else None
        if done is not None:
            return done
        catalogue = _catalogue(sequences, everything=refit)
        check_memory(self.encoder, self.output, catalogue.size, **self._sizes())
        torch.manual_seed(options.seed)
        model = make_model(self.encoder, self.output, catalogue.size, **self._sizes()).to(self.device)
        trainer = Trainer(model, sequences, options, everything=refit)
        trainer.progress["identity"] = identity
        if where is not None:
            _start_run(where, trainer, identity, resume)
        trainer.run(_RunRecord(where, callback), where)
        best = options.stop_after - 1 if refit else trainer.progress["best_epoch"]
        source = sequences.manifest.get("source", {})
        training = {
            **identity,
            **{key: trainer.progress[key] for key in ("best", "records")},
            "best_epoch": best,
            "split": sequences.manifest["split"],
            "prepared": sequences.manifest["options"],
            "source": {key: source[key] for key in ("columns", "on_bad_row") if key in source},
        }
        saved = Saved(model, self.encoder, self.output, self._sizes(), catalogue, training)
        if where is not None:
            save_model(where, saved)
            (where / STATE).unlink(missing_ok=True)
        return saved

    def recommend(self, history: Sequence[Id], n: int = 10, **policy: Any) -> Recommendations:
        """The next items after one history of raw ids, oldest first.

        `repeats` is "auto" (as learned), "exclude" or "only"; `max_repeat_share` caps repeats; `exclude` and
        `candidates` are lists of ids.
        """
        return self.recommend_many([history], n, **policy)[0]

    def recommend_many(self, histories: Sequence[Sequence[Id]], n: int = 10, **policy: Any) -> list[Recommendations]:
        """The next items after each of many histories."""
        if self._advisor is None:
            raise ModelError(UNTRAINED)
        check_names("recommend", policy, [field.name for field in fields(Policy) if field.name != "n"])
        return self._advisor.recommend(histories, Policy(n=n, **policy))

    def evaluate(
        self,
        data: Any = None,
        *,
        targets: str = "test",
        cutoffs: Sequence[int] = (10,),
        progress: Callable[[int, int], None] | None = None,
    ) -> Evaluation:
        """Rank every held-out target against the whole catalogue; without `data`, of what it was fitted on."""
        if self.saved is None:
            raise ModelError(UNTRAINED)
        sequences = self.sequences if data is None else self.open(data, options=self.learned)
        if sequences is None:
            raise ModelError("a loaded model does not carry its data; pass the log or the prepared folder to evaluate")
        self._check_held_out(sequences)
        return evaluate(self.ranker(), sequences, targets, cutoffs, progress)

    def ranker(self) -> ModelRanker:
        """The trained model as something that ranks, beside baselines."""
        if self.saved is None:
            raise ModelError(UNTRAINED)
        return ModelRanker(self.saved.model, self.training.window, f"{self.encoder} {self.output}")

    def save(self, folder: str | Path) -> None:
        """Write a model directory: safetensors and JSON, ids inside; a model that is there is replaced."""
        if self.saved is None:
            raise ModelError(UNTRAINED)
        _check_not_prepared(Path(folder))
        with locked_run(Path(folder), keep=False):
            save_model(Path(folder), self.saved)

    @classmethod
    def load(cls, folder: str | Path, device: str = "cpu", *, exact: bool = False) -> "Recommender":
        """Read a model directory; with `exact` a search index in it is not used."""
        saved = load_model(folder)
        if exact:
            saved = replace(saved, index=None)
        recommender = cls(saved.encoder, saved.output, device=device)
        recommender.training = TrainingOptions(**saved.training["options"])
        recommender.encoder_options = saved.encoder_options
        recommender.prepare = PrepareOptions(**saved.training["prepared"])
        return recommender._adopt(saved)

    def _adopt(self, saved: Saved) -> "Recommender":
        self.saved = saved
        saved.model.to(self.device)
        ranker = self.ranker()
        if saved.index is not None:
            ranker.search = IndexSearch(saved.index, saved.model.table)
        self._advisor = Advisor(ranker, saved.catalogue)
        return self

    def open(self, data: Any, items: Any = None, options: PrepareOptions | None = None) -> Sequences:
        """What training reads: a prepared folder as it is, anything else prepared first."""
        if _prepared(data):
            if items is not None:
                raise SpecError("the data is prepared already; give the item table when preparing it")
            sequences = data if isinstance(data, Sequences) else Sequences.open(data)
            sequences.verify()
            return sequences
        log = data if isinstance(data, Log) else read_log(data, **self.reading)
        temporary = Temporary()
        try:
            sequences = prepare(log, temporary.path / "sequences", options=options or self.prepare, items=items)
        except BaseException:
            temporary.close()
            raise
        weakref.finalize(sequences, temporary.close)
        return sequences

    @property
    def reading(self) -> dict[str, Any]:
        """How the log that it was trained on was read, as arguments of `read_log`; nothing before a fit."""
        source = self.saved.training.get("source") if self.saved is not None else None
        return {"like": Columns(**source["columns"]), "on_bad_row": source.get("on_bad_row", "error")} if source else {}

    def as_learned(self, source: HistorySource) -> HistorySource:
        """The same histories, read as the log that it was trained on: its columns, bad rows, events and order."""
        return replace(source, like=self.reading, options=self.learned)

    @property
    def learned(self) -> PrepareOptions:
        """How the log that it was trained on was prepared; before a fit, how one would be."""
        return self.prepare if self.saved is None else PrepareOptions(**self.saved.training["prepared"])

    def _sizes(self) -> dict[str, Any]:
        """The encoder's options, for the longest window of training or ranking."""
        longest = max(self.training.window, self.training.targets + self.training.overlap)
        return encoder_class(self.encoder).sized(self.encoder_options, longest)

    def _refit_options(self) -> TrainingOptions:
        """The same training, stopped after the epoch that validated best."""
        best = self.saved.training.get("best_epoch") if self.saved else None
        if best is None:
            raise ModelError("refit needs an earlier fit to know how many epochs are best; call fit(log) first")
        return TrainingOptions(**{**asdict(self.training), "stop_after": best + 1})

    def _identity(self, sequences: Sequences, options: TrainingOptions, refit: bool) -> dict[str, Any]:
        """What makes two runs the same run."""
        return {
            "encoder": self.encoder,
            "output": self.output,
            "encoder_options": self._sizes(),
            "options": asdict(self.training),
            "fingerprint": sequences.fingerprint,
            "everything": refit,
            "refit_epochs": options.stop_after if refit else None,
        }

    def _check_held_out(self, sequences: Sequences) -> None:
        assert self.saved is not None
        training = self.saved.training
        if sequences.fingerprint != training["fingerprint"]:
            raise ModelError(
                "this model was trained on other data (or the same log prepared with other options), so its targets "
                "may have been trained on; evaluate on the log it was trained on, prepared with the same options"
            )
        if training["everything"]:
            raise ModelError("this model was refitted on everything: no target is held out; evaluate the fit before it")


def _check_not_prepared(folder: Path) -> None:
    if is_prepared(folder):
        raise ModelError(f"{folder} is a prepared folder; give the model a folder of its own")


def _prepared(data: Any) -> bool:
    """Whether data needs no preparing."""
    return isinstance(data, Sequences) or (isinstance(data, str | Path) and is_prepared(Path(data)))


class _RunRecord(Callback):
    """Appends each epoch to the run's record, then calls the user's callback."""

    def __init__(self, folder: Path | None, callback: Callback) -> None:
        self.folder, self.callback = folder, callback

    def on_step(self, step: Step) -> None:
        self.callback.on_step(step)

    def on_epoch(self, record: Record) -> None:
        if self.folder is not None:
            append_record(self.folder, record)
        self.callback.on_epoch(record)


def _start_run(folder: Path, trainer: Trainer, identity: dict[str, Any], resume: bool) -> None:
    """Begin in a folder, or go on with the run whose state is there."""
    folder.mkdir(parents=True, exist_ok=True)
    if not resume:
        (folder / STATE).unlink(missing_ok=True)
        write_record(folder, [])
        return
    if (folder / STATE).exists():
        check_same_run(folder, load_state(folder)[1]["identity"], identity)
        trainer.resume(folder)
    write_record(folder, trainer.progress["records"])


def _catalogue(sequences: Sequences, *, everything: bool) -> Catalogue:
    """The items that a model will know: with `everything` also those that were seen only after training ended."""
    catalogue = sequences.catalogue
    return Catalogue(catalogue.ids, None, catalogue.columns) if everything else catalogue.known()


def load(folder: str | Path, device: str = "cpu", *, exact: bool = False) -> Recommender:
    """Read a model directory; with `exact` a search index in it is not used."""
    return Recommender.load(folder, device, exact=exact)
