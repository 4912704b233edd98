"""What a model directory holds as objects: network or baseline, and evidence. What does not fit is not built."""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from abaca.data.catalogue import Catalogue
from abaca.errors import ModelError
from abaca.evaluation.baselines import BASELINES, Baseline
from abaca.evidence.evidence import Evidence
from abaca.histories import EventTypes, Histories
from abaca.nn.answers import Question
from abaca.nn.build import make_model, planned
from abaca.nn.features import Described
from abaca.nn.item_columns import ItemFeatures
from abaca.nn.model import Model
from abaca.plugins import import_paths, output_layer

RULE = "rule"
"""In place of the encoder, for a saved baseline."""
COUNTS = "evidence."
"""Begins the names of what evidence counted, beside the weights."""


def build_ranks(document: dict[str, Any], catalogue: Catalogue, tensors: dict[str, Tensor]) -> Model | Baseline:
    """The model or baseline that was saved."""
    if document["encoder"] == RULE:
        return _restored(document["output"], catalogue, tensors)
    for part, path in document.get("imports", {}).items():
        if part not in import_paths(document["encoder"], document["output"]):
            raise ModelError(
                f"the model has {part} '{document[part]}', which was {path}; pass its class: abaca.load(folder, "
                f"{part}=…), or call abaca.register before"
            )
    output = output_layer(document["output"], document.get("output_options", {}))
    with torch.random.fork_rng(devices=[]):
        types, described = types_of(document["training"]), _described(document, catalogue)
        sizes = document["encoder_options"]
        with planned():  # nothing is allocated before the sizes are known to be those of the file
            plan = make_model(document["encoder"], output, catalogue.size, described, types=types, **sizes)
        _compare(plan, tensors)
        model = make_model(document["encoder"], output, catalogue.size, described, types=types, **sizes)
    model.load_state_dict(tensors)
    return model.eval()


def _compare(plan: Model, tensors: dict[str, Tensor]) -> None:
    """Refuse tensors that are not those of a model."""
    wanted = {name: (tuple(tensor.shape), tensor.dtype) for name, tensor in plan.state_dict().items()}
    found = {name: (tuple(tensor.shape), tensor.dtype) for name, tensor in tensors.items()}
    for name in wanted.keys() | found.keys():
        if wanted.get(name) != found.get(name):
            said = f"{name} is {_words(found.get(name))} where the options imply {_words(wanted.get(name))}"
            raise ValueError(said)


def _words(tensor: tuple[tuple[int, ...], torch.dtype] | None) -> str:
    return "absent" if tensor is None else f"{' × '.join(map(str, tensor[0]))} of {str(tensor[1]).split('.')[1]}"


def _restored(name: str, catalogue: Catalogue, tensors: dict[str, Tensor]) -> Baseline:
    """A baseline that can answer."""
    if name not in BASELINES:
        raise ValueError(f"there is no baseline '{name}'")
    baseline = BASELINES[name]().restore(tensors)
    if baseline.catalogue != catalogue.size:
        raise ValueError(f"it counts {baseline.catalogue} items where the catalogue has {catalogue.size}")
    if catalogue.size:
        none = torch.zeros(2, 0, dtype=torch.int64)
        histories = Histories.of([[0], np.arange(min(catalogue.size, 100))])
        baseline.ask(histories, Question(torch.zeros(2, dtype=torch.int64), 1, none, none))
    return baseline


def types_of(training: dict[str, Any]) -> EventTypes | None:
    """The types of events in the record of a training."""
    return EventTypes.of(training["event_types"]) if "event_types" in training else None


def _described(document: dict[str, Any], catalogue: Catalogue) -> Described | None:
    """The features of a model's items; None for a model without."""
    if "features" not in document:
        return None
    found = ItemFeatures.from_json(document["features"])
    return Described(found, found.entries(catalogue.columns, catalogue.size), catalogue.size)


def take_evidence(document: dict[str, Any], tensors: dict[str, Tensor], items: int) -> Evidence | None:
    """The evidence of a model; its counts are taken out of the tensors."""
    counts = {name: tensors.pop(name) for name in list(tensors) if name.startswith(COUNTS)}
    if "evidence" not in document:
        return None
    found = Evidence.of(document["evidence"], {name.removeprefix(COUNTS): counts[name] for name in counts})
    found.check(items)
    return found
