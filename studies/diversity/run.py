"""What lists are made of, and what becomes of users who only take what is shown.

    python studies/diversity/run.py LOG --json results.json

*Lists.* Softmax, CPR and the default are trained alike and answer the test targets: NDCG@10, coverage, intra-list
distance, novelty, and the share of repeats that is shown beside the share that is wanted.

*Rounds.* Users begin with their histories. In each round a list of ten is shown. The user takes two items of it, the
first places more often (1 / log2(1 + place)), and nothing else. The histories grow; the models stay as they are. Lists
are composed as learned, with `max_repeats`, with `diversity`, and with both.

Distances are 1 − cosine between vectors of co-occurrence, which are the same for all models. Novelty is −log2 of an
item's share of the training interactions.
"""

import argparse
import json
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow.parquet
import torch

from abaca import Policy, Recommender, prepare, read_log
from abaca.data.sequences import Sequences
from abaca.nn.build import make_model
from abaca.study.environment import commit, processor
from abaca.training.start import start_from_counts

N, TAKEN = 10, 2
MODELS = {"softmax": "softmax", "CPR": "softmax+CPR:100+Mi", "default": "softmax+CP+habits+followers"}
POLICIES = {
    "as learned": Policy(n=N),
    "max_repeats": Policy(n=N, max_repeats=3),
    "diversity": Policy(n=N, diversity=0.5),
    "both": Policy(n=N, max_repeats=3, diversity=0.5),
}
Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


class Yardstick:
    """Measures lists by the training rows of a log, whatever model made them."""

    def __init__(self, sequences: Sequences, dim: int, seed: int) -> None:
        rows = sequences.training()
        self.catalogue = sequences.catalogue.size
        counts = np.bincount(rows.items, minlength=self.catalogue)[: self.catalogue]
        self.novelty: Floats = -np.log2(np.maximum(counts, 1) / counts.sum())
        torch.manual_seed(seed)
        model = make_model("gru4rec", "softmax", self.catalogue, dim=dim)
        start_from_counts(model, rows, seed)
        vectors = model.items.weight.detach().double().numpy()
        self.vectors: Floats = vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)

    def measure(self, lists: list[Ints], repeats: float) -> dict[str, float]:
        """Coverage of the catalogue, distance within lists, novelty, and the share of repeats, of some lists."""
        shown = np.concatenate(lists)
        return {
            "coverage": len(np.unique(shown)) / self.catalogue,
            "distance": float(np.mean([self._distance(items) for items in lists if len(items) > 1])),
            "novelty": float(self.novelty[shown].mean()),
            "repeats": repeats,
        }

    def _distance(self, items: Ints) -> float:
        """The mean of 1 − cosine over the pairs of a list."""
        cosines = self.vectors[items] @ self.vectors[items].T
        count = len(items)
        return float(1 - (cosines.sum() - np.trace(cosines)) / (count * (count - 1)))


def of_lists(rec: Recommender, yardstick: Yardstick) -> dict[str, float]:
    """The lists of the test targets."""
    found = rec.evaluate()
    summary = found.summarise()
    k = min(N, found.top.shape[1])
    lists = [row[row >= 0].astype(np.int64) for row in found.top[:, :k]]
    measured = yardstick.measure(lists, summary.repeats_recommended[k])
    return {"ndcg@10": found.mean("ndcg@10"), **measured, "wanted": summary.repeats_happen}


