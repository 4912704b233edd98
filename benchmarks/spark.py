"""Spark beside one process: the same folder, the same answers, and what they cost.

    python benchmarks/spark.py prepare --rows 20000000 --json spark-prepare.json
    python benchmarks/spark.py prepare --log retailrocket/ --json spark-retailrocket.json
    python benchmarks/spark.py recommend --histories 100000 --json spark-recommend.json

`prepare` prepares a log with DuckDB and with Spark on one and on two cores, and compares the folders byte for byte.
With `--rows` the log is synthetic: Parquet files with ties, repeats and a long tail of items. `recommend` answers
random histories with a random model in one process and with Spark, and counts the lists that differ.

Memory is the highest of the driver's Python process and of its JVM, as the kernel counts it. In these masters the JVM
also runs the tasks.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pyarrow.parquet

from abaca.data.sequences import Sequences
from abaca.evidence.transitions import Transitions

FILES = 8


def write_log(folder: Path, rows: int) -> None:
    """Interactions of rows / 20 users with 50,000 items; a quarter are repeats, and many times are tied."""
    folder.mkdir()
    users, items = max(rows // 20, 10), 50_000
    for number in range(FILES):
        rng = np.random.default_rng(number)
        size = rows // FILES
        user = rng.integers(0, users, size)
        item = (rng.random(size) ** 3 * items).astype(np.int64)
        favourite = (user * 7919) % items
        item = np.where(rng.random(size) < 0.25, favourite, item)
        seconds = 1_700_000_000 + rng.integers(0, 30 * 86_400, size) // 60 * 60
        names = pyarrow.array(item).cast(pyarrow.string())
        table = pyarrow.table({"user": user, "item": names, "time": seconds})
        pyarrow.parquet.write_table(table, folder / f"part-{number}.parquet", row_group_size=500_000)


def run(words: list[str], folder: Path) -> dict[str, Any]:
    """Run a command of Abaca: seconds, and the highest memory of its process and of a JVM that it starts."""
    began, before = time.monotonic(), os.times()
    peaks = {"python_bytes": 0, "jvm_bytes": 0}
    with subprocess.Popen([sys.executable, "-m", "abaca", *words], cwd=folder, stdout=subprocess.PIPE) as process:
        while process.poll() is None:
            peaks["python_bytes"] = max(peaks["python_bytes"], peak_bytes(process.pid))
            for child in children(process.pid):
                peaks["jvm_bytes"] = max(peaks["jvm_bytes"], peak_bytes(child))
            time.sleep(0.2)
        out = process.stdout.read() if process.stdout else b""
    if process.returncode:
        raise SystemExit(f"abaca {' '.join(words)} ended with {process.returncode}")
    used = os.times()
    cpu = used.children_user + used.children_system - before.children_user - before.children_system
    return {"wall_seconds": time.monotonic() - began, "cpu_seconds": cpu, **peaks, "out": json.loads(out)}


def children(process: int) -> list[int]:
    """The Java processes that a process started."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        try:
            fields = (path / "stat").read_text().rsplit(")", 1)[1].split()
            if int(fields[1]) == process and "java" in os.readlink(path / "exe"):
                found.append(int(path.name))
        except (OSError, IndexError):
            continue
    return found


def peak_bytes(process: int) -> int:
    """The highest resident memory of a process so far; 0 when it has ended."""
    try:
        lines = Path(f"/proc/{process}/status").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM")), 0)


def spark_words(master: str, heap: str) -> list[str]:
    settings = {"spark.master": master, "spark.driver.memory": heap, "spark.ui.enabled": "false"}
    return ["--engine", "spark", *(word for key, value in settings.items() for word in ("--spark", f"{key}={value}"))]


def compare(ours: Sequences, spark: Sequences) -> dict[str, bool]:
    """Which parts of two prepared folders are equal."""
    names = sorted(path.name for path in ours.path.glob("*.npy"))
    found = {name: (ours.path / name).read_bytes() == (spark.path / name).read_bytes() for name in names}
    for part in ("counts", "split", "catalogue"):
        found[f"manifest {part}"] = ours.manifest[part] == spark.manifest[part]
    found["fingerprint"] = ours.fingerprint == spark.fingerprint
    if spark.counted is not None:
        counted = vars(Transitions.count(ours.training(), ours.catalogue.size))
        found |= {f"transitions {name}": np.array_equal(array, spark.counted[name]) for name, array in counted.items()}
    return found


