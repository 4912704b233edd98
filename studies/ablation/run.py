"""What each ingredient of the default is worth: a line of results.jsonl for each variant of each log.

    python studies/ablation/run.py FOLDER retailrocket-sessions foursquare-lbsn3          FOLDER/NAME/inter.parquet

Rows are prepared as in studies/twelve. Figures are of validation targets: the network's own, and with evidence that was
fitted on the other half of them. A variant without a part of evidence takes the network of the default; all others
train one. Variants that results.jsonl already holds are skipped.
"""

import argparse
import json
import time
from pathlib import Path
from typing import Any

import torch

from abaca.data.sequences import Sequences
from abaca.memory import keep_memory
from abaca.options import DEFAULT_OUTPUT
from abaca.recommender import Recommender
from abaca.study.environment import environment
from abaca.study.plan import read_study
from abaca.study.runs import Workspace
from abaca.training.evidence import fit_evidence

HERE = Path(__file__).parent
TRAINED: dict[str, dict[str, Any]] = {
    "default": {},
    "start random": {"start": "random"},
    "no average of weights": {"average": 0.0},
    "all items in the loss": {"share": 1.0},
    "softmax instead of CP": {"output": DEFAULT_OUTPUT.replace("+CP", "")},
}
"""Changes of the default that train another network."""
PARTS: dict[str, tuple[str, ...]] = {"no followers": ("habits",), "no habits": ("followers",)}
"""Changes of the default that keep its network: the parts of evidence that stay."""


def trained(sequences: Sequences, seed: int, changes: dict[str, Any]) -> tuple[Recommender, dict[str, Any]]:
    """A model and its figures."""
    began = time.process_time()
    fitted = Recommender(**changes, seed=seed).fit(sequences, progress=False)
    assert fitted.saved is not None
    figures = {name: fitted.saved.training[name] for name in ("best", "best_epoch", "with_evidence")}
    return fitted, {**figures, "epochs": len(fitted.saved.training["records"]), "cpu": time.process_time() - began}


def with_parts(fitted: Recommender, sequences: Sequences, parts: tuple[str, ...]) -> dict[str, Any]:
    """The figures of a trained network with other parts of evidence."""
    began = time.process_time()
    model = fitted.ranker().model
    whole, model.output.evidence = model.output.evidence, parts
    found = fit_evidence(model, sequences, fitted.training)[1]
    model.output.evidence = whole
    return {**found, "cpu": time.process_time() - began}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="the folder of the logs")
    parser.add_argument("names", nargs="+", help="logs of studies/twelve")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    torch.set_num_threads(1)
    keep_memory()
    results = HERE / "results.jsonl"
    lines = results.read_text(encoding="utf-8").splitlines() if results.exists() else []
    done = {(line["data"], line["variant"], line["seed"]) for line in map(json.loads, lines)}

    def record(name: str, variant: str, figures: dict[str, Any]) -> None:
        entry = {"data": name, "variant": variant, "seed": given.seed, **figures, "environment": environment()}
        with results.open("a", encoding="utf-8") as stream:
            stream.write(json.dumps(entry) + "\n")
        print(name, variant, figures, flush=True)

    for data in read_study(HERE.parent / "twelve/study.toml", given.folder).data:
        if data.name not in given.names:
            continue
        sequences = Workspace(HERE / "work").sequences(data)
        for variant, changes in TRAINED.items():
            alone = [part for part in PARTS if variant == "default" and (data.name, part, given.seed) not in done]
            if (data.name, variant, given.seed) in done and not alone:
                continue
            fitted, figures = trained(sequences, given.seed, changes)
            if (data.name, variant, given.seed) not in done:
                record(data.name, variant, figures)
            for part in alone:
                record(data.name, part, with_parts(fitted, sequences, PARTS[part]))


if __name__ == "__main__":
    main()
