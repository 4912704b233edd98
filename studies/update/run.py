"""Updating against training again, on the last tenth of what is known of a log.

    python studies/update/run.py LOG --json results.json

LOG is a file, or `groceries` for those of the demo. The last tenth of the rows by time is for the test: the first rows
of each user there, each after everything before it. The other rows are known. A model is trained on the first nine
tenths of them, and updated with the last tenth; another is trained on all of them. Every ranking is of the whole
catalogue that a model knows; a target that it does not know is a miss. CPU time is that of this process, reading and
preparing included. `--until 0.9` leaves the last tenth of the log unread, to choose settings without the test targets.
"""

import argparse
import copy
import json
import os
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow
import torch

from abaca.data.ledger import rows_of
from abaca.data.log import read_log
from abaca.evaluation.metrics import mean_estimate
from abaca.histories import Histories
from abaca.nn.answers import Question
from abaca.recommender import Recommender
from abaca.study.environment import commit, processor
from abaca.study.groceries import groceries

CUTOFF = 10
PART = 1024
BEST = "again, then counts"
"""The model that the others are compared with."""
Floats = npt.NDArray[np.float64]


class Test:
    """The first rows of each user in the test period, and the rows before each."""

    def __init__(self, known: pyarrow.Table, later: pyarrow.Table, each: int) -> None:
        histories: dict[Any, list[Any]] = {}
        for user, item in zip(known["user"].to_pylist(), known["item"].to_pylist(), strict=True):
            histories.setdefault(user, []).append(item)
        begins = {user: len(history) for user, history in histories.items()}
        self.cases: list[tuple[Any, int]] = []  # the user, and the place of the target in the history
        for user, item in zip(later["user"].to_pylist(), later["item"].to_pylist(), strict=True):
            if user in begins:
                place = len(histories[user])
                if place - begins[user] < each:
                    self.cases.append((user, place))
                histories[user].append(item)
        self.histories = histories
        self.users = np.unique([str(user) for user, _ in self.cases], return_inverse=True)[1]
        self.repeat = np.array([histories[user][place] in histories[user][:place] for user, place in self.cases])
        known_items = set(known["item"].to_pylist())
        self.cold = sum(histories[user][place] not in known_items for user, place in self.cases)

    def gains(self, recommender: Recommender) -> Floats:
        """NDCG@10 of each target."""
        assert recommender.saved is not None
        index, gains = recommender.saved.catalogue.index, np.zeros(len(self.cases))
        ranker = recommender.ranker()
        for start in range(0, len(self.cases), PART):
            asked = []
            for number, (user, place) in enumerate(self.cases[start : start + PART], start):
                items = [item for item in map(index, self.histories[user][:place]) if item is not None]
                target = index(self.histories[user][place])
                if items and target is not None:
                    asked.append((number, items, target))
            if not asked:
                continue
            numbers, histories, targets = zip(*asked, strict=True)
            nothing = torch.empty(len(asked), 0, dtype=torch.int64)
            question = Question(torch.tensor(targets), 1, nothing, nothing, None)
            rank = ranker.ask(Histories.of(list(histories)), question).rank.numpy()
            gains[list(numbers)] = np.where(rank <= CUTOFF, 1 / np.log2(1 + rank), 0.0)
        return gains

    def figures(self, gains: Floats) -> dict[str, float]:
        """The mean of all targets, of repeats and of new items."""
        parts = {"all": gains, "repeat": gains[self.repeat], "new": gains[~self.repeat]}
        return {name: float(part.mean()) if len(part) else 0.0 for name, part in parts.items()}


def rows_until(log: str, until: float) -> pyarrow.Table:
    """The rows of a log in the order of time, without the last ones."""
    with read_log(groceries().log if log == "groceries" else log) as opened:
        rows = rows_of(opened)
    times = rows["time"].to_numpy()
    return rows if until == 1 else rows.filter(times < times[int(until * len(times))])