def prepare(given: argparse.Namespace, folder: Path) -> dict[str, Any]:
    log = Path(given.log).resolve() if given.log else folder / "log"
    if not given.log:
        write_log(log, given.rows)
    words = ["prepare", str(log), "--min-user", "5", "--min-item", "5", "--json", "--overwrite"]
    result: dict[str, Any] = {"rows": given.rows if not given.log else None, "log": given.log, "heap": given.heap}
    result["duckdb"] = _without_out(run([*words, "duckdb"], folder))
    ours = Sequences.open(folder / "duckdb")
    result["counts"] = ours.manifest["counts"]
    for master in given.masters:
        extra = ["--transitions"] if given.transitions else []
        result[master] = _without_out(run([*words, *spark_words(master, given.heap), *extra, "spark"], folder))
        result[master]["equal"] = compare(ours, Sequences.open(folder / "spark"))
        print(json.dumps({master: result[master]}), flush=True)
    return result


def _without_out(measured: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in measured.items() if name != "out"}


def recommend(given: argparse.Namespace, folder: Path) -> dict[str, Any]:
    from batch import write_histories, write_model  # beside this file

    write_model(folder / "model", given.items)
    write_histories(folder / "in.parquet", "lists", given.histories, given.items)
    words = ["recommend", "model", "--histories", "in.parquet", "--json", "-n", "10", "--to"]
    result: dict[str, Any] = {"histories": given.histories, "items": given.items}
    result["process"] = run([*words, "ours.parquet"], folder)
    ours = pyarrow.parquet.read_table(folder / "ours.parquet").sort_by("user")
    for master in given.masters:
        result[master] = run([*words, "spark.parquet", "--overwrite", *spark_words(master, given.heap)], folder)
        answers = pyarrow.parquet.read_table(folder / "spark.parquet").sort_by("user")
        result[master]["compared"] = compare_answers(ours, answers)
        print(json.dumps({master: result[master]}), flush=True)
    return result


def compare_answers(ours: pyarrow.Table, spark: pyarrow.Table) -> dict[str, Any]:
    """How many lists differ, and the largest gap between the probabilities of items that changed places."""
    assert ours["user"].to_pylist() == spark["user"].to_pylist()
    columns = [table[name].to_pylist() for name in ("ids", "probabilities") for table in (ours, spark)]
    differing, pairs, gap, largest = 0, 0, 0.0, 0.0
    for mine, other, p, q in zip(*columns, strict=True):
        largest = max(largest, float(np.abs(np.subtract(p, q)).max(initial=0)))
        if mine != other:
            differing += 1
            places = [place for place, (a, b) in enumerate(zip(mine, other, strict=True)) if a != b]
            pairs += len(places)
            gap = max(gap, *(abs(np.log(p[place]) - np.log(q[place])) for place in places))
    return {
        "lists": len(columns[0]), "differing_lists": differing, "differing_places": pairs,
        "largest_score_gap_there": float(gap), "largest_probability_difference": largest,
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("prepare", "recommend"))
    parser.add_argument("--rows", type=int, default=20_000_000)
    parser.add_argument("--log", help="a log of your own instead of a synthetic one")
    parser.add_argument("--histories", type=int, default=100_000)
    parser.add_argument("--items", type=int, default=20_000)
    parser.add_argument("--masters", nargs="+", default=["local[2]", "local[1]"])
    parser.add_argument("--heap", default="2g")
    parser.add_argument("--transitions", action="store_true", help="count transitions too")
    parser.add_argument("--json", type=Path, required=True)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        found = {"prepare": prepare, "recommend": recommend}[given.what](given, Path(folder))
    facts = {"what": given.what, "cores": os.cpu_count(), "load_average": os.getloadavg()}
    given.json.write_text(json.dumps(facts | found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
