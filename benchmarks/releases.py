"""Two versions of Abaca side by side: a training step, an evaluation, and the loss of a large catalogue.

    git worktree add /tmp/before v0.1.0 && (cd /tmp/before && python setup.py build_ext --inplace)
    python benchmarks/releases.py SEQUENCES --before /tmp/before/src --after src --to results.json

Each version runs in a process of its own with one thread. The two take turns, so that a slow moment of the machine
meets both. Figures are CPU seconds; the ratio is the median over rounds of after / before.
"""

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

ENCODERS = ("sasrec", "gru4rec")
PARTS = ("step", "evaluate", "loss")
OUTPUT = "softmax+CPR:100+Mi"
STEPS = 40
LARGE = 50_000
ROWS = 1600


class Worker:
    """One version: models that stay in memory between the rounds."""

    def __init__(self, sequences: str) -> None:
        import torch

        torch.set_num_threads(1)
        from abaca.data.sequences import Sequences

        self.torch, self.sequences, self.made = torch, Sequences.open(sequences), {}

    def spend(self, part: str, encoder: str) -> float:
        """CPU seconds of one piece of work."""
        if (part, encoder) not in self.made:
            self.made[part, encoder] = getattr(self, part)(encoder)
            self.made[part, encoder]()  # warms up
        begin = time.process_time()
        self.made[part, encoder]()
        return time.process_time() - begin

    def _model(self, encoder: str, catalogue: int) -> Any:
        try:
            from abaca.nn.build import make_model
        except ImportError:
            from abaca.nn.model import make_model  # 0.1
        self.torch.manual_seed(0)
        return make_model(encoder, OUTPUT, catalogue, **({"window": 50} if encoder == "sasrec" else {}))

    def step(self, encoder: str) -> Any:
        try:
            from abaca.training.trainer import Trainer
        except ImportError:
            from abaca.training import Trainer  # 0.1
        from abaca.options import training_defaults

        trainer = Trainer(
            self._model(encoder, self.sequences.catalogue.size).train(), self.sequences, training_defaults(encoder)
        )

        def work() -> None:
            for _, batch in zip(range(STEPS), trainer.epochs.batches(0), strict=False):
                trainer._step(batch)

        return work

    def evaluate(self, encoder: str) -> Any:
        try:
            from abaca.evaluation.evaluate import evaluate
            from abaca.evaluation.ranker import ModelRanker
        except ImportError:
            from abaca.ranking import ModelRanker

            from abaca.evaluation import evaluate  # 0.1
        ranker = ModelRanker(self._model(encoder, self.sequences.catalogue.size), 50)
        return lambda: evaluate(ranker, self.sequences, "test")

    def loss(self, encoder: str) -> Any:
        torch, model = self.torch, self._model(encoder, LARGE)
        drawn = (torch.rand(ROWS // 50, 51, generator=torch.Generator().manual_seed(0)) ** 3 * LARGE).long()
        items, targets, positions = drawn[:, :-1], drawn[:, 1:], torch.arange(50).expand(len(drawn), -1)
        try:
            from abaca.histories import Windows

            given: tuple[Any, ...] = Windows(items, positions), targets
        except ImportError:
            given = items, positions, targets  # 0.1
        return lambda: model.loss(*given).backward()


def work(sequences: str) -> None:
    worker = Worker(sequences)
    for line in sys.stdin:
        print(worker.spend(*json.loads(line)), flush=True)


def started(source: Path, sequences: Path) -> subprocess.Popen[str]:
    """A version as a process that answers lines."""
    environment = {**os.environ, "PYTHONPATH": str(source.resolve()), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, __file__, str(sequences), "--worker"]
    return subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def asked(version: subprocess.Popen[str], part: str, encoder: str) -> float:
    assert version.stdin is not None
    assert version.stdout is not None
    print(json.dumps([part, encoder]), file=version.stdin, flush=True)
    return float(version.stdout.readline())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sequences", type=Path, help="a prepared folder")
    parser.add_argument("--before", type=Path, help="the source folder of one version, its C library built")
    parser.add_argument("--after", type=Path, help="and of the other")
    parser.add_argument("--rounds", type=int, default=11)
    parser.add_argument("--part", nargs="+", choices=PARTS, default=PARTS, help="what to measure")
    parser.add_argument("--to", type=Path, help="a JSON file for the raw figures")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.worker:
        return work(str(given.sequences))
    versions = {name: started(getattr(given, name), given.sequences) for name in ("before", "after")}
    rows = []
    for part in given.part:
        for encoder in ENCODERS:
            spent: dict[str, list[float]] = {name: [] for name in versions}
            for number in range(given.rounds):
                for name in list(versions)[:: 1 if number % 2 else -1]:
                    spent[name].append(asked(versions[name], part, encoder))
            ratio = statistics.median(a / b for a, b in zip(spent["after"], spent["before"], strict=True))
            rows.append({"part": part, "encoder": encoder, "ratio": ratio, **spent})
            middle = {name: statistics.median(seconds) for name, seconds in spent.items()}
            print(f"{part:9} {encoder:8} before {middle['before']:.3f} s, after {middle['after']:.3f} s: {ratio:.3f} ×")
    for version in versions.values():
        version.kill()
    if given.to is not None:
        facts = {"output": OUTPUT, "steps": STEPS, "items_of_loss": LARGE, "rows_of_loss": ROWS}
        facts |= {"sequences": given.sequences.name, "python": platform.python_version(), "rows": rows}
        given.to.write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")
    return None


if __name__ == "__main__":
    main()
