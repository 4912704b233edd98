"""What recommending for a file of histories costs: peak memory and CPU time of `abaca recommend --histories`.

    python benchmarks/batch.py --histories 1000000 --source log --json batch.json

A model with random weights answers histories of 5 to 35 items, given as lists or as a shuffled log. Memory is the
highest of the command's own process, as the kernel counts it.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pyarrow.parquet
import torch

from abaca.data.catalogue import Catalogue
from abaca.data.prepare import PrepareOptions
from abaca.nn.build import make_model
from abaca.training.checkpoint import Saved, save_model
from abaca.training.trainer import TrainingOptions

OUTPUT = "softmax+CPR:100+Mi"


def write_model(folder: Path, items: int) -> None:
    """A model directory with random weights."""
    torch.manual_seed(0)
    model = make_model("sasrec", OUTPUT, items)
    torch.nn.init.normal_(model.items.weight, std=0.3)  # logits spread over several units, as after training
    options = {"dim": 64, "window": 50}
    training = {
        "options": asdict(TrainingOptions()),
        "prepared": asdict(PrepareOptions()),
        "fingerprint": "none",
        "everything": False,
        "split": {},
        "records": [],
        "encoder_options": options,
    }
    save_model(folder, Saved(model, "sasrec", OUTPUT, options, Catalogue([str(i) for i in range(items)]), training))


def write_histories(path: Path, source: str, count: int, items: int) -> int:
    """Lists, or the same as a log in random order; how many interactions there are."""
    rng = np.random.default_rng(0)
    lengths = rng.integers(5, 36, count)
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    ids = pyarrow.array((rng.random(offsets[-1]) ** 3 * items).astype(np.int64)).cast(pyarrow.string())
    if source == "lists":
        lists = pyarrow.ListArray.from_arrays(pyarrow.array(offsets), ids)
        table = pyarrow.table({"user": pyarrow.array(np.arange(count)), "history": lists})
    else:
        order = rng.permutation(len(ids))
        users = np.repeat(np.arange(count), lengths)[order]
        table = pyarrow.table({"user": users, "item": ids.take(pyarrow.array(order)), "time": order})
    pyarrow.parquet.write_table(table, path, row_group_size=100_000)
    return len(ids)


def run(folder: Path, histories: int, items: int, source: str) -> dict[str, Any]:
    write_model(folder / "model", items)
    interactions = write_histories(folder / "in.parquet", source, histories, items)
    words = ["recommend", "model", "--histories", "in.parquet", "--to", "out.parquet", "--json"]
    began = time.monotonic()
    with subprocess.Popen([sys.executable, "-m", "abaca", *words], cwd=folder, stdout=subprocess.PIPE) as process:
        peak = watch(process)
        report = json.loads(process.stdout.read()) if process.stdout else None
    used = os.times()
    return {
        "histories": histories, "items": items, "source": source, "interactions": interactions, "output": OUTPUT,
        "peak_bytes": peak, "cpu_seconds": used.children_user + used.children_system,
        "wall_seconds": time.monotonic() - began, "out_bytes": (folder / "out.parquet").stat().st_size,
        "report": report, "exit": process.returncode,
    }  # fmt: skip


def watch(process: "subprocess.Popen[bytes]") -> int:
    """The highest resident memory of a process while it runs."""
    peak = 0
    while process.poll() is None:
        try:
            lines = Path(f"/proc/{process.pid}/status").read_text().splitlines()
        except OSError:
            break
        peak = max([peak, *(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM"))])
        time.sleep(0.2)
    return peak


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("--histories", type=int, default=1_000_000)
    parser.add_argument("--items", type=int, default=5000)
    parser.add_argument("--source", choices=["lists", "log"], default="lists")
    parser.add_argument("--json", help="write the results to this file")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        results = run(Path(folder), arguments.histories, arguments.items, arguments.source)
    if arguments.json:
        Path(arguments.json).write_text(json.dumps(results, indent=1) + "\n")
    print(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
