"""Trackers, against the real libraries, without a network."""

import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from abaca.data.sequences import Sequences
from abaca.errors import SpecError
from abaca.recommender import Recommender
from abaca.training.callbacks import Callback, End, Start
from abaca.training.trackers import figures, run_folder, tracker
from abaca.types import Record

RECORDS = [
    {"epoch": 0, "loss": 3.5, "targets": 660, "seconds": 1.25, "lr": 0.02, "ndcg@10": 0.25, "validation_seconds": 0.5},
    {"epoch": 1, "loss": 2.5, "targets": 660, "seconds": 1.0, "lr": 0.01, "ndcg@10": 0.375, "validation_seconds": 0.5},
]
START = Start("sasrec", "softmax", {"lr": 0.02, "metric": "ndcg@10"}, {"users": 60}, 2, Path("some/model"))
END = End("finished", {"best": 0.375, "best_epoch": 1})


def told(callback: Callback, start: Start = START, records: list[Record] = RECORDS, end: End = END) -> None:
    """A run as a callback sees it."""
    callback.on_start(start)
    for record in records:
        callback.on_epoch(record)
    callback.on_end(end)


def test_figures_are_named_by_what_they_were_measured_in() -> None:
    assert figures(RECORDS[0]) == {
        "training/loss": 3.5,
        "training/targets": 660,
        "training/seconds": 1.25,
        "training/lr": 0.02,
        "validation/ndcg_at_10": 0.25,
        "validation/seconds": 0.5,
    }


@pytest.mark.parametrize("words", ["tensorboard", "tensorboard:", "comet:x", ""])
def test_words_that_name_no_tracker_are_refused(words: str) -> None:
    with pytest.raises(SpecError, match="tensorboard:FOLDER, mlflow:FOLDER"):
        tracker(words)


