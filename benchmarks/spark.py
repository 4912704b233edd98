"""Spark beside one process: the same folder, the same answers, and what they cost.

    python benchmarks/spark.py prepare --rows 20000000 --json spark-prepare.json
    python benchmarks/spark.py prepare --log retailrocket/ --json spark-retailrocket.json
    python benchmarks/spark.py recommend --histories 100000 --json spark-recommend.json

`prepare` prepares a log with DuckDB and with Spark on one and on two cores, and compares the folders byte for byte.
With `--rows` the log is synthetic: Parquet files with ties, repeats and a long tail of items. `recommend` answers
random histories with a random model in one process and with Spark, and counts the lists that differ.

Memory is the highest of the driver's Python process, of its JVM and of one Python worker, as the kernel counts it. In
these masters the JVM also runs the tasks. Its heap is resident from the start, so that memory above `--heap` is what
the JVM has beside it. CPU time is summed over the processes that five looks a second find.
"""

import argparse
import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pyarrow
import pyarrow.parquet

from abaca.data.sequences import Sequences
from abaca.evidence.transitions import Transitions

FILES = 8
CLOSE = 1e-5
"""Two items whose scores differ by less may change places."""


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
    """Run a command of Abaca: seconds, and the highest memory of its process, its JVM and Spark's Python workers."""
    began = time.monotonic()
    peaks = {"python_bytes": 0, "jvm_bytes": 0, "worker_bytes": 0}
    seconds: dict[int, float] = {}
    with psutil.Popen([sys.executable, "-m", "abaca", *words], cwd=folder, stdout=subprocess.PIPE) as process:
        while process.poll() is None:
            for name, one in tree(process):
                with contextlib.suppress(psutil.Error, OSError):
                    peaks[name] = max(peaks[name], peak_bytes(one.pid))
                    times = one.cpu_times()
                    seconds[one.pid] = times.user + times.system
            time.sleep(0.2)
        out = process.stdout.read()
    if process.returncode:
        raise SystemExit(f"abaca {' '.join(words)} ended with {process.returncode}")
    wall = time.monotonic() - began
    return {"wall_seconds": wall, "cpu_seconds": sum(seconds.values()), **peaks, "out": json.loads(out)}


def tree(process: psutil.Popen) -> Iterator[tuple[str, psutil.Process]]:
    """The command's process, the JVM that it starts, and all processes below that."""
    yield "python_bytes", process
    with contextlib.suppress(psutil.Error):
        for child in process.children(recursive=True):
            with contextlib.suppress(psutil.Error):
                yield "jvm_bytes" if child.name() == "java" else "worker_bytes", child


def peak_bytes(process: int) -> int:
    """The highest resident memory of a process so far."""
    lines = Path(f"/proc/{process}/status").read_text().splitlines()
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM")), 0)


def spark_words(master: str, heap: str) -> list[str]:
    settings = {
        "spark.master": master, "spark.driver.memory": heap, "spark.ui.enabled": "false",
        "spark.driver.extraJavaOptions": f"-Xms{heap} -XX:+AlwaysPreTouch",  # the heap is resident from the start
    }  # fmt: skip
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


def prepare(given: argparse.Namespace, folder: Path) -> None:
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
        save(given, result)


def save(given: argparse.Namespace, result: dict[str, Any]) -> None:
    """Write what is known so far, after each master: a run that is stopped has results too."""
    facts = {"what": given.what, "cores": os.cpu_count(), "load_average": os.getloadavg()}
    given.json.write_text(json.dumps(facts | result, indent=1) + "\n", encoding="utf-8")


def _without_out(measured: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in measured.items() if name != "out"}


def recommend(given: argparse.Namespace, folder: Path) -> None:
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
        save(given, result)


def compare_answers(ours: pyarrow.Table, spark: pyarrow.Table) -> dict[str, Any]:
    """How many lists differ, and by how much the scores differ where another item is at a place."""
    assert ours["user"].to_pylist() == spark["user"].to_pylist()
    columns = [table[name].to_pylist() for name in ("user", "ids", "probabilities") for table in (ours, spark)]
    lists, largest, swapped = set(), 0.0, []
    for user, _, mine, other, p, q in zip(*columns, strict=True):
        largest = max(largest, float(np.abs(np.subtract(p, q)).max(initial=0)))
        for place, (a, b) in enumerate(zip(mine, other, strict=True)):
            if a != b:
                lists.add(user)
                gap = abs(np.log(p[place]) - np.log(q[place]))  # of log probabilities, and so of logits
                swapped.append({"user": user, "place": place, "ours": a, "spark": b, "gap": float(gap)})
    return {
        "lists": len(columns[0]), "largest_probability_difference": largest, "differing_lists": len(lists),
        "differing_places": len(swapped), "places_with_gap_from_1e-5": sum(each["gap"] >= CLOSE for each in swapped),
        "largest_gap": max((each["gap"] for each in swapped), default=0.0), "shown": swapped[:100],
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
        {"prepare": prepare, "recommend": recommend}[given.what](given, Path(folder))


if __name__ == "__main__":
    main()
