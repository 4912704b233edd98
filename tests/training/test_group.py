"""Processes that train together: the steps of one process, one message, any number of them can resume."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pyarrow
import pyarrow.csv
import pytest

from abaca.data.log import read_log
from abaca.data.prepare import PrepareOptions, prepare
from abaca.data.sequences import Sequences
from abaca.data.synthetic import synthetic_log
from abaca.recommender import load
from abaca.training import gradients
from abaca.training.callbacks import Callback, Step
from abaca.training.group import Group
from abaca.training.state import RECORD, STATE, read_progress

from . import together
from .processes import run, start, wait
from .test_trainer import Cut, CutAfter, quick_recommender

PROGRAM = [sys.executable, together.__file__]
ABACA = [sys.executable, "-m", "abaca"]
QUICK = (
    "encoder = 'gru4rec'\noutput = 'softmax+C+habits'\ndim = 8\nhidden = 8\ndropout = 0.2\nepochs = 4\nlr = 0.02\n"
    "batch_targets = 100\ntargets = 5\noverlap = 4\nwindow = 8\npatience = 0\n"
    "checkpoint_minutes = 0\nstart = 'counts'\n"
)
"""A run that saves its state after each step, with dropout."""


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The prepared folder of each case."""
    place = tmp_path_factory.mktemp("together")
    rows = synthetic_log("copy-after-repeat", users=150, items=600, length=22, seed=5)
    kinds = pyarrow.table({"item": np.arange(600), "kind": [f"kind {id % 7}" for id in range(600)]})
    with read_log(rows) as log:
        prepare(log, place / "plain", items=kinds)
    with read_log(synthetic_log("view-then-buy", 200, 60, 25, 0)) as log:
        prepare(log, place / "types", options=PrepareOptions(targets_of=("buy",)))
    return {case: place / ("types" if case == "types" else "plain") for case in together.CASES}


def together_of(size: int, cases: list[str], folders: dict[str, Path], out: Path) -> dict[str, Any]:
    """What the processes of a group note; all the same."""
    out.mkdir()
    ended = run([*PROGRAM, str(out), *(f"{case}={folders[case]}" for case in cases)], size)
    assert [each.code for each in ended] == [0] * size, ended
    found: list[dict[str, Any]] = [json.loads((out / f"{rank}.json").read_text()) for rank in range(size)]
    assert all(each == found[0] for each in found)
    return found[0]


