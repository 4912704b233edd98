"""The public face: fit, recommend, evaluate, save, load."""

import difflib
import shutil
import tempfile
import weakref
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Any

import torch

from abaca.checkpoint import (
    STATE,
    Record,
    Saved,
    append_record,
    check_same_run,
    finished_run,
    load_model,
    load_state,
    save_model,
    write_record,
)
from abaca.data.catalogue import Catalogue
from abaca.data.log import Log, read_log
from abaca.data.prepare import PrepareOptions, prepare
from abaca.data.sequences import Sequences, is_prepared
from abaca.errors import ModelError, SpecError
from abaca.evaluation import Evaluation, evaluate
from abaca.nn.encoders import ENCODERS
from abaca.nn.model import make_model
from abaca.nn.outputs import OutputSpec
from abaca.ranking import ModelRanker
from abaca.recommendation import Advisor, Policy, Recommendations
from abaca.search.answer import IndexSearch
from abaca.training import Step, Trainer, TrainingOptions, Watch
from abaca.types import Id

DEFAULT_ENCODER = "sasrec"
DEFAULT_OUTPUT = "softmax+CPR:100+Mi"


class Recommender:
    """A model that learns from a log when to repeat and when to explore.

    `encoder` is gru4rec or sasrec, `output` an output layer such as softmax+CPR:100+Mi. Options are those of the
    training (`epochs`, `lr`, `seed`, …), of the encoder (`dim`, `dropout`, …) and of preparing a log (`min_user`,
    `split`, …).
    """

    def __init__(self, encoder: str = DEFAULT_ENCODER, output: str = DEFAULT_OUTPUT, **options: Any) -> None:
        if encoder not in ENCODERS:
            raise SpecError(f"encoder '{encoder}' is not one of {', '.join(ENCODERS)}")
        self.encoder = encoder
        self.output = str(OutputSpec.parse(output))
        self.training, self.encoder_options, self.prepare = sort_options(encoder, options)
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
        watch: Watch | None = None,
        items: Any = None,
    ) -> "Recommender":
        """Train on a log, a table, or a prepared folder, keeping the epoch that validates best.

        With `refit` it trains on everything, held-out targets included, for as many epochs as the earlier fit found
        best; such a model cannot be evaluated on the same data. With `folder` the run's state is kept there and
        `resume` takes it up again; the finished model is saved there too.
        """
        self._items = self._items if items is None else items
        sequences = self.open(data, items if _prepared(data) else self._items)
        options = self._refit_options() if refit else self.training
        identity = self._identity(sequences, options, refit)
        where = None if folder is None else Path(folder)
        done = finished_run(where, identity) if where is not None and resume else None
        if done is not None:
            self.sequences = sequences
            return self._adopt(done)
        torch.manual_seed(options.seed)
        catalogue = _catalogue(sequences, everything=refit)
        model = make_model(self.encoder, self.output, catalogue.size, **self._sizes())
        trainer = Trainer(model, sequences, options, everything=refit)
        trainer.progress["identity"] = identity
        if where is not None:
            _start_run(where, trainer, identity, resume)
        trainer.run(_Recorder(where, watch or Watch()), where)
        figures = {key: trainer.progress[key] for key in ("best", "best_epoch", "records")}
        training = {
            **identity,
            **figures,
            "split": sequences.manifest["split"],
            "prepared": sequences.manifest["options"],
        }
        self._adopt(Saved(model, self.encoder, self.output, self._sizes(), catalogue, training))
        self.sequences = sequences
        if where is not None:
            self.save(where)
            (where / STATE).unlink(missing_ok=True)
        return self

    def recommend(self, history: Sequence[Id], n: int = 10, **policy: Any) -> Recommendations:
        """The next items after one history of raw ids, oldest first.

        `repeats` is "auto" (as learned), "exclude" or "only"; `max_repeat_share` caps repeats; `exclude` and
        `candidates` are lists of ids.
        """
        return self.recommend_many([history], n, **policy)[0]

    def recommend_many(self, histories: Sequence[Sequence[Id]], n: int = 10, **policy: Any) -> list[Recommendations]:
        """The next items after each of many histories."""
        if self._advisor is None:
            raise ModelError("this recommender is not trained yet; call fit, or load a saved one with abaca.load")
        _check_names("recommend", policy, [field.name for field in fields(Policy) if field.name != "n"])
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
            raise ModelError("this recommender is not trained yet; call fit, or load a saved one with abaca.load")
        sequences = self.sequences if data is None else self.open(data)
        if sequences is None:
            raise ModelError("a loaded model does not carry its data; pass the log or the prepared folder to evaluate")
        self._check_held_out(sequences)
        return evaluate(self.ranker(), sequences, targets, cutoffs, progress)

    def ranker(self) -> ModelRanker:
        """The trained model as something that ranks, beside baselines."""
        assert self.saved is not None
        return ModelRanker(self.saved.model, self.training.window, f"{self.encoder} {self.output}")

    def save(self, folder: str | Path) -> None:
        """Write a model directory: safetensors and JSON, ids inside."""
        if self.saved is None:
            raise ModelError("this recommender is not trained yet; call fit before save")
        save_model(Path(folder), self.saved)

    @classmethod
    def load(cls, folder: str | Path, *, exact: bool = False) -> "Recommender":
        """Read a model directory; with `exact` a search index in it is not used."""
        saved = load_model(folder)
        if exact:
            saved = replace(saved, index=None)
        recommender = cls(saved.encoder, saved.output)
        recommender.training = TrainingOptions(**saved.training["options"])
        recommender.encoder_options = saved.encoder_options
        recommender.prepare = PrepareOptions(**_tuples(saved.training["prepared"]))
        return recommender._adopt(saved)

    def _adopt(self, saved: Saved) -> "Recommender":
        self.saved = saved
        ranker = self.ranker()
        if saved.index is not None:
            ranker.search = IndexSearch(saved.index, saved.model.items.weight)
        self._advisor = Advisor(ranker, saved.catalogue)
        return self

    def open(self, data: Any, items: Any = None) -> Sequences:
        """What training reads: a prepared folder as it is, anything else prepared first."""
        if _prepared(data):
            if items is not None:
                raise SpecError("the data is prepared already; give the item table when preparing it")
            return data if isinstance(data, Sequences) else Sequences.open(data)
        log = data if isinstance(data, Log) else read_log(data)
        folder = tempfile.mkdtemp(prefix="abaca-")
        try:
            sequences = prepare(log, Path(folder) / "sequences", options=self.prepare, items=items)
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise
        weakref.finalize(sequences, shutil.rmtree, folder, ignore_errors=True)
        return sequences

    def _sizes(self) -> dict[str, Any]:
        """The encoder's options; a transformer's window holds the longest that training or ranking shows it."""
        if self.encoder != "sasrec":
            return dict(self.encoder_options)
        longest = max(self.training.window, self.training.targets + self.training.overlap)
        return {**self.encoder_options, "window": longest}

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
            "options": asdict(options),
            "fingerprint": sequences.fingerprint,
            "everything": refit,
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


