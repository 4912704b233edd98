"""Train and test one configuration of this study, and append the result: `python run.py CONFIG SEED LOG WORK`.

CONFIG is a TOML file of this folder without its ending, LOG the ml-1m log, WORK a folder for sequences and models.
Everything is chosen on validation; test is read once, here, after the configuration was chosen.
"""

import json
import platform
import shutil
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).parent
RESULTS = HERE / "results.jsonl"


def abaca(*words: object) -> str:
    command = [sys.executable, "-m", "abaca", *map(str, words)]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


def main(config: str, seed: str, log: str, work: str) -> None:
    sequences = Path(work) / "sequences"
    if not sequences.exists():
        abaca("prepare", log, sequences)
    model = Path(work) / f"{config}-{seed}"
    toml = HERE / f"{config}.toml"
    began = time.perf_counter()
    abaca("train", sequences, model, "--config", toml, "--seed", seed, "--threads", 1, "--resume")
    minutes = (time.perf_counter() - began) / 60
    curve = HERE / "curves" / f"{config}-{seed}.jsonl"
    curve.parent.mkdir(exist_ok=True)
    shutil.copy(model / "training.jsonl", curve)
    report = {}
    for split in ("valid", "test"):
        answer = json.loads(abaca("evaluate", model, sequences, "--targets", split, "--no-baselines", "--json"))
        report[split] = answer["evaluations"][0]["groups"]["all"]["metrics"]
    head = ["git", "rev-parse", "--short", "HEAD"]
    commit = subprocess.run(head, stdout=subprocess.PIPE, text=True, cwd=HERE, check=True)
    line = {
        "config": config,
        "seed": int(seed),
        "wall_minutes": round(minutes, 1),
        "threads": 1,
        "processor": platform.processor() or platform.machine(),
        "commit": commit.stdout.strip(),
        **report,
    }
    with RESULTS.open("a", encoding="utf-8") as file:
        file.write(json.dumps(line) + "\n")
    print(json.dumps(line))


if __name__ == "__main__":
    if len(sys.argv) != 5:
        sys.exit(__doc__)
    main(*sys.argv[1:])
