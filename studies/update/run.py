"""Updating against training again, on the last tenth of what is known of a log.

    python studies/update/run.py LOG --json results.json

The last tenth of the rows by time is for the test: the first row of each user there, after everything before it. The
other rows are known. A model is trained on the first nine tenths of them, and updated with the last tenth; another is
trained on all of them. Every ranking is of the whole catalogue that a model knows; a target that it does not know is a
miss. CPU time is that of this process, reading and preparing included.
"""

import argparse
import copy
import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import torch

from abaca.data.ledger import rows_of
from abaca.data.log import read_log
from abaca.histories import Histories
from abaca.nn.answers import Question
from abaca.recommender import Recommender
from abaca.study.environment import commit, processor

CUTOFF = 10
PART = 4096


class Test:
    """Histories by raw ids and the item that followed each."""

    def __init__(self, known: pyarrow.Table, later: pyarrow.Table) -> None:
        past: dict[Any, list[Any]] = {}
        for user, item in zip(known["user"].to_pylist(), known["item"].to_pylist(), strict=True):
            past.setdefault(user, []).append(item)
        self.targets: dict[Any, Any] = {}
        for user, item in zip(later["user"].to_pylist(), later["item"].to_pylist(), strict=True):
            if user in past:
                self.targets.setdefault(user, item)
        self.past = {user: past[user] for user in self.targets}
        self.repeat = np.array([target in set(past[user]) for user, target in self.targets.items()])
        known_items = set(known["item"].to_pylist())
        self.cold = sum(target not in known_items for target in self.targets.values())

    def measure(self, recommender: Recommender) -> dict[str, float]:
        """NDCG@10 of all targets, of repeats and of new items."""
        assert recommender.saved is not None
        index, users = recommender.saved.catalogue.index, list(self.targets)
        gains = np.zeros(len(users))
        for start in range(0, len(users), PART):
            part = users[start : start + PART]
            items = [[item for item in map(index, self.past[user]) if item is not None] for user in part]
            asked = [(place, index(self.targets[user])) for place, user in enumerate(part) if items[place]]
            known = [(place, target) for place, target in asked if target is not None]
            if not known:
                continue
            histories = Histories.of([items[place] for place, _ in known])
            nothing = torch.empty(len(known), 0, dtype=torch.int64)
            targets = torch.tensor([target for _, target in known])
            rank = recommender.ranker().ask(histories, Question(targets, 1, nothing, nothing, None)).rank.numpy()
            found = np.where(rank <= CUTOFF, 1 / np.log2(1 + rank), 0.0)
            gains[[start + place for place, _ in known]] = found
        return {
            "all": float(gains.mean()),
            "repeat": float(gains[self.repeat].mean()) if self.repeat.any() else 0.0,
            "new": float(gains[~self.repeat].mean()),
        }


def study(log: Path, given: dict[str, Any], training: dict[str, Any]) -> dict[str, Any]:
    """Every way of knowing the last tenth, with its figures and its CPU seconds."""
    with read_log(log) as opened:
        rows = rows_of(opened)
    times = rows["time"].to_numpy()
    test_from, new_from = (times[int(share * len(times))] for share in (0.9, 0.81))
    is_known, is_old = times < test_from, times < new_from
    known, old, new = (rows.filter(mask) for mask in (is_known, is_old, is_known & ~is_old))
    test = Test(known, rows.filter(~is_known))
    results: dict[str, Any] = {
        "rows": {"old": old.num_rows, "new": new.num_rows},
        "targets": {"all": len(test.targets), "repeat": int(test.repeat.sum()), "cold": test.cold},
    }

    def timed(name: str, work: Callable[[], Recommender], before: float = 0.0) -> Recommender:
        began = time.process_time()
        made = work()
        seconds = time.process_time() - began
        results[name] = {"cpu_seconds": before + seconds, "ndcg@10": test.measure(made)}
        print(name, results[name], flush=True)
        return made

    def fit(data: pyarrow.Table) -> Recommender:
        return Recommender(**given).fit(data, updatable=True, progress=False)

    first = timed("old", lambda: fit(old))
    timed("counts", lambda: copy.copy(first).update(new))
    weights = timed("weights", lambda: copy.copy(first).update(new, train=True, progress=False, **training))
    timed("weights, then counts", lambda: copy.copy(weights).update(new), results["weights"]["cpu_seconds"])
    again = timed("again", lambda: fit(known))
    timed("again, then counts", lambda: copy.copy(again).update(new), results["again"]["cpu_seconds"])
    return results


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("log", type=Path)
    parser.add_argument("--epochs", type=int, help="of training; by default as the library chooses")
    parser.add_argument("--update-epochs", type=int, default=1)
    parser.add_argument("--replay", type=float, default=1.0, help="share of the old rows that an update reads")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path, help="write the results to this file")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    given = {"seed": arguments.seed} | ({"epochs": arguments.epochs} if arguments.epochs else {})
    training = {"epochs": arguments.update_epochs, "replay": arguments.replay}
    facts = {
        "log": arguments.log.name,
        "options": given,
        "update": training,
        "processor": processor(),
        "commit": commit(),
    }
    results = facts | {"load_before": os.getloadavg()} | study(arguments.log, given, training)
    text = json.dumps(results, indent=1)
    if arguments.json:
        arguments.json.write_text(text + "\n", encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
