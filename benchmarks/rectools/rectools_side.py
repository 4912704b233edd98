"""RecTools' side of the race: a program for an environment of its own, where abaca is not installed.

    python rectools_side.py LOG.npz MODEL --marks 60 300 1200 --to RUN.json

LOG.npz has `users`, `items`, `times` of the training rows in order, and `valid_users`, `valid_items`, `valid_times`.
Training is RecTools' own `fit` on one thread. At each mark of CPU time the validation targets are ranked by
RecTools' own `recommend`, with the items of the history filtered out (its default) and with them. The time of
ranking is not counted. An item that RecTools did not train on cannot be recommended: it is a miss.
"""

import argparse
import contextlib
import json
import logging
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import rectools
import torch
from pytorch_lightning import Callback, Trainer, seed_everything
from rectools import Columns
from rectools.dataset import Dataset
from rectools.models import HSTUModel, SASRecModel
from rectools.models.nn.item_net import IdEmbeddingsItemNet

CUTOFF = 10
EPOCHS = 100
"""Epochs at most, as in RecTools' tutorial of HSTU."""

SIZES: dict[str, Any] = {
    "session_max_len": 200, "n_factors": 50, "n_heads": 1, "n_blocks": 2, "dropout_rate": 0.2, "lr": 0.001,
    "batch_size": 128, "use_pos_emb": True,
}  # fmt: skip
TUTORIAL: dict[str, Any] = {
    **SIZES, "loss": "sampled_softmax", "n_negatives": 128, "lightning_module_kwargs": {"logits_t": 0.05},
    "relative_time_attention": True, "relative_pos_attention": True,
}  # fmt: skip
"""HSTU for ml-1m in RecTools' tutorial, examples/tutorials/transformers_HSTU_tutorial.ipynb, and its sizes."""

MODELS: dict[str, tuple[Any, dict[str, Any], str]] = {
    "sasrec": (SASRecModel, {}, "defaults"),
    "sasrec-small": (SASRecModel, SIZES, "sizes of the HSTU tutorial"),
    "hstu": (HSTUModel, {}, "defaults"),
    "hstu-tutorial": (HSTUModel, TUTORIAL, "options of the HSTU tutorial"),
}
"""A class of RecTools with options of its documentation: its defaults, or those of the tutorial."""


class Log:
    """The training rows and the validation targets."""

    def __init__(self, path: Path) -> None:
        with np.load(path) as arrays:
            self.train = _frame(arrays["users"], arrays["items"], arrays["times"])
            self.valid = _frame(arrays["valid_users"], arrays["valid_items"], arrays["valid_times"])
        self.dataset = Dataset.construct(self.train)

    def ndcg(self, model: Any, *, masked: bool) -> float:
        """NDCG@10 of the validation targets; HSTU is told the time of the target, as it asks for."""
        context = None
        if model.require_recommend_context:
            context = self.valid.drop(columns=[Columns.Item])
        users = self.valid[Columns.User].to_numpy()
        found = model.recommend(users, self.dataset, k=CUTOFF, filter_viewed=masked, context=context)
        hits = found.merge(self.valid[[Columns.User, Columns.Item]], on=[Columns.User, Columns.Item])
        return float((1 / np.log2(hits[Columns.Rank].to_numpy() + 1)).sum() / len(self.valid))


def _frame(users: np.ndarray, items: np.ndarray, times: np.ndarray) -> pd.DataFrame:
    columns = {Columns.User: users, Columns.Item: items, Columns.Datetime: pd.to_datetime(times, unit="s")}
    return pd.DataFrame({**columns, Columns.Weight: 1.0})


@contextlib.contextmanager
def states_kept(module: Any) -> Iterator[None]:
    """Encode the histories once for both ways of ranking."""
    compute, kept = module._get_user_item_embeddings, []

    def keep(*args: Any, **kwargs: Any) -> Any:
        if not kept:
            kept.append(compute(*args, **kwargs))
        return kept[0]

    module._get_user_item_embeddings = keep
    try:
        yield
    finally:
        del module._get_user_item_embeddings


class Curve(Callback):
    """Ranks the validation targets at each mark of CPU time, and ends training at the last."""

    def __init__(self, data: Log, marks: list[float], write: Any) -> None:
        self.data, self.marks, self.write = data, marks, write
        self.points: list[dict[str, Any]] = []
        self.spent = 0.0
        self.latest = time.process_time()
        self.model: Any = None

    def __deepcopy__(self, memo: Any) -> "Curve":
        return self  # RecTools trains with a copy of its trainer

    def on_train_batch_end(self, trainer: Any, module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        self.spent += time.process_time() - self.latest
        if self.spent >= self.marks[len(self.points)]:
            self.measure(trainer.current_epoch + (batch_idx + 1) / trainer.num_training_batches)
            module.train()
        trainer.should_stop = len(self.points) == len(self.marks)
        self.latest = time.process_time()

    def measure(self, epochs: float) -> None:
        """Add a point."""
        self.model.is_fitted = True  # it may be asked before it has ended
        with states_kept(self.model.lightning_model):
            figures = {name: self.data.ndcg(self.model, masked=name == "masked") for name in ("masked", "unmasked")}
        self.points.append({"cpu_seconds": self.spent, "epochs": round(epochs, 3), **figures})
        self.write(self.points)
        print(json.dumps(self.points[-1]), flush=True)


def main() -> None:
    """Train one model and write its points."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("log", type=Path)
    parser.add_argument("model", choices=MODELS)
    parser.add_argument("--marks", type=float, nargs="+", required=True, help="CPU seconds")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--to", type=Path, required=True)
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    logging.getLogger("pytorch_lightning").setLevel(logging.ERROR)
    torch.set_num_threads(1)
    seed_everything(args.seed, workers=True)
    kind, options, way = MODELS[args.model]
    system = f"RecTools {rectools.__version__} {kind.__name__.removesuffix('Model')}"
    facts = {"system": f"{system}, {way}", "options": options, "torch": torch.__version__, "seed": args.seed}

    def write(points: list[dict[str, Any]]) -> None:
        args.to.write_text(json.dumps({**facts, "points": points}) + "\n", encoding="utf-8")

    log = Log(args.log)
    curve = Curve(log, args.marks, write)

    def trainer() -> Trainer:
        return Trainer(
            max_epochs=EPOCHS, min_epochs=0, accelerator="cpu", devices=1, callbacks=[curve], logger=False,
            enable_progress_bar=False, enable_model_summary=False, enable_checkpointing=False,
        )  # fmt: skip

    ids = {"item_net_block_types": (IdEmbeddingsItemNet,)}  # the logs have no features
    curve.model = kind(**{**ids, **options}, get_trainer_func=trainer)
    curve.latest = time.process_time()  # preparing the log for training counts
    curve.model.fit(log.dataset)
    if len(curve.points) < len(curve.marks):
        curve.measure(curve.model.fit_trainer.current_epoch)


if __name__ == "__main__":
    main()
