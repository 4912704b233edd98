"""`model.json`: its shape, its checksum, and reading it. What it holds is compared with its shape before it is used."""

import hashlib
import json
from dataclasses import fields
from pathlib import Path
from typing import Any

from abaca.data.prepare import PrepareOptions
from abaca.data.reading.values import UNITS
from abaca.errors import ModelError, SpecError
from abaca.evidence.habits import KINDS as HABITS
from abaca.nn.item_columns import KINDS as COLUMN_KINDS
from abaca.options import TrainingOptions
from abaca.shapes import Each, Least, OneOf, Only, mismatch, read_json

FORMAT = 1
KIND = "abaca model"
MODEL = "model.json"
CURE = "copy the model again or train again"


def _options(kind: type[Any]) -> Only:
    """The fields of a dataclass of options, each of the type of its default."""
    either = (str, float, [str], None)
    types = {field.name: either if field.default is None else type(field.default) for field in fields(kind)}
    return Only({f"{name}?": shape for name, shape in types.items()})


TYPES = {"names": [str], "targets": [str], "usual": str}
WEIGHTS = Only(
    {
        "scale": float,
        "own_scale": float,
        "own": float,
        "habits": Each([float]),
        "followers": float,
        "own_followers": float,
        "sharpness": float,
    }
)
TRAINING = {
    "options?": _options(TrainingOptions),
    "prepared?": _options(PrepareOptions),
    "encoder_options?": dict,
    "source?": {
        "columns?": Only({"user": str, "item": str, "time?": (str, None), "event?": (str, None)}),
        "on_bad_row?": OneOf(("error", "skip")),
    },
    "fingerprint?": str,
    "everything?": bool,
    "split?": dict,
    "counts?": dict,
    "records?": [{"targets?": Least(0)}],
    "best?": (float, None),
    "best_epoch?": (Least(0), None),
    "with_evidence?": (float, None),
    "event_types?": TYPES,
    "type_weights?": Each(float),
    "time_unit?": (OneOf(tuple(UNITS)), None),
    "last_time?": (float, None),
    "rows?": (Least(0), None),
    "retired?": [(str, int)],
    "updates?": [dict],
    "budget?": dict,
    "diverged?": str,
}
DOCUMENT = {
    "encoder": str,
    "encoder_options": dict,
    "output": str,
    "output_options?": dict,
    "imports?": Each(str),
    "catalogue": Least(0),
    "training": TRAINING,
    "files": Each({"bytes": Least(0), "sha256": str}),
    "features?": [Only({"name": str, "kind": OneOf(COLUMN_KINDS), "known": [(str, float)], "width": Least(0)})],
    "evidence?": {
        "parts": [OneOf(("habits", "followers"))],
        "window": Least(1),
        "clock": [(float, bool)],
        "fade?": float,
        "weights": Only({"order": WEIGHTS, **{f"{kind}?": WEIGHTS for kind in HABITS if kind != "order"}}),
        "types?": TYPES,
    },
    "index?": {"kind": OneOf(("ivf", "hnsw", "flat")), "effort": Least(1), "weights": str, "facts": dict},
}


def read_document(folder: Path) -> dict[str, Any]:
    """The contents of `model.json`, once its kind, version, checksum and shape are right."""
    path = folder / MODEL
    if not _is_model(folder):
        raise ModelError(f"{folder} is not a model directory (no {MODEL}); make one with `abaca train LOG {folder}`")
    try:
        document = read_json(path, ModelError, CURE)
    except OSError as error:
        raise unreadable(path, error) from error
    if not isinstance(document, dict) or document.get("kind") != KIND:
        raise ModelError(f"{path} does not describe an abaca model")
    version = document.get("format")
    if version != FORMAT:
        cure = "update abaca" if isinstance(version, int) and version > FORMAT else "train again"
        raise ModelError(f"{folder} is in format {version}, this release reads format {FORMAT}; {cure}")
    if document.get("sha256") != _digest_or_none(document):
        raise ModelError(f"{path} is not what was saved (its checksum differs); {CURE}")
    if (words := mismatch(document, DOCUMENT)) is not None:
        raise ModelError(f"{path}: {words}; {CURE}")
    for name in document["files"]:
        if Path(name).name != name:
            raise ModelError(f"{path} names a file outside the model directory: {name}")
    return document


def options_of(where: Path, training: dict[str, Any]) -> tuple[TrainingOptions, PrepareOptions]:
    """The options that a model was trained and its log prepared with."""
    needed = ("options", "prepared", "fingerprint", "everything", "split", "records", "encoder_options")
    if missing := [name for name in needed if name not in training]:
        raise ModelError(f"{where / MODEL}: training.{missing[0]} is missing; {CURE}")
    try:
        return TrainingOptions(**training["options"]), PrepareOptions(**training["prepared"])
    except (SpecError, TypeError, ValueError) as error:  # of another kind than the option's
        raise ModelError(f"{where / MODEL}: {error}; {CURE}") from error


def document_digest(document: dict[str, Any]) -> str:
    """Of everything in `model.json` but the checksum itself."""
    rest = {key: value for key, value in document.items() if key != "sha256"}
    return hashlib.sha256(json.dumps(rest, sort_keys=True).encode()).hexdigest()


def _digest_or_none(document: dict[str, Any]) -> str | None:
    """None for a document that cannot be written again, since it is nested too deeply."""
    try:
        return document_digest(document)
    except RecursionError:
        return None


def unreadable(path: Path, error: OSError) -> ModelError:
    """The error for a file that this user cannot read."""
    cure = "give this user the permission to read it" if isinstance(error, PermissionError) else "copy the model again"
    return ModelError(f"{path} cannot be read ({error.strerror or error}); {cure}")


def _is_model(folder: Path) -> bool:
    """Whether a folder has a `model.json`, which this user may or may not read."""
    try:
        return (folder / MODEL).is_file()
    except OSError as error:
        raise unreadable(folder, error) from error
