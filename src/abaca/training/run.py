"""A run: a model trained on sequences, in memory or in a folder where it can be stopped and resumed."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import torch

from abaca import __version__
from abaca.data.batches import Replay
from abaca.data.catalogue import Catalogue
from abaca.data.sequences import Sequences
from abaca.data.splits import as_date
from abaca.errors import ModelError
from abaca.evaluation.baselines import BASELINES, Baseline
from abaca.evidence.evidence import Evidence
from abaca.histories import Histories
from abaca.nn.build import check_memory, make_model
from abaca.nn.features import Described
from abaca.nn.item_columns import ItemFeatures
from abaca.nn.model import Model
from abaca.options import TrainingOptions
from abaca.plugins import output_layer
from abaca.training.callbacks import Callback, Callbacks, Start
from abaca.training.checkpoint import MODEL, RULE, Saved, load_model, save_model
from abaca.training.evidence import fit_evidence
from abaca.training.fold import carried, known_items
from abaca.training.group import current
from abaca.training.start import start_from_counts
from abaca.training.state import STATE, append_record, read_progress, write_record
from abaca.training.trainer import Trainer
from abaca.types import Record

NOTHING_FOUND: dict[str, Any] = {"best": None, "records": [], "best_epoch": None}
"""The validation figures of a baseline, which is not validated."""

FIGURES = ("best", "best_epoch", "with_evidence")
"""The figures of a finished run: of the network, the epoch that had it, and of the whole model."""


@dataclass(frozen=True)
class Run:
    """What is trained and how. Two runs on the same sequences with equal fields are the same run."""

    encoder: str
    output: str
    encoder_options: dict[str, Any]
    options: TrainingOptions
    refit_epochs: int | None = None
    """Epochs of training on everything, held-out targets included; None for a run that validates."""
    output_options: dict[str, Any] = field(default_factory=dict)
    """The options of an output layer that is a plug-in."""
    fitted: Evidence | None = None
    """Evidence whose numbers a refit keeps, since it has no held-out targets."""
    ledger: pyarrow.Table | None = None
    """The log, kept with the model so that it can be updated."""
    start_from: Saved | None = None
    """A model whose weights are those at the start."""
    replay: Replay | None = None
    """Which windows an epoch has; None for all of them."""

    @property
    def epochs(self) -> int:
        """Epochs at most."""
        return self.refit_epochs or self.options.stop_after or self.options.epochs

    def train(
        self,
        sequences: Sequences,
        device: torch.device,
        folder: Path | None = None,
        *,
        resume: bool = False,
        callbacks: Sequence[Callback] = (),
    ) -> Saved:
        """The trained model with its record; it is also written to the folder, if there is one.

        Of several processes only the first has a folder and callbacks; it fits evidence while the others wait.
        """
        identity, group = self.identity(sequences), current()
        done = group.first(lambda: finished_run(folder, identity) if folder is not None and resume else None)
        if done is not None:
            return done
        everything = self.refit_epochs is not None
        catalogue = _catalogue(sequences, cold=everything or bool(self.options.features))
        ranks: Model | Baseline
        evidence = None
        with Callbacks((_RunRecord(folder), *callbacks)) as called:
            if self.encoder == RULE:
                called.on_start(self.started(sequences, folder))
                ranks, found = BASELINES[self.output]().fit(sequences, everything=everything), NOTHING_FOUND
            else:
                ranks = self._model(sequences, catalogue).to(device)
                found = self._train(ranks, sequences, folder, resume=resume, called=called)
                what = (ranks, sequences, self.options, self.fitted)
                evidence, figures = group.first(lambda: fit_evidence(*what, everything=everything))
                found |= figures
            training = {**identity, **found, **_data(sequences)}
            parts = (self.encoder, self.output, self.encoder_options)
            options = self.output_options
            saved = Saved(ranks, *parts, catalogue, training, None, options, evidence, self.ledger)
            if folder is not None:
                save_model(folder, saved)
                (folder / STATE).unlink(missing_ok=True)
            called.figures = {name: training[name] for name in FIGURES if training.get(name) is not None}
        return saved

    def is_in(self, folder: Path, sequences: Sequences) -> bool:
        """Whether a folder holds this very run, finished or not."""
        identity = self.identity(sequences)
        try:
            return _resumes(folder, identity, resume=True) or finished_run(folder, identity) is not None
        except ModelError:
            return False

    def _model(self, sequences: Sequences, catalogue: Catalogue) -> Model:
        """The model before training."""
        output = output_layer(self.output, self.output_options)
        check_memory(self.encoder, output, catalogue.size, **self.encoder_options)
        torch.manual_seed(self.options.seed)
        if self.start_from is not None:
            known = known_items(self.start_from.catalogue, catalogue)
            model = carried(self.start_from, known, self._rows(sequences), catalogue.columns)
            model.types = sequences.types  # the usual one may be another
            return model
        described, sizes = self._described(catalogue, sequences), self.encoder_options
        model = make_model(self.encoder, output, catalogue.size, described, types=sequences.types, **sizes)
        if self.options.start == "counts":  # the others get the weights of the first
            current().first(lambda: start_from_counts(model, self._rows(sequences), self.options.seed))
        return model

    def _rows(self, sequences: Sequences) -> Histories:
        """What training may see of every user, in memory."""
        return sequences.training(everything=self.refit_epochs is not None)

    def _described(self, catalogue: Catalogue, sequences: Sequences) -> Described | None:
        """The features of all items, as training rows know them; None for a model without features."""
        if not self.options.features:
            return None
        warm = int(self._rows(sequences).items.max(initial=0)) + 1  # items are numbered by their training interactions
        found = ItemFeatures.of(self.options.features, catalogue.columns, warm)
        return Described(found, found.entries(catalogue.columns, catalogue.size), warm, self.options.feature_dropout)

    def _train(
        self, model: Model, sequences: Sequences, folder: Path | None, *, resume: bool, called: Callbacks
    ) -> dict[str, Any]:
        """Train the model to its best epoch; the validation figures, and after how many epochs they were best."""
        everything = self.refit_epochs is not None
        options = replace(self.options, stop_after=self.refit_epochs) if self.refit_epochs else self.options
        trainer = Trainer(model, sequences, options, everything=everything, replay=self.replay)
        trainer.progress["identity"] = identity = self.identity(sequences)
        if current().first(lambda: folder is not None and _resumes(folder, identity, resume)):
            trainer.resume(folder)
        if folder is not None:
            write_record(folder, trainer.progress["records"])
        called.on_start(self.started(sequences, folder, trainer.progress["records"]))
        trainer.run(called, folder)
        kept = ("best", "records", "best_epoch", "diverged")
        found = {key: trainer.progress[key] for key in kept if key in trainer.progress}
        if sequences.types is not None and trainer.epochs.type_weights is not None:
            weights = trainer.epochs.type_weights.tolist()
            found["type_weights"] = dict(zip(sequences.types.names, weights, strict=True))
        return found if self.refit_epochs is None else {**found, "best_epoch": self.refit_epochs - 1}

    def started(self, sequences: Sequences, folder: Path | None, records: Sequence[Record] = ()) -> Start:
        """What callbacks are told at the start."""
        rule = self.encoder == RULE
        options = {} if rule else {**asdict(self.options), **self.encoder_options}
        data = {
            "users": sequences.users,
            "items": sequences.catalogue.size,
            "interactions": len(sequences.items),
            "targets": sequences.training_targets,
        }
        return Start(self.encoder, self.output, options, data, 0 if rule else self.epochs, folder, tuple(records))

    def identity(self, sequences: Sequences) -> dict[str, Any]:
        """What makes two runs the same run."""
        return {
            "encoder": self.encoder,
            "output": self.output,
            "encoder_options": self.encoder_options,
            "output_options": self.output_options,
            "options": asdict(self.options),
            "fingerprint": sequences.fingerprint,
            "everything": self.refit_epochs is not None,
            "refit_epochs": self.refit_epochs,
        }


def _data(sequences: Sequences) -> dict[str, Any]:
    """How the log was read, prepared and split, its size and period, and the release that trained on it."""
    manifest = sequences.manifest
    source = manifest.get("source", {})
    read = {key: source[key] for key in ("columns", "on_bad_row") if key in source}
    split, prepared = manifest["split"], manifest["options"]
    of_log = {"last_time": source.get("last_time"), "rows": manifest["counts"].get("read")}
    size = {"counts": manifest["counts"], "period": period_of(sequences), "abaca": __version__}
    if sequences.types is not None:
        size["event_types"] = manifest["event_types"]
    return {"split": split, "prepared": prepared, "source": read, "time_unit": sequences.time_unit, **size, **of_log}


def period_of(sequences: Sequences) -> list[str] | None:
    """The first and the last time of the interactions, as dates where they count from 1970."""
    if sequences.times is None or not len(sequences.times):
        return None
    ends = float(np.min(sequences.times)), float(np.max(sequences.times))
    return [as_date(time) or f"{time:.15g}" for time in ends]


def _resumes(folder: Path, identity: dict[str, Any], resume: bool) -> bool:
    """Whether the run whose state is in a folder goes on; if not, the folder is ready for another."""
    folder.mkdir(parents=True, exist_ok=True)
    if not resume:
        (folder / STATE).unlink(missing_ok=True)
    if not (folder / STATE).exists():
        return False
    check_same_run(folder, read_progress(folder)["identity"], identity)
    return True


def _catalogue(sequences: Sequences, *, cold: bool) -> Catalogue:
    """The items that a model will know: with `cold` also those that training does not see."""
    catalogue = sequences.catalogue
    return Catalogue(catalogue.ids, None, catalogue.columns) if cold else catalogue.known()


class _RunRecord(Callback):
    """Appends each epoch to the record in the run's folder."""

    def __init__(self, folder: Path | None) -> None:
        self.folder = folder

    def on_epoch(self, record: Record) -> None:
        if self.folder is not None:
            append_record(self.folder, record)


