"""The model directory: safetensors and JSON, no pickle.

A model directory holds `model.json`, which names the other files with their checksums:

    model.json                      encoder, output layer, options, what it was trained on, validation figures
    weights-<checksum>.safetensors  the weights
    catalogue-<checksum>.json       raw ids by item index, and the item table's columns
    index-<checksum>.faiss          a search index of the item table, where `abaca index` made one
    card.md                         all this for people; see `training/card.py`
    ledger-<checksum>.parquet       the log, where the model was trained with `updatable`

Since the names carry checksums, replacing `model.json` swaps a model in one step: no reader ever sees halves of two.
While training runs, the files of `training/state.py` are there too.
"""

import hashlib
import json
import re
import shutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from abaca.data.catalogue import Catalogue
from abaca.durable import checksum, file_facts, put_in_place, whole_file, write_text
from abaca.errors import ModelError, SpecError
from abaca.evaluation.baselines import Baseline
from abaca.evaluation.sound import not_finite
from abaca.evidence.evidence import Evidence
from abaca.histories import EventTypes, Ints
from abaca.nn.model import Model
from abaca.plugins import import_paths
from abaca.shapes import Each, Least, mismatch, read_json
from abaca.training.building import COUNTS as COUNTS
from abaca.training.building import RULE as RULE
from abaca.training.building import build_ranks, take_evidence, types_of
from abaca.training.card import weights_name, write_card
from abaca.training.document import CURE, FORMAT, document_digest, unreadable
from abaca.training.document import KIND as KIND
from abaca.training.document import MODEL as MODEL
from abaca.training.document import read_document as read_document
from abaca.training.state import locked_folder, write_tensors

POPULARITY = "popularity"
"""The name of an updated model's interactions of each item, beside the weights."""
OWN_FILE = re.compile(r"(?:weights|catalogue|index|ledger)-([0-9a-f]{12})\.(?:safetensors|json|faiss|parquet)")
"""The name of a file that a save or an index made; whose else it is, its checksum shows."""
CATALOGUE = {"ids": [(str, int)], "size": Least(0), "columns?": Each(list)}
DRAFTS = ("weights.new.safetensors", "ledger.new.parquet", "index.new.faiss")


def copy_file(path: Path, to: Path) -> None:
    """Copy a whole file or nothing; one that is there already stays."""
    if not to.exists():
        with whole_file(to, ModelError) as part:
            shutil.copyfile(path, part)


@dataclass(frozen=True)
class Saved:
    """A model with everything that using it takes."""

    ranks: Model | Baseline
    encoder: str
    """The name of the encoder, or RULE for a baseline."""
    output: str
    """The output layer, or the name of the baseline."""
    encoder_options: dict[str, Any]
    catalogue: Catalogue
    training: dict[str, Any]
    """Options, data fingerprint, split and validation figures."""
    index: "IndexRecord | None" = None
    """The search index of its item table."""
    output_options: dict[str, Any] = field(default_factory=dict)
    """The options of an output layer that is a plug-in."""
    evidence: Evidence | None = None
    """What was fitted after training."""
    ledger: pyarrow.Table | Path | None = None
    """The log, or the file that holds it, where later rows may be added."""
    popularity: Ints | None = None
    """Interactions of each item (V,), where items are not numbered by them: in an updated model."""

    @property
    def model(self) -> Model:
        """The network; a baseline has none."""
        if isinstance(self.ranks, Baseline):
            raise ModelError(f"'{self.output}' is a baseline: it has no item vectors; train a model without `baseline`")
        return self.ranks

    @property
    def types(self) -> EventTypes | None:
        """The types of events that it tells apart."""
        return types_of(self.training)

    @property
    def figure(self) -> float | None:
        """The validation figure of the whole model, evidence included; None where it was not validated."""
        found: float | None = self.training.get("with_evidence", self.training.get("best"))
        return found

    def tensors(self) -> dict[str, Tensor]:
        """Everything that was learned."""
        if isinstance(self.ranks, Baseline):
            return self.ranks.state()
        counts = {} if self.evidence is None else self.evidence.tensors()
        weights = {name: tensor.detach() for name, tensor in self.ranks.state_dict().items()}
        popularity = {} if self.popularity is None else {POPULARITY: torch.from_numpy(self.popularity)}
        return weights | popularity | {COUNTS + name: tensor for name, tensor in counts.items()}

    @property
    def retired(self) -> list[Any]:
        """Ids of the items that are never recommended."""
        return list(self.training.get("retired", ()))

    def read_ledger(self) -> pyarrow.Table:
        """The log that the model was trained on."""
        if self.ledger is None:
            raise ModelError(
                "this model does not keep its log, so new rows cannot be added to it; give the whole log, old rows "
                "included, with `whole=True`, or train with `updatable=True`"
            )
        if not isinstance(self.ledger, Path):
            return self.ledger
        try:
            return pyarrow.parquet.read_table(self.ledger)
        except (OSError, pyarrow.ArrowException) as error:
            raise ModelError(f"{self.ledger} cannot be read ({error}); update with the whole log instead") from error