def alone(case: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The same by one process, with the draws of items that a group has."""
    seed = gradients._seed
    monkeypatch.setattr(gradients, "_seed", lambda _, step, device: seed(Group(0, 2), step, device))
    return together.steps_of(case, folder)


def check(cases: list[str], size: int, folders: dict[str, Path], out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = together_of(size, cases, folders, out)
    for case in cases:
        one = alone(case, folders[case], monkeypatch)
        assert len(one["losses"]) == together.STEPS
        assert list(one["targets"]) == found[case]["targets"]
        per_target = np.array(found[case]["losses"]) / one["targets"]
        np.testing.assert_allclose(per_target, np.array(one["losses"]) / one["targets"], rtol=0, atol=1e-9)
        assert found[case]["sum"] == pytest.approx(one["sum"], abs=1e-6)
        assert found[case]["figures"] == one["figures"]  # exactly


def test_two_processes_take_the_steps_of_one(
    folders: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    check(["softmax", "cpr", "default", "sampled"], 2, folders, tmp_path / "two", monkeypatch)


@pytest.mark.slow
def test_three_processes_take_the_steps_of_one_for_weights_features_and_few_windows(
    folders: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With 7 targets a step has one or two windows, so that a process has none."""
    rest = ["types", "features", "sampled features", "few windows"]
    check(rest, 3, folders, tmp_path / "three", monkeypatch)


def test_a_restart_continues_its_own_run_although_the_command_overwrites(
    small: Sequences, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[tuple[int, int]] = []

    class Steps(Callback):
        def on_step(self, step: Step) -> None:
            seen.append((step.epoch, step.step))

    often, place = {"checkpoint_minutes": 0.0}, {"folder": tmp_path / "model", "overwrite": True}
    with pytest.raises(Cut):
        quick_recommender(**often).fit(small, **place, callback=CutAfter(1, 2))
    monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", "1")
    quick_recommender(**often).fit(small, **place, callback=Steps())
    assert seen[0] == (1, 2)
    seen.clear()
    quick_recommender(**often, lr=0.03).fit(small, **place, callback=Steps())
    assert seen[0] == (0, 1)  # another run is replaced


@pytest.fixture
def sequences(tmp_path: Path) -> Sequences:
    with read_log(synthetic_log("copy-after-repeat", users=150, items=50, length=14, seed=1)) as log:
        return prepare(log, tmp_path / "sequences")


@pytest.fixture
def train(tmp_path: Path, sequences: Sequences) -> list[str]:
    """The command that trains on the sequences, but for the folder of the model."""
    config = tmp_path / "run.toml"
    config.write_text(QUICK)
    return [*ABACA, "train", str(sequences.path), "--config", str(config)]


def records(folder: Path) -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in (folder / RECORD).read_text().splitlines()]
    return [{key: line[key] for key in line if "seconds" not in key} for line in lines]


def weights(folder: Path) -> list[str]:
    """The name of the weights, which has their checksum."""
    return [path.name for path in folder.glob("weights-*")]


def steps_taken(folder: Path) -> int:
    """The steps of the saved state of a run; 0 without one."""
    return int(read_progress(folder)["taken"]) if (folder / STATE).exists() else 0


def kill_one(processes: "list[subprocess.Popen[str]]", folder: Path, rank: int) -> None:
    """Kill a process once the run has saved its state a few times."""
    deadline = time.monotonic() + 300
    while time.monotonic() < deadline and not (folder / STATE).exists():
        time.sleep(0.01)
    time.sleep(0.3)
    processes[rank].send_signal(signal.SIGKILL)


@pytest.mark.slow
def test_a_killed_process_ends_the_others_and_any_number_can_resume(
    train: list[str], sequences: Sequences, tmp_path: Path
) -> None:
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    ended = run([*train, str(whole)], 2)
    assert [each.code for each in ended] == [0, 0], ended
    assert ended[0].said.count("epoch   4/4") == 1  # progress and report come from the first process only
    assert "next: abaca evaluate" in ended[0].said
    assert ended[1].said == ""
    processes = start([*train, str(killed)], 2)
    kill_one(processes, killed, rank=1)
    first = wait(processes)[0]
    assert first.code == 2
    assert "process 0 of 2 lost the others" in first.said
    assert "--resume continues" in first.said
    assert "Traceback" not in first.said
    assert read_progress(killed)["processes"] == 2
    for size in (1, 2, 3):
        folder = tmp_path / f"by {size}"
        subprocess.run(["cp", "-r", str(killed), str(folder)], check=True)
        assert [each.code for each in run([*train, str(folder), "--resume"], size)] == [0] * size
        assert [record["targets"] for record in records(folder)] == [sequences.training_targets] * 4
        ours, theirs = ([record["loss"] for record in records(each)] for each in (folder, whole))
        assert ours == pytest.approx(theirs, rel=0.02)  # dropout differs by process
        load(folder)
    assert weights(tmp_path / "by 2") == weights(whole)  # to the bit
    assert records(tmp_path / "by 2") == records(whole)


@pytest.mark.slow
def test_torchrun_finishes_a_run_by_itself_that_is_killed_ten_times(
    train: list[str], sequences: Sequences, tmp_path: Path
) -> None:
    """It begins with --overwrite, which a restart must not take for an order to begin again."""
    whole, killed, kills = tmp_path / "whole", tmp_path / "killed", 10
    assert [each.code for each in run([*train, str(whole)], 2)] == [0, 0]
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    command = [*torchrun, f"--max-restarts={kills + 2}", "-m", "abaca", *train[3:], str(killed), "--overwrite"]
    with (tmp_path / "said").open("w") as said:
        launched = subprocess.Popen(command, env={**os.environ, "OMP_NUM_THREADS": "1"}, stdout=said, stderr=said)
    rng, agent, taken, killed_at = random.Random(0), psutil.Process(launched.pid), 0, []
    while len(killed_at) < kills and launched.poll() is None:
        until = taken + rng.randint(1, 4)
        while taken < until and launched.poll() is None:
            time.sleep(0.005)
            taken = steps_taken(killed)
        if launched.poll() is not None:
            break
        workers = agent.children()
        if not workers:  # between two starts
            continue
        rng.choice(workers).kill()
        psutil.wait_procs(workers, timeout=60)
        killed_at.append(taken)
    assert launched.wait() == 0, (tmp_path / "said").read_text()
    assert len(killed_at) == kills
    assert killed_at == sorted(set(killed_at))  # each start went on from the last state
    assert records(killed) == records(whole)
    assert [record["targets"] for record in records(killed)] == [sequences.training_targets] * 4
    assert weights(killed) == weights(whole)


@pytest.mark.slow
def test_a_log_is_prepared_once_and_a_mistake_is_reported_once(tmp_path: Path) -> None:
    log, model = tmp_path / "log.csv", tmp_path / "model"
    pyarrow.csv.write_csv(synthetic_log("copy-after-repeat", users=60, items=40, length=14, seed=5), log)
    (tmp_path / "run.toml").write_text(QUICK)
    config = ["--config", str(tmp_path / "run.toml"), "--epochs", "1"]
    ended = run([*ABACA, "train", str(log), str(model), *config, "--budget", "5s"], 2)
    assert [each.code for each in ended] == [0, 0], ended
    assert "trial gru4rec" in ended[0].said
    assert ended[1].said == ""
    again = run([*ABACA, "train", str(log), str(model), *config], 2)
    assert [each.code for each in again] == [2, 2]
    assert "holds a model; --overwrite replaces it" in again[0].said
    assert again[1].said == ""
    with log.open("a") as file:
        file.write("7,8,yesterday\n")
    broken = run([*ABACA, "train", str(log), str(model), *config, "--overwrite"], 2)
    assert [each.code for each in broken] == [2, 2]
    assert "yesterday" in broken[0].said
    assert broken[1].said == ""
