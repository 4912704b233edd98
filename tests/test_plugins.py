"""An encoder and an output layer of one's own: train, save, load, and refuse."""

import json
import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from torch import Tensor, nn

import abaca
from abaca.data.synthetic import synthetic_log
from abaca.errors import ModelError, SpecError
from abaca.nn.encoders import ENCODERS, Encoder, Inputs
from abaca.nn.outputs import Encoded, Output, make_output
from abaca.plugins import OUTPUT_PLUGINS
from abaca.serve.service import Service

LOG = synthetic_log("copy-after-repeat", users=30, items=20, length=10, seed=1)
QUICK: dict[str, Any] = {"epochs": 2, "lr": 0.02, "warmup": 2, "batch_targets": 100, "device": "cpu"}


@dataclass(frozen=True)
class MeanOptions:
    dim: int = 8
    power: float = 1.0


class RunningMean(Encoder):
    """The mean of the items so far, through one layer."""

    name = "running-mean"
    Options = MeanOptions

    def __init__(self, options: MeanOptions) -> None:
        super().__init__(options)
        self.layer = nn.Linear(options.dim, options.dim)

    def forward(self, inputs: Inputs) -> Tensor:
        total = inputs.embedded.cumsum(dim=1)
        count = (total[:, :, :1] * 0 + 1).cumsum(dim=1)
        return self.layer(total / count**self.options.power)[:, :, None]  # (B, L, 1, D)


@dataclass(frozen=True)
class WrappedOptions:
    spec: str = "softmax"


class Wrapped(Output):
    """Another output layer under a name of its own."""

    name = "wrapped"
    Options = WrappedOptions

    def build(self, layers: int, dim: int, catalogue: int) -> None:
        self.inner = make_output(self.options.spec)
        self.inner.build(layers, dim, catalogue)

    def loss(self, encoded: Encoded, targets: Tensor) -> Tensor:
        return self.inner.loss(encoded, targets)

    def scores(self, encoded: Encoded) -> Any:
        return self.inner.scores(encoded)


@pytest.fixture(autouse=True)
def forgotten() -> Any:
    """Nothing stays registered after a test."""
    yield
    ENCODERS.pop("running-mean", None)
    OUTPUT_PLUGINS.pop("wrapped", None)


def test_parts_of_ones_own_go_through_the_cycle(tmp_path: Path) -> None:
    parts = RunningMean(MeanOptions(dim=6, power=0.5)), Wrapped(WrappedOptions("softmax+C"))
    made = abaca.Recommender(*parts, **QUICK).fit(LOG, folder=tmp_path / "model")
    assert (made.encoder, made.output, made.encoder_options) == ("running-mean", "wrapped", {"dim": 6, "power": 0.5})
    document = json.loads((tmp_path / "model" / "model.json").read_text())
    assert document["imports"] == {"encoder": f"{__name__}.RunningMean", "output": f"{__name__}.Wrapped"}
    assert document["output_options"] == {"spec": "softmax+C"}
    ENCODERS.pop("running-mean")
    OUTPUT_PLUGINS.pop("wrapped")
    loaded = abaca.load(tmp_path / "model", encoder=RunningMean, output=Wrapped)
    assert np.array_equal(loaded.evaluate(LOG).rank, made.evaluate().rank)
    assert loaded.recommend([1, 2], 3) == made.recommend([1, 2], 3)
    loaded.fit(LOG, refit=True)
    loaded.save(tmp_path / "again")
    assert abaca.load(tmp_path / "again").recommend([1, 2], 3).ids == loaded.recommend([1, 2], 3).ids


def test_evidence_is_fitted_where_the_class_asks_for_it(tmp_path: Path) -> None:
    class Evident(Wrapped):
        name = "evident"
        evidence = ("habits", "followers")

    fitted = abaca.Recommender("gru4rec", Evident(), **QUICK).fit(LOG)
    assert fitted.saved is not None
    assert fitted.saved.evidence is not None
    assert fitted.saved.evidence.parts == Evident.evidence
    fitted.save(tmp_path)
    loaded = abaca.load(tmp_path, output=Evident)
    history = LOG["item"].to_pylist()[:5]
    assert loaded.recommend(history).to_json() == fitted.recommend(history).to_json()
    bare = abaca.Recommender("gru4rec", Wrapped(), **QUICK).fit(LOG)
    assert bare.saved is not None
    assert bare.saved.evidence is None