@dataclass(frozen=True)
class IndexRecord:
    """A search index in a model directory."""

    path: Path
    kind: str
    effort: int
    facts: dict[str, Any]
    """The options and the measurements of its construction."""
    weights: str
    """The file of weights that it was made for, whose name changes with them."""

    def document(self) -> dict[str, Any]:
        """As in `model.json`."""
        return {"kind": self.kind, "effort": self.effort, "weights": self.weights, "facts": self.facts}


def save_model(folder: Path, saved: Saved) -> None:
    """Write a model directory; an older model in it is replaced in one step."""
    tensors = saved.tensors()
    if (name := not_finite(tensors)) is not None:
        raise ModelError(
            f"{folder}: {name} holds numbers that are not finite, so it is not saved; train with a lower lr"
        )
    folder.mkdir(parents=True, exist_ok=True)
    before = _files_before(folder) | _left_over(folder)
    catalogue = json.dumps(saved.catalogue.known().to_json(), ensure_ascii=False)
    catalogue_name = f"catalogue-{_digest(catalogue.encode())[:12]}.json"
    write_text(folder / catalogue_name, catalogue, ModelError)
    part = folder / "weights.new.safetensors"
    write_tensors(part, tensors)
    weights_name = f"weights-{checksum(part)[:12]}.safetensors"
    put_in_place(part, folder / weights_name)
    names = [catalogue_name, weights_name, *_write_ledger(folder, saved.ledger)]
    files = {name: file_facts(folder / name) for name in names}
    document = {
        "kind": KIND, "format": FORMAT, "encoder": saved.encoder, "encoder_options": saved.encoder_options,
        "output": saved.output, "catalogue": saved.catalogue.size, "training": saved.training, "files": files,
    }  # fmt: skip
    if imports := import_paths(saved.encoder, saved.output):
        document.update(imports=imports, output_options=saved.output_options)
    if isinstance(saved.ranks, Model) and saved.ranks.features is not None:
        document["features"] = saved.ranks.features.features.to_json()
    if saved.evidence is not None:
        document["evidence"] = saved.evidence.to_json()
    if saved.index is not None and saved.index.weights == weights_name:
        copy_file(saved.index.path, folder / saved.index.path.name)
        files[saved.index.path.name] = file_facts(saved.index.path)
        document["index"] = saved.index.document()
    document["sha256"] = document_digest(document)
    write_text(folder / MODEL, json.dumps(document, indent=1, ensure_ascii=False) + "\n", ModelError)
    write_card(folder, document)
    for old in before - files.keys():
        (folder / old).unlink(missing_ok=True)


def _write_ledger(folder: Path, ledger: pyarrow.Table | Path | None) -> list[str]:
    """Write the ledger, if there is one; the name of its file."""
    if ledger is None:
        return []
    if isinstance(ledger, Path):
        copy_file(ledger, folder / ledger.name)
        return [ledger.name]
    part = folder / "ledger.new.parquet"
    with whole_file(part, ModelError) as draft:
        pyarrow.parquet.write_table(ledger, draft, compression="zstd")
    name = f"ledger-{checksum(part)[:12]}.parquet"
    put_in_place(part, folder / name)
    return [name]


def _files_before(folder: Path) -> set[str]:
    """Files of the model that is replaced; nothing else in the folder is ever deleted."""
    try:
        return {name for name in read_document(folder)["files"] if Path(name).name == name}
    except (ModelError, KeyError, TypeError):
        return set()


def _left_over(folder: Path) -> set[str]:
    """Files that a save or an index left when it was killed: drafts, and files named after their own checksum."""
    found = {path.name for name in DRAFTS for path in (folder / name, folder / f"{name}.part") if path.is_file()}
    for path in folder.iterdir():
        named = OWN_FILE.fullmatch(path.name)
        if named and path.is_file() and checksum(path).startswith(named[1]):
            found.add(path.name)
    return found


