"""Runs of a folder, finished or not, read from their records without loading a weight."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from abaca.display import plain
from abaca.errors import ModelError
from abaca.shapes import loads
from abaca.training.checkpoint import KIND, MODEL, read_document
from abaca.training.state import RECORD, STATE, read_progress
from abaca.types import Record

State = Literal["finished", "unfinished", "damaged"]


@dataclass(frozen=True)
class RunSummary:
    """One run: what was trained, and how it went."""

    name: str
    """Its folder, below the one that was searched."""
    state: State
    options: dict[str, Any]
    """Encoder, output layer, options of both and of training, and the data; empty where they are not recorded."""
    records: list[Record]
    """Its epochs."""
    with_evidence: float | None = None
    """The validation figure of the whole model, where evidence was fitted after training."""

    @property
    def metric(self) -> str | None:
        """The validation metric that chose the epoch; None where nothing was validated."""
        name = self.options.get("metric", "ndcg@10")
        return name if any(name in record for record in self.records) else None

    @property
    def curve(self) -> list[float]:
        """The validation figure after each epoch, or the loss where nothing was validated."""
        name = self.metric or "loss"
        return [record[name] for record in self.records if name in record]

    @property
    def best(self) -> float | None:
        """The best validation figure of the network."""
        return max(self.curve) if self.metric is not None else None

    @property
    def best_epoch(self) -> int | None:
        """The first epoch that had it, from 1."""
        return None if self.best is None else self.curve.index(self.best) + 1

    @property
    def figure(self) -> float | None:
        """The validation figure of the whole model, as far as it is known."""
        return self.best if self.with_evidence is None else self.with_evidence

    @property
    def seconds(self) -> float:
        """Wall time of training and validation."""
        return float(sum(record.get("seconds", 0) + record.get("validation_seconds", 0) for record in self.records))

    def to_json(self) -> dict[str, Any]:
        """Plain data for `json.dumps`."""
        found = {"metric": self.metric, "best": self.best, "best_epoch": self.best_epoch, "seconds": self.seconds}
        document: dict[str, Any] = plain(asdict(self) | found)
        return document


def read_runs(folder: Path) -> list[RunSummary]:
    """Every run in a folder and below it, the best validation figure first."""
    if not folder.is_dir():
        raise ModelError(f"{folder} is not a folder; give one that holds model directories")
    places = sorted({path.parent for name in (MODEL, STATE, RECORD) for path in folder.rglob(name)})
    names = [place.relative_to(folder.parent if place == folder else folder) for place in places]
    found = [_read_run(place, str(name)) for place, name in zip(places, names, strict=True)]
    runs = [run for run in found if run is not None]
    if not runs:
        raise ModelError(f"{folder} holds no run; `abaca train LOG {folder / 'model'}` makes one")
    return sorted(runs, key=lambda run: (run.figure is None, -(run.figure or 0.0), run.name))


def differing(runs: Sequence[RunSummary]) -> list[str]:
    """The names of the options that are not the same in all runs; a run without recorded options counts in none."""
    known = [run.options for run in runs if run.options]
    names = dict.fromkeys(name for options in known for name in options)
    return [name for name in names if any(options.get(name) != known[0].get(name) for options in known)]


def value_text(value: Any) -> str:
    """An option's value; a dash where it is not recorded."""
    return "–" if value is None else f"{value:g}" if isinstance(value, float) else str(value)


def figure_text(value: float | None) -> str:
    """A validation figure; a dash for none."""
    return "–" if value is None else f"{value:.4f}"


def epochs_text(run: RunSummary) -> str:
    """The number of epochs, the best of them, and whether the run ended."""
    best = "" if run.best_epoch is None else f", best {run.best_epoch}"
    return f"{len(run.records)} epochs{best}" + ("" if run.state == "finished" else f" ({run.state})")


def _read_run(folder: Path, name: str) -> RunSummary | None:
    """The run of a folder; None where its `model.json` belongs to something else."""
    try:
        if (folder / STATE).exists() or not (folder / MODEL).exists():
            identity = read_progress(folder)["identity"] if (folder / STATE).exists() else {}
            return RunSummary(name, "unfinished", _options(identity), _epochs(folder))
        training = read_document(folder)["training"]
        return RunSummary(name, "finished", _options(training), training["records"], training.get("with_evidence"))
    except (ModelError, KeyError):
        return RunSummary(name, "damaged", {}, []) if _claims_to_be_a_model(folder) else None


def _claims_to_be_a_model(folder: Path) -> bool:
    return (folder / STATE).exists() or KIND in (folder / MODEL).read_text(encoding="utf-8", errors="replace")


def _options(identity: dict[str, Any]) -> dict[str, Any]:
    """What a run consists of, on one level."""
    if not identity:
        return {}
    own = {"encoder": identity["encoder"], "output": identity["output"], "data": identity["fingerprint"][:8]}
    own |= {"refit": True} if identity.get("everything") else {}
    return {**own, **identity["options"], **identity["encoder_options"], **identity.get("output_options", {})}


def _epochs(folder: Path) -> list[Record]:
    """The epochs in the record of a run; a last line that was cut is left out."""
    records = []
    lines = (folder / RECORD).read_text(encoding="utf-8").splitlines() if (folder / RECORD).exists() else []
    for line in lines:
        try:
            records.append(loads(line))
        except ValueError:
            break
    return records
