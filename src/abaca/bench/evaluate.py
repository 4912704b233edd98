"""Full-ranking evaluation: every test target against the whole catalogue, and the metrics."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from torch import Tensor

from abaca.bench.measure import Contender, Spent, timed
from abaca.data.sequences import Sequences
from abaca.evaluation.evaluate import Evaluation, evaluate
from abaca.evaluation.ranker import ModelRanker
from abaca.histories import Windows
from abaca.nn.build import make_model
from abaca.nn.encoders import ENCODERS
from abaca.nn.model import Model
from abaca.nn.outputs import Encoded
from abaca.options import TrainingOptions

WHOLE, GIVEN = "evaluation", "evaluation given states"
"""In all, or with the encoder's states already computed."""


class Ranking:
    """A model that ranks the test targets, and the states of its encoder once they were computed."""

    def __init__(self, model: Model, sequences: Sequences) -> None:
        self.model, self.sequences = model, sequences
        self.states: list[Encoded] = []

    def spend(self, part: str) -> Spent:
        """The cost of ranking all test targets."""
        count = len(self.sequences.test.users)
        if part == WHOLE:
            return timed(self.evaluate, count)
        if not self.states:
            encode = self.model.encode
            with encoding_by(self.model, lambda windows: self._kept(encode(windows))):
                self.evaluate()
        states = iter(self.states)
        with encoding_by(self.model, lambda windows: next(states)):
            return timed(self.evaluate, count)

    def evaluate(self) -> Evaluation:
        """The evaluation as `abaca evaluate` makes it."""
        return evaluate(ModelRanker(self.model, TrainingOptions.window), self.sequences, "test")

    def _kept(self, encoded: Encoded) -> Encoded:
        self.states.append(encoded)
        return encoded


@contextmanager
def encoding_by(model: Model, encode: Callable[[Windows[Tensor]], Encoded]) -> Iterator[None]:
    """Within, `model.encode` is another function."""
    model.__dict__["encode"] = encode
    try:
        yield
    finally:
        del model.__dict__["encode"]


@dataclass(frozen=True)
class EvaluateBench:
    """Ranking the test targets of a prepared log with untrained models."""

    sequences: Path
    encoders: tuple[str, ...] = tuple(ENCODERS)
    outputs: tuple[str, ...] = ("softmax", "softmax+CPR:100+Mi")

    @property
    def title(self) -> str:
        return "Full ranking of the test targets, and the metrics"

    def references(self, name: str) -> Mapping[str, str]:
        """Each output layer is compared with softmax on the same encoder."""
        model, part = name.split(", ")
        return {"softmax": f"{model.split(' ')[0]} softmax, {part}"}

    def contenders(self) -> Mapping[str, Contender]:
        sequences = Sequences.open(self.sequences)
        rankings: dict[str, Ranking] = {}

        def run(encoder: str, output: str, part: str) -> Spent:
            name = f"{encoder} {output}"
            if name not in rankings:
                rankings[name] = Ranking(make_model(encoder, output, sequences.catalogue.size), sequences)
            return rankings[name].spend(part)

        return {
            f"{e} {o}, {part}": partial(run, e, o, part)
            for e in self.encoders
            for o in self.outputs
            for part in (WHOLE, GIVEN)
        }
