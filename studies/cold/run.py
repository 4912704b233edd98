"""Cold items: a tenth of the items is held out of training, and features alone have to find them.

    python studies/cold/run.py FOLDER --features genres,title --json results.jsonl

FOLDER holds inter.parquet and items.parquet. Two models are trained on the same rows, one with features and one
without. Cold test targets are ranked among cold items, warm ones among warm items, and both in one list of all items.
"""

import argparse
import json
import tempfile
from pathlib import Path
from typing import Any

import pyarrow.parquet

from abaca.data.log import read_log
from abaca.data.prepare import PrepareOptions, prepare
from abaca.data.sequences import Sequences
from abaca.display import plain
from abaca.evaluation import metrics
from abaca.evaluation.cold import evaluate_cold
from abaca.recommender import Recommender
from abaca.study.environment import commit

METRICS = ("hr@10", "ndcg@10")


def sequences_of(folder: Path, to: Path, share: float) -> Sequences:
    """The rows of a data set, without the interactions of held-out items."""
    items = pyarrow.parquet.read_table(folder / "items.parquet")
    with read_log(folder / "inter.parquet", user="user_id", item="item_id", time="timestamp") as log:
        return prepare(log, to, options=PrepareOptions(hold_out_items=share), items=items)


def measure(sequences: Sequences, features: str, options: dict[str, Any]) -> dict[str, Any]:
    """The figures of cold and warm targets; warm ones against a model without features."""
    described = Recommender(features=features, **options).fit(sequences)
    without = Recommender(**options).fit(sequences)
    ranks = evaluate_cold(described.ranker(), sequences)
    whole, plainly = described.evaluate(), without.evaluate()
    warm = ~ranks.cold
    users = ranks.users[warm]
    tests = {
        f"{metric} {where}": metrics.paired_test(ours[warm], plainly.gains(metric)[warm], users).difference
        for metric in METRICS
        for where, ours in (("among warm", ranks.gains(metric)), ("among all", whole.gains(metric)))
    }
    found = ranks.summarise().to_json()
    return {
        **{key: found[key] for key in ("items", "targets")},
        **{key: {metric: found[key][metric] for metric in METRICS} for key in ("cold", "popularity", "random", "warm")},
        "warm without features": {metric: float(plainly.gains(metric)[warm].mean()) for metric in METRICS},
        "warm, with minus without": plain({name: vars(test) for name, test in tests.items()}),
        "cold among all": {metric: float(whole.gains(metric)[~warm].mean()) for metric in METRICS},
        "cold share of lists": float((whole.top >= sequences.catalogue.size).mean()),
        "epochs": [len(each.saved.training["records"]) for each in (described, without) if each.saved],
    }


def main() -> None:
    """Run one data set and append a line of results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--features", required=True)
    parser.add_argument("--held-out", type=float, default=0.1)
    parser.add_argument("--epochs", type=int)
    parser.add_argument("--dim", type=int)
    parser.add_argument("--feature-dropout", type=float)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    names = ("epochs", "dim", "feature_dropout", "seed")
    options = {name: getattr(given, name) for name in names if getattr(given, name) is not None}
    with tempfile.TemporaryDirectory() as place:
        sequences = sequences_of(given.folder, Path(place) / "sequences", given.held_out)
        figures = measure(sequences, given.features, options)
    head = {"data": given.folder.name, "features": given.features, "held out": given.held_out, "options": options}
    line = json.dumps({**head, **figures, "commit": commit()})
    print(line)
    if given.json is not None:
        with given.json.open("a", encoding="utf-8") as file:
            file.write(line + "\n")


if __name__ == "__main__":
    main()