def _prepared(data: Any) -> bool:
    """Whether data needs no preparing."""
    return isinstance(data, Sequences) or (isinstance(data, str | Path) and is_prepared(Path(data)))


class _Recorder(Watch):
    """Appends each epoch to the run's record and passes it on."""

    def __init__(self, folder: Path | None, watch: Watch) -> None:
        self.folder, self.watch = folder, watch

    def step(self, step: Step) -> None:
        self.watch.step(step)

    def epoch(self, record: Record) -> None:
        if self.folder is not None:
            append_record(self.folder, record)
        self.watch.epoch(record)


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


def sort_options(encoder: str, options: dict[str, Any]) -> tuple[TrainingOptions, dict[str, Any], PrepareOptions]:
    """Hand each option to the part it belongs to; an unknown one is refused with the nearest name."""
    kinds = (TrainingOptions, ENCODERS[encoder][1], PrepareOptions)
    names = [{field.name: field.default for field in fields(kind)} for kind in kinds]
    defaults = names[0] | names[1] | names[2]
    _check_names(encoder, options, defaults)
    for name, value in options.items():
        _check_type(name, value, defaults[name])
    training, sizes, prepared = ({key: options[key] for key in options if key in known} for known in names)
    sizes.pop("window", None)  # follows from the training's
    return TrainingOptions(**training), asdict(kinds[1](**sizes)), PrepareOptions(**prepared)


def _check_names(owner: str, given: Iterable[str], known: Iterable[str]) -> None:
    """Refuse a name that is not known, with the nearest one that is."""
    every = sorted(known)
    for name in given:
        if name not in every:
            near = difflib.get_close_matches(name, every, n=1)
            hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(every)}"
            raise SpecError(f"{owner} has no option '{name}'; {hint}")


def _check_type(name: str, value: Any, default: Any) -> None:
    """Refuse a value that is not of its default's kind: a word for a number, a share for a count."""
    kinds: dict[type, tuple[Any, str]] = {
        int: (int, "a whole number"),
        float: (int | float, "a number"),
        str: (str, "text"),
    }
    kind, wanted = kinds.get(type(default), (object, ""))
    if not isinstance(value, kind) or (isinstance(value, bool) and wanted):
        raise SpecError(f"{name} must be {wanted}, got {value!r}")


def _tuples(options: dict[str, Any]) -> dict[str, Any]:
    """JSON has lists where options have tuples."""
    return {key: tuple(value) if isinstance(value, list) else value for key, value in options.items()}


def load(folder: str | Path, *, exact: bool = False) -> Recommender:
    """Read a model directory; with `exact` a search index in it is not used."""
    return Recommender.load(folder, exact=exact)
