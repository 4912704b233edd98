"""Depth and length of HSTU: validation figures and CPU time of an epoch, a line of results.jsonl for each.

    python studies/hstu/run.py FOLDER/ml-1m/inter.parquet
    python studies/hstu/run.py --only-report

Every cell has the same number of epochs, the same learning rate and one thread. A window trains three quarters of its
length; the rest overlaps with the one before. Cells that results.jsonl already holds are skipped. At the end it prints
a table and writes figure.svg.
"""

import argparse
import json
import time
from pathlib import Path
from typing import Any

import torch

from abaca.memory import keep_memory
from abaca.recommender import Recommender
from abaca.study.draw import Figure, Style
from abaca.study.environment import environment
from abaca.training.callbacks import Callback
from abaca.types import Record

HERE = Path(__file__).parent
DEPTHS, LENGTHS = (2, 4, 8), (50, 100, 200, 400)
STYLES = (Style("blue", "s", "--"), Style("green", "^", "-."), Style("red", "o", "-", 2.0))


class Cost(Callback):
    """The CPU seconds of training, without validation."""

    def __init__(self) -> None:
        self.seconds, self.latest = 0.0, 0.0

    def on_start(self, start: Any) -> None:
        self.latest = time.process_time()

    def on_step(self, step: Any) -> None:
        self.seconds += time.process_time() - self.latest
        self.latest = time.process_time()

    def on_epoch(self, record: Record) -> None:
        self.latest = time.process_time()


def cell(data: Any, blocks: int, length: int, epochs: int, seed: int) -> dict[str, Any]:
    """Train one model."""
    cost = Cost()
    overlap = length // 4
    sizes = {"blocks": blocks, "window": length, "targets": length - overlap, "overlap": overlap}
    fitted = Recommender("hstu", **sizes, epochs=epochs, patience=0, seed=seed).fit(data, callback=cost)
    assert fitted.saved is not None
    training = fitted.saved.training
    curve = [record["ndcg@10"] for record in training["records"]]
    seconds = round(cost.seconds / epochs, 1)
    return {
        "blocks": blocks, "length": length, "epochs": epochs, "seed": seed, "curve": curve,
        "with_evidence": training["with_evidence"], "cpu_seconds_per_epoch": seconds, "environment": environment(),
    }  # fmt: skip


def report(cells: list[dict[str, Any]]) -> None:
    """Print a table and draw a figure."""
    found = {(each["blocks"], each["length"]): each for each in cells}
    lines = [
        f"Validation NDCG@10 in percent after {cells[0]['epochs']} epochs, of the network and with evidence, and CPU "
        "seconds of an epoch on one thread.",
        "",
        "| blocks | " + " | ".join(f"{length} items" for length in LENGTHS) + " |",
        "|--:|" + "--:|" * len(LENGTHS),
    ]
    for blocks in DEPTHS:
        row = [found.get((blocks, length)) for length in LENGTHS]
        lines.append(f"| {blocks} | " + " | ".join("–" if each is None else _cell(each) for each in row) + " |")
    print("\n".join(lines))
    figure = Figure("depth", "HSTU by depth and length", (1, 2), panel=(4.2, 3.2))
    for blocks, style in zip(DEPTHS, STYLES, strict=True):
        cells_of = [found[blocks, length] for length in LENGTHS if (blocks, length) in found]
        for panel, value in zip(figure.panels, ("with_evidence", "cpu_seconds_per_epoch"), strict=True):
            figure.line(panel, f"{blocks} blocks", [(each["length"], each[value]) for each in cells_of], style)
    figure.titles(["validation NDCG@10", "CPU seconds of an epoch"], "items of a window", "")
    figure.legend(columns=3)
    (HERE / "figure.svg").write_text(figure.svg(alone=True) + "\n", encoding="utf-8")


def _cell(each: dict[str, Any]) -> str:
    return f"{100 * max(each['curve']):.2f}, {100 * each['with_evidence']:.2f}, {each['cpu_seconds_per_epoch']:.0f} s"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("log", type=Path, nargs="?")
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only-report", action="store_true")
    given = parser.parse_args()
    torch.set_num_threads(1)
    keep_memory()
    results = HERE / "results.jsonl"
    cells = [json.loads(line) for line in results.read_text("utf-8").splitlines()] if results.exists() else []
    done = {(each["blocks"], each["length"]) for each in cells}
    todo = [(blocks, length) for length in LENGTHS for blocks in DEPTHS if (blocks, length) not in done]
    data = None if given.only_report else Recommender().open(given.log)
    for blocks, length in todo if data is not None else ():
        cells.append(cell(data, blocks, length, given.epochs, given.seed))
        with results.open("a", encoding="utf-8") as stream:
            stream.write(json.dumps(cells[-1]) + "\n")
        print(blocks, length, _cell(cells[-1]), flush=True)
    report(cells)


if __name__ == "__main__":
    main()
