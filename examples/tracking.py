"""Follow runs: a callback of one's own, trackers, and runs side by side.

Run it with `python examples/tracking.py`. It takes about half a minute. Trackers that are not installed are left out:
`pip install 'abaca[tensorboard,mlflow,wandb]'` installs all of them.
"""

import subprocess
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path

import abaca
from abaca.data.synthetic import synthetic_log
from abaca.training.records import read_runs
from abaca.training.trackers import tracker


class Notes(abaca.Callback):
    """Prints a line for each epoch, and how the run ended."""

    def on_start(self, start):
        self.name = start.name
        print(f"{self.name}: {start.encoder} {start.output}, {start.data['targets']:,} targets an epoch")

    def on_epoch(self, record):
        print(f"{self.name}: epoch {record['epoch'] + 1}, validation NDCG@10 {record['ndcg@10']:.4f}")

    def on_end(self, end):
        print(f"{self.name}: {end.status}, best {end.figures['best']:.4f}")


def trackers(folder: Path) -> list[abaca.Callback]:
    """A tracker for TensorBoard where it is installed; mlflow:FOLDER and wandb:PROJECT work the same way."""
    return [tracker(f"tensorboard:{folder / 'logs'}")] if find_spec("tensorboardX") else []


def main(folder: Path) -> None:
    with abaca.read_log(synthetic_log("mixed", users=200, items=80, length=15, seed=0)) as log:
        sequences = abaca.prepare(log, folder / "sequences")
    for name, rate in (("careful", 0.001), ("bold", 0.01)):
        model = abaca.Recommender("gru4rec", epochs=3, dim=16, lr=rate)
        model.fit(sequences, folder=folder / "models" / name, callback=[Notes(), *trackers(folder)])

    # The same in the terminal: options that differ, figures, curves. `--page runs.html` writes a page.
    subprocess.run([sys.executable, "-m", "abaca", "runs", str(folder / "models")], check=True)

    # The same in Python.
    best, *_ = read_runs(folder / "models")
    print(f"{best.name} is best, with a learning rate of {best.options['lr']}")
    assert all((folder / "logs" / name).is_dir() for name in ("careful", "bold")) or not trackers(folder)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as made:
        main(Path(made))