def rounds(
    rec: Recommender, policy: Policy, start: list[list[Any]], count: int, seed: int, yardstick: Yardstick
) -> Any:
    """What is shown in each round to users who take two items of each list; and what they took in the end."""
    assert rec.saved is not None
    rng, index = np.random.default_rng(seed), rec.saved.catalogue.index
    histories = [list(history) for history in start]
    found = []
    for _ in range(count):
        answers = rec.recommend_many(histories, policy=policy)
        lists = [np.array([index(id) for id in answer.ids], dtype=np.int64) for answer in answers]
        repeats = np.mean([item.repeat for answer in answers for item in answer])
        found.append(yardstick.measure(lists, float(repeats)))
        for history, answer in zip(histories, answers, strict=True):
            chance = 1 / np.log2(2 + np.arange(len(answer.ids)))
            places = rng.choice(len(answer.ids), TAKEN, replace=False, p=chance / chance.sum())
            history += [answer.ids[place] for place in places]
    taken = [history[len(before) :] for history, before in zip(histories, start, strict=True)]
    return {
        "rounds": found,
        "different items taken by a user": float(np.mean([len(set(items)) for items in taken])),
        "items taken by anyone": len({item for items in taken for item in items}),
        "new to the user": float(
            np.mean([item not in set(before) for items, before in zip(taken, start, strict=True) for item in items])
        ),
    }


def histories_of(sequences: Sequences, users: int, seed: int) -> list[list[Any]]:
    """The training histories of some users, by id."""
    chosen = np.sort(np.random.default_rng(seed).permutation(sequences.users)[:users])
    ids, rows = sequences.catalogue.ids, sequences.training()
    made = [[ids[item] for item in rows[int(user)].tolist()] for user in chosen]
    return [history for history in made if history]


def study(given: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Both parts, for every model."""
    rows = pyarrow.parquet.read_table(given.log, columns=["user_id", "item_id", "timestamp"])
    if given.log_users is not None:
        everyone = np.unique(rows["user_id"].to_numpy())
        some = np.random.default_rng(given.seed).permutation(everyone)[: given.log_users]
        rows = rows.filter(np.isin(rows["user_id"].to_numpy(), some))
    with read_log(rows, user="user_id", item="item_id", time="timestamp") as log:
        sequences = prepare(log, folder / "sequences", overwrite=True)
    yardstick = Yardstick(sequences, given.dim, given.seed)
    start = histories_of(sequences, given.users, given.seed)
    size = {"interactions": sequences.training_interactions, "catalogue": yardstick.catalogue}
    results: dict[str, Any] = {"users": len(start), **size, "models": {}}
    for name, output in MODELS.items():
        began = time.process_time()
        options = {"epochs": given.epochs, "dim": given.dim, "seed": given.seed}
        rec = Recommender(given.encoder, output, **options).fit(sequences, progress=False)
        entry: dict[str, Any] = {"output": output, "lists": of_lists(rec, yardstick), "rounds": {}}
        for words, policy in POLICIES.items():
            entry["rounds"][words] = rounds(rec, policy, start, given.rounds, given.seed, yardstick)
        entry["cpu_seconds"] = time.process_time() - began
        results["models"][name] = entry
        print(name, json.dumps(entry["lists"]), flush=True)
        for words, found in entry["rounds"].items():
            print(f"  {words}: {json.dumps(found['rounds'][0])} → {json.dumps(found['rounds'][-1])}", flush=True)
    return results


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("log", type=Path)
    parser.add_argument("--encoder", default="gru4rec")
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--dim", type=int, default=64)
    parser.add_argument("--log-users", type=int, help="only this number of the log's users, drawn at random")
    parser.add_argument("--users", type=int, default=500, help="simulated users")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path, help="write the results to this file")
    given = parser.parse_args()
    torch.set_num_threads(1)
    options = {name: value for name, value in vars(given).items() if name not in ("log", "json")}
    facts = {
        "log": given.log.parent.name,
        "command": " ".join(["python", *sys.argv]),
        "options": options,
        "processor": processor(),
        "commit": commit(),
    }
    with tempfile.TemporaryDirectory() as folder:
        results = facts | {"load_before": os.getloadavg()} | study(given, Path(folder))
    text = json.dumps(results, indent=1)
    if given.json is not None:
        given.json.write_text(text + "\n", encoding="utf-8")
    else:
        print(text)


if __name__ == "__main__":
    main()