def load_model(folder: str | Path) -> Saved:
    """Read a model directory, refusing one that is damaged, changed, or of another version."""
    folder = Path(folder)
    document = read_document(folder)
    paths = _checked_files(folder, document)
    catalogue = _catalogue(paths["catalogue"], document)
    try:
        tensors = load_file(paths["weights"])
        if (name := not_finite(tensors)) is not None:
            raise ModelError(f"{paths['weights']}: {name} holds numbers that are not finite; train again")
        evidence, popularity = take_evidence(document, tensors, catalogue.size), tensors.pop(POPULARITY, None)
        if popularity is not None and (popularity.shape, popularity.dtype) != ((catalogue.size,), torch.int64):
            raise ValueError(f"{POPULARITY} is not a count for each of {catalogue.size} items")
        ranks = build_ranks(document, catalogue, tensors)
    except (OSError, LookupError, ValueError, TypeError, RuntimeError, SafetensorError, SpecError) as error:
        fault = str(error).partition("\nException raised from")[0]  # torch's own stack comes after it
        raise ModelError(f"{folder}: the files do not belong together ({fault}); train again") from error
    return Saved(
        ranks, document["encoder"], document["output"], document["encoder_options"], catalogue, document["training"],
        _index_record(folder, document, paths), document.get("output_options", {}), evidence,
        paths.get("ledger"), None if popularity is None else popularity.numpy(),
    )  # fmt: skip


def _checked_files(folder: Path, document: dict[str, Any]) -> dict[str, Path]:
    """The files of a model by their part, once each is what was saved."""
    paths: dict[str, Path] = {}
    for name, facts in document["files"].items():
        path, part = folder / name, name.split("-")[0]
        if not path.is_file():
            raise ModelError(f"{path} is missing: the model directory is incomplete; {CURE}")
        if _facts_or_none(path) != facts:
            raise ModelError(f"{path} is not what was saved (size or checksum differs); {CURE}")
        if part in paths:
            raise ModelError(f"{folder / MODEL} names two files of {part}; {CURE}")
        paths[part] = path
    for part in ("catalogue", "weights"):
        if part not in paths:
            raise ModelError(f"{folder / MODEL} names no file of {part}; {CURE}")
    return paths


def _catalogue(path: Path, document: dict[str, Any]) -> Catalogue:
    try:
        found = read_json(path, ModelError, CURE)
        if (words := mismatch(found, CATALOGUE)) is not None:
            raise ValueError(words)
        catalogue = Catalogue.from_json(found)
        if len({type(id) for id in catalogue.ids}) > 1 or len(set(catalogue.ids)) < len(catalogue):
            raise ValueError("ids are text or whole numbers, each once")
        if not catalogue.size == len(catalogue) == document["catalogue"]:
            raise ValueError(f"it has {len(catalogue)} ids where {MODEL} has {document['catalogue']}")
    except ValueError as error:
        raise ModelError(f"{path}: {error}; {CURE}") from error
    return catalogue


def _index_record(folder: Path, document: dict[str, Any], paths: dict[str, Path]) -> IndexRecord | None:
    """The index that belongs to these very weights, None where there is none."""
    found = document.get("index")
    if found is None:
        return None
    if "index" not in paths or found.get("weights") != paths["weights"].name:
        raise ModelError(f"{folder}: the search index was made for other weights; run `abaca index {folder}` again")
    return IndexRecord(paths["index"], found["kind"], found["effort"], found["facts"], found["weights"])


def weights_of(folder: Path) -> str:
    """The name of the file of weights, which changes with them."""
    return weights_name(read_document(folder))


def set_index(
    folder: Path, weights: str, draft: Path | None, kind: str = "", effort: int = 0, facts: Any = None
) -> None:
    """Make a file of the folder the index of these weights, if they are still there; None removes it."""
    with locked_folder(folder):
        _set_index(folder, weights, draft, kind, effort, facts)


def _set_index(folder: Path, weights: str, draft: Path | None, kind: str, effort: int, facts: Any) -> None:
    document = read_document(folder)
    if weights not in document["files"]:
        raise ModelError(f"{folder} has other weights than when its index was begun; run `abaca index {folder}` again")
    old = [name for name in document["files"] if name.startswith("index-")]
    for name in old:
        del document["files"][name]
    document.pop("index", None)
    if draft is not None:
        name = f"index-{checksum(draft)[:12]}.faiss"
        put_in_place(draft, folder / name)
        document["files"][name] = file_facts(folder / name)
        document["index"] = {"kind": kind, "effort": effort, "weights": weights, "facts": facts}
    document["sha256"] = document_digest(document)
    write_text(folder / MODEL, json.dumps(document, indent=1, ensure_ascii=False) + "\n", ModelError)
    write_card(folder, document)
    for name in old:
        if name not in document["files"]:
            (folder / name).unlink(missing_ok=True)


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _facts_or_none(path: Path) -> dict[str, Any] | None:
    """None for a file that has just gone, because the model is being replaced."""
    try:
        return file_facts(path)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise unreadable(path, error) from error