@pytest.mark.parametrize(("words", "package"), [("tensorboard:x", "tensorboardX"), ("wandb:x", "wandb")])
def test_a_missing_package_is_named_with_its_extra(words: str, package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(SpecError, match=rf"package {package}; install it with: pip install 'abaca\[{words[:-2]}\]'"):
        tracker(words)


def test_no_tracker_is_imported_with_the_library() -> None:
    program = "import sys, abaca, abaca.recommender, abaca.training.trackers; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert not {"tensorboardX", "mlflow", "wandb"} & set(done.stdout.split())


def test_a_run_has_a_folder_of_its_own(tmp_path: Path) -> None:
    names = []
    for _ in range(3):
        names.append(run_folder(tmp_path, "a model", resumed=False).name)
        (tmp_path / names[-1]).mkdir()
    assert names == ["a_model", "a_model-2", "a_model-3"]
    assert run_folder(tmp_path, "a model", resumed=True).name == "a_model-3"


def scalars(folder: Path) -> dict[str, dict[int, float]]:
    """The scalars of TensorBoard's event files: a length, its checksum, an event, its checksum, and so on."""
    event_pb2 = pytest.importorskip("tensorboardX.proto.event_pb2")
    found: dict[str, dict[int, float]] = {}
    for file in sorted(folder.glob("events.*")):
        data, at = file.read_bytes(), 0
        while at < len(data):
            (length,) = struct.unpack("<Q", data[at : at + 8])
            event = event_pb2.Event.FromString(data[at + 12 : at + 12 + length])
            at += 12 + length + 4
            for value in event.summary.value:
                if value.HasField("simple_value"):
                    found.setdefault(value.tag, {})[event.step] = value.simple_value
    return found


def test_tensorboard(small: Sequences, tmp_path: Path) -> None:
    pytest.importorskip("tensorboardX")
    model = Recommender("gru4rec", "softmax", epochs=2, dim=8, batch_targets=200)
    model.fit(small, folder=tmp_path / "model", callback=tracker(f"tensorboard:{tmp_path / 'runs'}"))
    found = scalars(tmp_path / "runs" / "model")
    assert model.saved is not None
    for record in model.saved.training["records"]:
        for name, value in figures(record).items():
            assert found[name][record["epoch"] + 1] == pytest.approx(value)
    assert found["end/best"] == {2: pytest.approx(model.saved.training["best"])}


def test_tensorboard_continues_the_folder_of_a_resumed_run(tmp_path: Path) -> None:
    pytest.importorskip("tensorboardX")
    told(tracker(f"tensorboard:{tmp_path}"), records=RECORDS[:1], end=End("failed"))
    resumed = Start(START.encoder, START.output, {}, {}, 2, START.folder, tuple(RECORDS[:1]))
    told(tracker(f"tensorboard:{tmp_path}"), resumed, RECORDS[1:])
    assert [folder.name for folder in tmp_path.iterdir()] == ["model"]
    assert scalars(tmp_path / "model")["training/loss"] == {1: 3.5, 2: 2.5}


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # of its database
def test_mlflow(tmp_path: Path) -> None:
    """A run that fails after an epoch, then the same one resumed: its curve is whole."""
    mlflow = pytest.importorskip("mlflow")
    told(tracker(f"mlflow:{tmp_path}"), START, RECORDS[:1], End("failed"))
    resumed = Start(START.encoder, START.output, START.options, START.data, 2, START.folder, tuple(RECORDS[:1]))
    told(tracker(f"mlflow:{tmp_path}"), resumed, RECORDS[1:])
    client = mlflow.MlflowClient(tracking_uri=f"sqlite:///{tmp_path / 'mlflow.db'}")
    run, failed = client.search_runs([client.get_experiment_by_name("abaca").experiment_id])
    assert (failed.info.status, failed.data.metrics["training/loss"]) == ("FAILED", 3.5)
    assert (run.info.run_name, run.info.status) == ("model", "FINISHED")
    assert run.data.params["lr"] == "0.02"
    assert run.data.params["data/users"] == "60"
    history = client.get_metric_history(run.info.run_id, "validation/ndcg_at_10")
    assert [(metric.step, metric.value) for metric in history] == [(1, 0.25), (2, 0.375)]
    assert run.data.metrics["end/best"] == 0.375


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_weights_and_biases_offline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What it wrote is read again, from the file that `wandb sync` would send."""
    wandb = pytest.importorskip("wandb")
    monkeypatch.setenv("WANDB_DIR", str(tmp_path))
    monkeypatch.delenv("WANDB_MODE", raising=False)
    told(tracker("wandb:groceries"))
    wandb.teardown()  # its process has written everything
    (file,) = tmp_path.glob("wandb/offline-run-*/run-*.wandb")
    found = synced(file)
    assert found["project"] == "groceries"
    assert found["name"] == "model"
    assert found["config"]["lr"] == "0.02"
    assert found["history"] == [(1, "0.25"), (2, "0.375")]
    assert found["summary"]["end/best"] == "0.375"


def synced(file: Path) -> dict[str, Any]:
    """What a file of Weights & Biases holds: 7 bytes, then checksum, length, kind and record, and so on."""
    from wandb.proto import wandb_internal_pb2

    found: dict[str, Any] = {"history": [], "summary": {}, "config": {}}
    data, at = file.read_bytes(), 7
    assert len(data) < 1 << 15, "a longer file is cut into blocks"
    while at < len(data):
        length, kind = struct.unpack("<HB", data[at + 4 : at + 7])
        assert kind == 1, "a whole record"
        record = wandb_internal_pb2.Record.FromString(data[at + 7 : at + 7 + length])
        at += 7 + length
        if record.WhichOneof("record_type") == "run":
            found |= {"project": record.run.project, "name": record.run.display_name}
            found["config"] |= {item.key: item.value_json for item in record.run.config.update}
        for item in record.history.item:
            if "validation/ndcg_at_10" in (item.key, *item.nested_key):
                found["history"].append((record.history.step.num, item.value_json))
        for item in record.summary.update:
            found["summary"]["/".join(item.nested_key) or item.key] = item.value_json
    return found