def test_a_class_or_its_name_will_do() -> None:
    abaca.register(RunningMean)
    assert abaca.Recommender("running-mean", "softmax", dim=4).encoder_options == {"dim": 4, "power": 1.0}
    assert abaca.Recommender(RunningMean, Wrapped, power=2).output_options == {"spec": "softmax"}
    built_in = ENCODERS["sasrec"](ENCODERS["sasrec"].Options(dim=16))
    assert abaca.Recommender(built_in, make_output("softmax+CP")).output == "softmax+CP"
    assert abaca.Recommender(built_in).encoder_options["dim"] == 16


def test_a_model_directory_never_causes_an_import(tmp_path: Path) -> None:
    abaca.Recommender(RunningMean, "softmax", **QUICK).fit(LOG, folder=tmp_path / "model")
    ENCODERS.pop("running-mean")
    said = r"encoder 'running-mean', which was .*RunningMean; pass its class: abaca.load\(folder, encoder=…\)"
    with pytest.raises(ModelError, match=said):
        abaca.load(tmp_path / "model")
    script = f"import abaca\ntry:\n    abaca.load({str(tmp_path / 'model')!r})\nexcept abaca.UserError:\n    pass\n"
    script += f"import sys\nassert {__name__!r} not in sys.modules"
    subprocess.run([sys.executable, "-c", script], check=True)
    abaca.register(RunningMean)
    assert len(abaca.load(tmp_path / "model").recommend([1], 3)) == 3


def test_what_cannot_be_registered_is_refused() -> None:
    with pytest.raises(SpecError, match="expected a subclass of"):
        abaca.register(dict)
    for name in ("sasrec", "rule", "softmax+C"):
        with pytest.raises(SpecError, match=rf"the name '{re.escape(name)}' of .* is taken"):
            abaca.register(type("Mine", (Encoder,), {"name": name}))
    for name in ("", "encoder"):
        with pytest.raises(SpecError, match="Mine needs a `name` of its own"):
            abaca.register(type("Mine", (Encoder,), {"name": name}))


def test_a_command_and_the_server_take_the_classes_that_the_caller_names(tmp_path: Path) -> None:
    abaca.Recommender(RunningMean(MeanOptions(dim=8)), "softmax", **QUICK).fit(LOG).save(tmp_path / "model")
    program = "from abaca.cli import main; main()"
    here = str(Path(__file__).parent)
    recommend = ["recommend", str(tmp_path / "model"), "1", "2", "--json"]

    def run(classes: str) -> subprocess.CompletedProcess[str]:
        environment = {**os.environ, "ABACA_PLUGINS": classes}
        command = [sys.executable, "-c", program, *recommend]
        return subprocess.run(command, capture_output=True, text=True, env=environment, cwd=here)

    done = run("test_plugins:RunningMean")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["items"]
    refused = run("test_plugins:Nothing")
    assert refused.returncode == 2
    assert "write module:Class" in refused.stderr
    assert run("").returncode == 2  # the model alone imports nothing
    service = Service([tmp_path / "model"])  # in this process the class is registered
    assert service.model().facts["encoder"] == "running-mean"
    service.close()


def test_two_classes_do_not_share_a_name_but_a_class_may_be_defined_again() -> None:
    """Otherwise a recommender that was made with the first would train the second."""
    abaca.register(RunningMean)
    with pytest.raises(SpecError, match=r"the name 'running-mean' of .*Another is taken"):
        abaca.register(type("Another", (RunningMean,), {}))
    again = type("RunningMean", (RunningMean,), {"__qualname__": RunningMean.__qualname__})
    assert ENCODERS[abaca.register(again).name] is again


def test_options_are_saved_as_json() -> None:
    """What cannot be is refused before training; tuples are lists from the start, so that a run resumes."""
    with pytest.raises(SpecError, match=r"options of wrapped cannot be saved as JSON .* use numbers"):
        abaca.Recommender("gru4rec", Wrapped(WrappedOptions(print)))  # type: ignore[arg-type]
    given = Wrapped(WrappedOptions(("softmax",)))  # type: ignore[arg-type]
    assert abaca.Recommender("gru4rec", given).output_options == {"spec": ["softmax"]}


def test_a_run_is_not_resumed_with_other_options_of_its_output_layer(tmp_path: Path) -> None:
    def made(spec: str) -> abaca.Recommender:
        return abaca.Recommender("gru4rec", Wrapped(WrappedOptions(spec)), dim=4, hidden=4, **QUICK)

    made("softmax").fit(LOG, folder=tmp_path)
    with pytest.raises(ModelError, match="holds a run with another option of the output layer"):
        made("softmax+C").fit(LOG, folder=tmp_path, resume=True)
    made("softmax").fit(LOG, folder=tmp_path, resume=True)
