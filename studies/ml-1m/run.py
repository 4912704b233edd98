"""Train and test one configuration of this study, and append the result: `python run.py CONFIG ORDER SEED LOG WORK`.

CONFIG is a TOML file of this folder without its ending; ORDER is exact or single (`abaca prepare --time-precision`);
LOG is ml-1m as its file stands; WORK is a folder for sequences and models, where a run that was stopped goes on.
Everything is chosen on validation; test is read once, here, after the configuration was chosen.
"""

import json
import platform
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
RESULTS = HERE / "results.jsonl"


def abaca(*words: object) -> str:
    command = [sys.executable, "-m", "abaca", *map(str, words)]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


def main(config: str, order: str, seed: str, log: str, work: str) -> None:
    sequences = Path(work) / order
    if not sequences.exists():
        abaca("prepare", log, sequences, "--time-precision", order)
    name = f"{config}-{order}-{seed}"
    model = Path(work) / name
    if not (model / "model.json").exists():
        options = "--config", HERE / f"{config}.toml", "--seed", seed, "--threads", 1
        abaca("train", sequences, model, *options, "--resume")
    epochs = [json.loads(line) for line in (model / "training.jsonl").read_text(encoding="utf-8").splitlines()]
    report = {}
    asked = {"valid": ("--targets", "valid"), "test": (), "test, now known": ("--now",)}
    for question, words in asked.items():
        answer = json.loads(abaca("evaluate", model, sequences, *words, "--no-baselines", "--json"))
        report[question] = answer["evaluations"][0]["groups"]["all"]["metrics"]
    line = {
        "config": config,
        "order": order,
        "seed": int(seed),
        "minutes": round(sum(epoch["seconds"] for epoch in epochs) / 60, 1),
        "threads": 1,
        "processor": platform.processor() or platform.machine(),
        **report,
    }
    with RESULTS.open("a", encoding="utf-8") as file:
        file.write(json.dumps(line) + "\n")
    print(json.dumps(line))


if __name__ == "__main__":
    if len(sys.argv) != 6:
        sys.exit(__doc__)
    main(*sys.argv[1:])