def study(rows: pyarrow.Table, each: int, given: dict[str, Any], updates: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """Every way of knowing the last tenth, with its figures and its CPU seconds."""
    times = rows["time"].to_numpy()
    test_from, new_from = (times[int(share * len(times))] for share in (0.9, 0.81))
    is_known, is_old = times < test_from, times < new_from
    known, old, new = (rows.filter(mask) for mask in (is_known, is_old, is_known & ~is_old))
    test = Test(known, rows.filter(~is_known), each)
    results: dict[str, Any] = {
        "rows": {"old": old.num_rows, "new": new.num_rows},
        "targets": {"all": len(test.cases), "repeat": int(test.repeat.sum()), "cold": test.cold},
    }
    gains: dict[str, Floats] = {}

    def timed(name: str, work: Callable[[], Recommender], before: float = 0.0) -> Recommender:
        began = time.process_time()
        made = work()
        seconds = time.process_time() - began
        gains[name] = test.gains(made)
        results[name] = {"cpu_seconds": before + seconds, "ndcg@10": test.figures(gains[name])}
        print(name, results[name], file=sys.stderr, flush=True)
        return made

    def fit(data: pyarrow.Table) -> Recommender:
        return Recommender(**given).fit(data, updatable=True, progress=False)

    first = timed("old", lambda: fit(old))
    timed("counts", lambda: copy.copy(first).update(new))
    for name, options in updates.items():
        trained = timed(
            name, lambda options=options: copy.copy(first).update(new, train=True, progress=False, **options)
        )
        timed(f"{name}, then counts", lambda trained=trained: trained.update(new), results[name]["cpu_seconds"])
    again = timed("again", lambda: fit(known))
    assert again.saved is not None
    results["epochs"] = len(again.saved.training["records"])
    timed(BEST, lambda: copy.copy(again).update(new), results["again"]["cpu_seconds"])
    for name, found in gains.items():
        results[name] |= compared(found, gains[BEST], test.users)
        results[name]["share of its cpu"] = results[name]["cpu_seconds"] / results[BEST]["cpu_seconds"]
    return results


def compared(gains: Floats, best: Floats, users: npt.NDArray[np.int64]) -> dict[str, Any]:
    """The share of the best model's figure, and the difference with its interval, resampled by users."""
    difference = mean_estimate(gains - best, users)
    return {"share of its ndcg@10": float(gains.mean() / best.mean()), "difference": vars(difference)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("log")
    parser.add_argument("--encoder", help="by default as the library chooses")
    parser.add_argument("--epochs", type=int, help="of training; by default as the library chooses")
    parser.add_argument("--update-epochs", type=int, default=1)
    parser.add_argument("--lr", type=float, help="of the update; by default a quarter of that of training")
    parser.add_argument("--replay", type=float, nargs="+", default=[1.0], help="shares of the old rows: an update each")
    parser.add_argument("--targets", type=int, default=5, help="rows of each user in the test period")
    parser.add_argument("--until", type=float, default=1.0, help="the share of the log that is read")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", help="write the results to this file")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    chosen = {"seed": arguments.seed, "encoder": arguments.encoder, "epochs": arguments.epochs}
    given = {name: value for name, value in chosen.items() if value is not None}
    updates = {
        f"weights, replay {share:g}": {"epochs": arguments.update_epochs, "replay": share, "lr": arguments.lr}
        for share in arguments.replay
    }
    facts = {
        "command": " ".join(["python", *sys.argv]),
        "options": given,
        "updates": updates,
        "processor": processor(),
        "commit": commit(),
        "load_before": os.getloadavg(),
    }
    results = facts | study(rows_until(arguments.log, arguments.until), arguments.targets, given, updates)
    text = json.dumps(results, indent=1)
    if arguments.json:
        with open(arguments.json, "w", encoding="utf-8") as file:
            file.write(text + "\n")
    print(text)


if __name__ == "__main__":
    main()
