"""A nightly job: prepare the log, train, check, publish, answer all users, reload the server.

Run it with `python examples/nightly.py`. It takes about half a minute. It makes a log, works in a temporary folder, and
needs the extra `serve` for the last step. A real job begins with the log of the shop and keeps its folder.
"""

import json
import subprocess
import sys
import tempfile
import urllib.request
from contextlib import contextmanager
from pathlib import Path

import pyarrow.compute as pc
import pyarrow.parquet as pq

import abaca
from abaca.batch import recommend_file
from abaca.data.queries import HistorySource
from abaca.data.synthetic import synthetic_log
from abaca.evaluation.against import evaluate_baselines


def night(log: Path, folder: Path) -> None:
    """Make the model of one night, and publish it if it is good enough."""
    # 1. Prepare: filter, order and split the log once; training and evaluation read the result.
    with abaca.read_log(log) as rows:
        sequences = abaca.prepare(rows, folder / "sequences", overwrite=True)

    # 2. Train on all but the last two purchases of each user.
    model = abaca.Recommender("gru4rec", epochs=3, dim=16, seed=0).fit(sequences)

    # 3. Check: a model that a baseline beats by far is not published, and the old one stays.
    found = model.evaluate().mean("ndcg@10")
    rule = max(evaluate_baselines(sequences, "test", (10,)), key=lambda result: result.mean("ndcg@10"))
    print(f"NDCG@10 {found:.4f}; the best rule, {rule.name}, has {rule.mean('ndcg@10'):.4f}")
    if found < 0.9 * rule.mean("ndcg@10"):
        raise SystemExit("the model is worse than a baseline; the old one stays")

    # 4. Publish: train on everything, for as many epochs as were best, and replace the model in one step.
    model.fit(sequences, refit=True)
    model.save(folder / "model")

    # 5. Answer all users, in a file that other programs read; `abaca recommend --histories` does the same.
    histories = model.as_learned(HistorySource(log))
    report = recommend_file(model, histories, folder / "answers.parquet", abaca.Policy(n=5), overwrite=True)
    first = pq.read_table(folder / "answers.parquet")["ids"][0].as_py()
    print(f"{report.histories} users have answers, such as {first}")


@contextmanager
def server(model: Path):
    """Serve a model on free ports; gives the addresses of the service and of its administration."""
    words = [sys.executable, "-m", "abaca", "serve", str(model), "--port", "0", "--admin-port", "0"]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        service, admin = (process.stdout.readline().split()[-1] for _ in range(2))
        yield service, admin
    finally:
        process.terminate()
        process.wait()


def version(service: str) -> str:
    """The version of the model that a server answers with."""
    with urllib.request.urlopen(f"{service}/model") as answer:
        return json.load(answer)["models"][0]["version"]


def main(folder: Path) -> None:
    every = synthetic_log("mixed", users=300, items=80, length=20, seed=0)
    today = pc.quantile(every["time"], 0.9)[0].as_py()
    log = folder / "log.parquet"

    # The first night knows the log up to a moment; then the server starts.
    pq.write_table(every.filter(pc.less(every["time"], today)), log)
    night(log, folder)
    with server(folder / "model") as (service, admin):
        before = version(service)

        # The second night knows more. The server answers all the time, and then takes the new model.
        pq.write_table(every, log)
        night(log, folder)
        assert version(service) == before
        urllib.request.urlopen(urllib.request.Request(admin, method="POST")).close()
        print(f"the server went from version {before} to {version(service)}")
        assert version(service) != before


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as made:
        main(Path(made))
