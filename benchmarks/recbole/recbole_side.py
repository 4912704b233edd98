"""RecBole's side of the race: a program for an environment of its own, where abaca is not installed.

It reads one JSON object per line and answers each with one line. Every `do` is a method below. RecBole's own
trainer, data loaders, collector and evaluator do the work.
"""

import itertools
import json
import os
import sys
import time
from typing import Any

import numpy as np
import torch
from recbole.config import Config
from recbole.data import create_dataset, data_preparation
from recbole.utils import get_model, get_trainer, init_seed

MODELS = ("SASRecCPR", "GRU4RecCPR", "SASRec", "GRU4Rec", "RepeatNet")
SIZES: dict[str, Any] = {
    "MAX_ITEM_LIST_LENGTH": 50, "embedding_size": 64, "hidden_size": 64, "num_layers": 1, "n_layers": 2, "n_heads": 2,
    "inner_size": 256, "attn_dropout_prob": 0.1, "loss_type": "CE",
}  # fmt: skip
"""The sizes of the paper."""


class Side:
    """The data, and each model with its trainer, made at first use."""

    def __init__(self) -> None:
        self.settings: dict[str, Any] = {}
        self.made: dict[str, Any] = {}
        self.states: dict[str, list[Any]] = {}
        self.loaders: dict[str, Any] = {}

    def open(self, folder: str, name: str, dropout: float, train_batch: int) -> dict[str, Any]:
        """Read the atomic files of a data set, split by leaving one out."""
        self.settings = {
            "data_path": folder, "dataset": name, "checkpoint_dir": os.path.join(folder, "saved"), "use_gpu": False,
            "load_col": {"inter": ["user_id", "item_id", "timestamp"]}, "train_neg_sample_args": None,
            "train_batch_size": train_batch, "show_progress": False, "state": "ERROR",
            "eval_args": {"split": {"LS": "valid_and_test"}, "order": "TO", "mode": "full", "group_by": "user"},
            "metrics": ["NDCG", "Hit", "MRR"], "topk": [10], "valid_metric": "NDCG@10", "metric_decimal_place": 12,
            "dropout_prob": dropout, "hidden_dropout_prob": dropout, "seed": 0, "reproducibility": False, **SIZES,
        }  # fmt: skip
        config = Config(model="SASRec", config_dict=self.settings)
        init_seed(config["seed"], config["reproducibility"])
        self.train_data, self.valid_data, self.test_data = data_preparation(config, create_dataset(config))
        data = self.train_data.dataset
        counts = {"targets": len(data), "items": data.item_num - 1, "test": len(self.test_data.dataset)}
        return {**counts, "torch": torch.__version__, "numpy": np.__version__}

    def trainer(self, model: str) -> Any:
        """The model's trainer, made at first use."""
        if model not in self.made:
            config = Config(model=model, config_dict=self.settings)
            init_seed(config["seed"], config["reproducibility"])
            built = get_model(model)(config, self.train_data.dataset)
            self.made[model] = get_trainer(config["MODEL_TYPE"], model)(config, built)
        return self.made[model]

    def train(self, model: str, batches: int, anomaly: bool = False) -> dict[str, Any]:
        """Train the next batches, with autograd's anomaly detection on (as RecBole leaves it) or off."""
        trainer = self.trainer(model)
        torch.autograd.set_detect_anomaly(anomaly)
        loader = self.loaders.setdefault(model, _endless(self.train_data))
        first, sizes = [next(loader)], list[int]()  # the start of an epoch is not measured

        def next_batches() -> Any:
            for batch in itertools.chain(first, itertools.islice(loader, batches - 1)):
                sizes.append(len(batch))
                yield batch

        began = now()
        trainer._train_epoch(next_batches(), 0, show_progress=False)
        return spent(began, sum(sizes))

    def validate(self, model: str) -> dict[str, Any]:
        """The metrics of the validation targets."""
        metrics = self.trainer(model).evaluate(self.valid_data, load_best_model=False)
        return {name: float(value) for name, value in metrics.items()}

    def evaluate(self, model: str, given_states: bool) -> dict[str, Any]:
        """Full ranking of the test targets, with the encoder's states computed before or not."""
        trainer = self.trainer(model)
        torch.autograd.set_detect_anomaly(False)
        forward = trainer.model.forward
        if given_states:
            if model not in self.states:
                self.states[model] = []
                trainer.model.forward = lambda *inputs: self._keep(model, forward(*inputs))
                trainer.evaluate(self.test_data, load_best_model=False)
            answers = iter(self.states[model])
            trainer.model.forward = lambda *_: next(answers)
        began = now()
        metrics = trainer.evaluate(self.test_data, load_best_model=False)
        answer = spent(began, len(self.test_data.dataset))
        trainer.model.forward = forward
        return {**answer, "metrics": {name: float(value) for name, value in metrics.items()}}

    def _keep(self, model: str, states: Any) -> Any:
        self.states[model].append(states)
        return states

    def scores(self, model: str, to: str) -> dict[str, Any]:
        """Write the scores of all items (T, V) and the test targets (T,); return the metrics."""
        trainer, rows, targets = self.trainer(model), [], []
        metrics = trainer.evaluate(self.test_data, load_best_model=False)
        with torch.no_grad():
            for batch in self.test_data:
                _, answer, _, positive = trainer._full_sort_batch_eval(batch)
                rows.append(answer[:, 1:].numpy())  # without padding
                targets.append(positive.numpy() - 1)
        np.save(f"{to}-scores.npy", np.concatenate(rows))
        np.save(f"{to}-targets.npy", np.concatenate(targets))
        return {name: float(value) for name, value in metrics.items()}


def _endless(loader: Any) -> Any:
    while True:
        yield from loader


def now() -> list[float]:
    """CPU and wall clock."""
    return [time.process_time(), time.perf_counter()]


def spent(began: list[float], targets: int) -> dict[str, Any]:
    """The cost since then."""
    cpu, wall = now()
    return {"cpu": cpu - began[0], "wall": wall - began[1], "targets": targets}


def main() -> None:
    """Answer requests until the input ends; what RecBole prints goes to standard error."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    torch.set_num_threads(1)
    side = Side()
    for line in sys.stdin:
        request = json.loads(line)
        answer = getattr(side, request.pop("do"))(**request)
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


if __name__ == "__main__":
    main()
