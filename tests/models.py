"""Model directories without training: random weights, far from uniform."""

from dataclasses import asdict
from pathlib import Path

import torch

from abaca.data.catalogue import Catalogue
from abaca.data.prepare import PrepareOptions
from abaca.nn.build import make_model
from abaca.recommender import Recommender
from abaca.training.checkpoint import Saved, save_model
from abaca.training.trainer import TrainingOptions
from abaca.types import Id

WINDOW = 8


def untrained(
    folder: Path,
    output: str = "softmax+CPR:4",
    ids: list[str] | list[int] | None = None,
    encoder: str = "gru4rec",
    dim: int = 8,
) -> Recommender:
    """A model in a folder, for 30 items `i0` … `i29` unless ids are given."""
    ids = [f"i{i}" for i in range(30)] if ids is None else ids
    options = {"dim": dim, "window": WINDOW} if encoder == "sasrec" else {"dim": dim, "hidden": 8}
    torch.manual_seed(3)
    model = make_model(encoder, output, len(ids), **options)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(std=0.6)
    columns: dict[str, list[Id]] = {"title": [f"Item {id}" for id in ids]}
    training = {
        "options": asdict(TrainingOptions(window=WINDOW)),
        "prepared": asdict(PrepareOptions()),
        "fingerprint": "none",
        "everything": False,
    }
    save_model(folder, Saved(model, encoder, output, options, Catalogue(ids, columns=columns), training))
    return Recommender.load(folder)