def finished_run(folder: Path, identity: dict[str, Any]) -> Saved | None:
    """The model of this very run, where the run is complete already."""
    if (folder / STATE).exists() or not (folder / MODEL).exists():
        return None
    saved = load_model(folder)
    check_same_run(folder, saved.training, identity)
    return saved


def check_same_run(folder: Path, before: dict[str, Any], identity: dict[str, Any]) -> None:
    """Refuse to resume another run."""
    of_earlier_releases = {"start": "random", "event_weights": "", "features": "", "feature_dropout": 0.2, "ahead": 0.0}
    was, now = (
        {
            **of_earlier_releases, **run, **run["encoder_options"], **run["options"],
            "option of the output layer": run.get("output_options", {}),
        }
        for run in (before, identity)
    )  # fmt: skip
    changed = [name for name in now if was.get(name) != now[name] and not name.endswith("options")]
    if changed:
        named = [
            "another log or way of preparing it" if name == "fingerprint"
            else f"{name} {was[name]!r}, not {now[name]!r}" if isinstance(was.get(name), int | float | str)
            else f"another {name}"
            for name in changed
        ]  # fmt: skip
        raise ModelError(
            f"{folder} holds a run with {'; '.join(named)}; resume with the options it began with"
            f"{_given(was, changed)}, or replace it with `overwrite=True`"
        )


def _given(was: dict[str, Any], changed: list[str]) -> str:
    """The changed options as they were given, or chosen."""
    options = {field.name for field in fields(TrainingOptions)} | {"encoder", "output", *was["encoder_options"]}
    given = ", ".join(
        f"`{name}={was[name]}`" for name in changed if name in options and was.get(name) not in (None, "")
    )
    return f" ({given})" if given else ""


def check_held_out(before: dict[str, Any], sequences: Sequences) -> None:
    """Refuse to evaluate a run on other data than its own, or on targets that it was trained on."""
    if sequences.fingerprint != before["fingerprint"]:
        raise ModelError(
            "this model was trained on other data (or the same log prepared with other options), so its targets "
            "may have been trained on; evaluate on the log it was trained on, prepared with the same options"
        )
    if before["everything"]:
        how = "updated" if before.get("updates") else "refitted"
        raise ModelError(f"this model was {how} on everything: no target is held out; evaluate the fit before it")
