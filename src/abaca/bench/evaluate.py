"""Full-ranking evaluation: every test target against the whole catalogue, and the metrics."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from torch import Tensor

from abaca.bench.measure import Contender, Spent, timed
from abaca.bench.sizes import paper_sizes
from abaca.data.sequences import Sequences
from abaca.evaluation.evaluate import evaluate
from abaca.evaluation.ranker import ModelRanker
from abaca.histories import Windows
from abaca.nn import shortlist
from abaca.nn.encoders import ENCODERS
from abaca.nn.logits import Scores
from abaca.nn.model import Model, make_model
from abaca.nn.outputs import Encoded
from abaca.options import TrainingOptions

METRICS = ("ndcg@10", "hr@10", "mrr@10")
WHOLE, GIVEN = "evaluation", "evaluation given states"
ALONE, ALONE_GIVEN = "metrics alone", "metrics alone given states"
PARTS = (WHOLE, GIVEN, ALONE, ALONE_GIVEN)
"""All that `abaca evaluate` tells, or only the metrics at ten, as validation asks for them; each also from states."""


class Recalled:
    """A model whose encoder has answered before: its states are read from memory, batch after batch."""

    def __init__(self, model: Model, encoded: Sequence[Encoded]) -> None:
        self.items, self.output, self.catalogue, self.encoder = (
            model.items,
            model.output,
            model.catalogue,
            model.encoder,
        )
        self.encoded = iter(encoded)

    def eval(self) -> None:
        """It never trains."""

    def scores(self, windows: Windows[Tensor]) -> Scores:
        """What ranks items after the windows, which come in the same order as they did before."""
        return self.output.scores(next(self.encoded))

    def ranks(self, items: Tensor, positions: Tensor, targets: Tensor, most: int) -> Tensor:
        """The same for ranks up to a cutoff."""
        return shortlist.ranks(self.output, next(self.encoded), targets, most)


class Recorder(Recalled):
    """A model that keeps what its encoder answers."""

    def __init__(self, model: Model) -> None:
        super().__init__(model, ())
        self.model, self.kept = model.eval(), list[Encoded]()

    def scores(self, windows: Windows[Tensor]) -> Scores:
        return self.output.scores(self._encode(*windows[:2]))

    def ranks(self, items: Tensor, positions: Tensor, targets: Tensor, most: int) -> Tensor:
        return shortlist.ranks(self.output, self._encode(items, positions), targets, most)

    def _encode(self, items: Tensor, positions: Tensor) -> Encoded:
        self.kept.append(self.model.encode(Windows(items, positions)))
        return self.kept[-1]


def rank_test(model: Any, sequences: Sequences, alone: bool = False) -> dict[str, float]:
    """The metrics of the test targets, with everything else that an evaluation finds or alone."""
    ranker = ModelRanker(model, TrainingOptions.window)
    found = evaluate(ranker, sequences, "test")
    return {name: found.mean(name) for name in METRICS}


class Ranking:
    """A model that ranks the test targets, in all or from states that it remembers."""

    def __init__(self, model: Model, sequences: Sequences) -> None:
        self.model, self.sequences = model, sequences
        self.encoded: dict[bool, list[Encoded]] = {}  # the batches of both ways differ

    def spend(self, part: str) -> Spent:
        """Rank, and tell what it cost."""
        count, alone = len(self.sequences.test.users), part in (ALONE, ALONE_GIVEN)
        if part in (WHOLE, ALONE):
            return timed(partial(rank_test, self.model, self.sequences, alone), count)
        if alone not in self.encoded:
            recorder = Recorder(self.model)
            rank_test(recorder, self.sequences, alone)
            self.encoded[alone] = recorder.kept
        return timed(partial(rank_test, Recalled(self.model, self.encoded[alone]), self.sequences, alone), count)


@dataclass(frozen=True)
class EvaluateBench:
    """Ranking the test targets of a prepared log with fresh models."""

    sequences: Path
    encoders: tuple[str, ...] = tuple(ENCODERS)
    outputs: tuple[str, ...] = ("softmax", "softmax+CPR:100+Mi")

    @property
    def title(self) -> str:
        return "Full ranking of the test targets, and the metrics"

    def references(self, name: str) -> Mapping[str, str]:
        """An encoder's layers are compared with its own softmax."""
        model, part = name.split(", ")
        return {"softmax": f"{model.split(' ')[0]} softmax, {part}"}

    def contenders(self) -> Mapping[str, Contender]:
        sequences = Sequences.open(self.sequences)
        rankings: dict[str, Ranking] = {}

        def run(encoder: str, output: str, part: str) -> Spent:
            name = f"{encoder} {output}"
            if name not in rankings:
                made = make_model(encoder, output, sequences.catalogue.size, **paper_sizes(encoder))
                rankings[name] = Ranking(made, sequences)
            return rankings[name].spend(part)

        return {f"{e} {o}, {p}": partial(run, e, o, p) for e in self.encoders for o in self.outputs for p in PARTS}
