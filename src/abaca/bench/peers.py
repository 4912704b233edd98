"""The same work here and in RecBole: training and evaluation, bursts of both sides in turns."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch

from abaca.bench.evaluate import ALONE, ALONE_GIVEN, GIVEN, METRICS, WHOLE, Ranking
from abaca.bench.measure import Contender, Measurement, Spent
from abaca.bench.peer import Peer, check_runs
from abaca.bench.sizes import BATCH_TARGETS, DROPOUT, paper_sizes
from abaca.bench.step import burst
from abaca.data.sequences import Sequences
from abaca.errors import SpecError
from abaca.evaluation import metrics
from abaca.nn.answers import Question, answer
from abaca.nn.build import make_model
from abaca.nn.logits import Tile
from abaca.nn.model import Model
from abaca.options import TrainingOptions
from abaca.training.checkpoint import Saved, load_model

TRAINING, EVALUATION = "training", "evaluation"


class Pair(NamedTuple):
    """A model of RecBole and the same one here."""

    peer: str
    encoder: str
    output: str

    @property
    def ours(self) -> str:
        return f"{self.encoder} {self.output}"


PAIRS = (
    Pair("SASRecCPR", "sasrec", "softmax+CPR:100+Mi"),
    Pair("GRU4RecCPR", "gru4rec", "softmax+CPR:100+Mi"),
    Pair("SASRec", "sasrec", "softmax"),
    Pair("GRU4Rec", "gru4rec", "softmax"),
    Pair("RepeatNet", "gru4rec", "repeatnet"),
)

WAYS = {
    f"{TRAINING}, overlap 0": (50, 0),
    f"{TRAINING}, overlap {TrainingOptions.overlap}": (TrainingOptions.targets, TrainingOptions.overlap),
}
"""How our windows are cut: targets and overlap. The second is the default."""

SAME_THERE = {WHOLE: WHOLE, ALONE: WHOLE, GIVEN: GIVEN, ALONE_GIVEN: GIVEN}
"""What each part of our evaluation is compared with: RecBole's makes the metrics at ten, and nothing else."""

LEARNED_BATCHES = 100
"""RecBole's batches before its scores are ranked on both sides."""

FAIR, AS_IT_IS = "RecBole", "RecBole with anomaly detection"
THEIR_METRICS = dict(zip(METRICS, ("ndcg@10", "hit@10", "mrr@10"), strict=True))


@dataclass(frozen=True)
class PeersBench:
    """Each pair on one prepared log; `python` is an interpreter that has RecBole."""

    sequences: Path
    python: Path
    models: tuple[str, ...] = tuple(pair.peer for pair in PAIRS)
    work: tuple[str, ...] = (TRAINING, EVALUATION)
    steps: int = 10
    batch_targets: int = BATCH_TARGETS
    peer_batches: int = 2
    peer_batch: int = 128
    trained: tuple[Path, ...] = ()
    """Models of ours to evaluate; for a pair without one, a fresh one. RecBole does the same whatever its weights."""

    def __post_init__(self) -> None:
        unknown = [model for model in self.models if model not in {pair.peer for pair in PAIRS}]
        if unknown:
            raise SpecError(f"there is no peer {', '.join(unknown)}; there are {', '.join(p.peer for p in PAIRS)}")
        for work in self.work:
            if work not in (TRAINING, EVALUATION):
                raise SpecError(f"work '{work}' is not {TRAINING} or {EVALUATION}")
        for name in ("steps", "batch_targets", "peer_batches", "peer_batch"):
            if getattr(self, name) < 1:
                raise SpecError(f"{name} must be above 0, got {getattr(self, name)}")

    @property
    def title(self) -> str:
        return "The same work here and in RecBole 1.2.1"

    @property
    def pairs(self) -> list[Pair]:
        return [pair for pair in PAIRS if pair.peer in self.models]

    @cached_property
    def sides(self) -> "Sides":
        """Both sides, which live as long as the benchmark."""
        return Sides(self)

    def references(self, name: str) -> Mapping[str, str]:
        """Ours are compared with the same model and the same work there."""
        model, work = name.split(", ", 1)
        peer = next((pair.peer for pair in self.pairs if pair.ours == model), None)
        if peer is None:
            return {}
        there = TRAINING if work in WAYS else SAME_THERE[work]
        return {label: f"{label}: {peer}, {there}" for label in (FAIR, AS_IT_IS)}

    def contenders(self) -> Mapping[str, Contender]:
        found: dict[str, Contender] = {}
        for pair in self.pairs:
            if TRAINING in self.work:
                for way in WAYS:
                    found[f"{pair.ours}, {way}"] = partial(self.sides.train, pair, way)
                for label in (FAIR, AS_IT_IS):
                    found[f"{label}: {pair.peer}, {TRAINING}"] = partial(self.sides.train_peer, pair, label == AS_IT_IS)
            if EVALUATION in self.work:
                for part, there in SAME_THERE.items():
                    if pair.output == "repeatnet" and there == GIVEN:
                        continue  # its layer is not told from its encoder
                    found[f"{pair.ours}, {part}"] = partial(self.sides.evaluate, pair, part)
                    found[f"{FAIR}: {pair.peer}, {there}"] = partial(self.sides.evaluate_peer, pair, there)
        return found


class Sides:
    """Ours in this process; RecBole in its own, started when it is first needed."""

    def __init__(self, bench: PeersBench) -> None:
        check_runs(bench.python)
        self.bench = bench
        self.sequences = Sequences.open(bench.sequences)
        self.models: dict[Pair, Model] = {}
        self.trained = {f"{one.encoder} {one.output}": one.model for one in map(self._load, bench.trained)}
        self.rankings: dict[Pair, Ranking] = {}

    @cached_property
    def peer(self) -> Peer:
        return Peer(self.bench.python, self.sequences, dropout=DROPOUT, train_batch=self.bench.peer_batch)

    def model(self, pair: Pair) -> Model:
        if pair not in self.models:
            items = self.sequences.catalogue.size
            self.models[pair] = make_model(pair.encoder, pair.output, items, **paper_sizes(pair.encoder))
        return self.models[pair]

    def _load(self, folder: Path) -> Saved:
        """A model that was trained on this log."""
        saved = load_model(folder)
        if saved.training["fingerprint"] != self.sequences.fingerprint:
            raise SpecError(f"{folder} was not trained on {self.sequences.path}; train it there")
        return saved

    def train(self, pair: Pair, way: str) -> Spent:
        targets, overlap = WAYS[way]
        options = TrainingOptions(targets=targets, overlap=overlap, batch_targets=self.bench.batch_targets)
        return burst(self.model(pair), self.sequences, options, self.bench.steps)

    def train_peer(self, pair: Pair, anomaly: bool) -> Spent:
        return self.peer.spend("train", model=pair.peer, batches=self.bench.peer_batches, anomaly=anomaly)

    def evaluate(self, pair: Pair, part: str) -> Spent:
        if pair not in self.rankings:
            self.rankings[pair] = Ranking(self.trained.get(pair.ours) or self.model(pair), self.sequences)
        return self.rankings[pair].spend(part)

    def evaluate_peer(self, pair: Pair, part: str) -> Spent:
        return self.peer.spend("evaluate", model=pair.peer, given_states=part != WHOLE)

    def same_scores(self, pair: Pair) -> dict[str, tuple[float, float]]:
        """Each metric of the test targets by our ranking and by RecBole's, both from RecBole's scores.

        Its model trains a little before: a fresh one may rank no target among the first, and nothing would be compared.
        """
        self.peer.spend("train", model=pair.peer, batches=LEARNED_BATCHES)
        scores, targets, theirs = self.peer.scores(pair.peer)
        nothing = torch.empty(len(targets), 0, dtype=torch.long)
        rank = answer(Given(scores), Question(torch.from_numpy(targets), 10, nothing, nothing)).rank.numpy()
        return {ours: (float(metrics.gains(rank, ours).mean()), theirs[name]) for ours, name in THEIR_METRICS.items()}


class Given(NamedTuple):
    """Scores that somebody else made (T, V), to be ranked here."""

    table: np.ndarray

    @property
    def rows(self) -> int:
        return len(self.table)

    @property
    def catalogue(self) -> int:
        return int(self.table.shape[1])

    def tiles(self) -> Iterator[Tile]:
        """A few rows at a time."""
        for start in range(0, self.rows, 256):
            part = torch.from_numpy(np.array(self.table[start : start + 256], dtype=np.float32))
            logits = torch.nn.functional.pad(part, (0, 1), value=-torch.inf)
            none = torch.empty(len(part), 0, dtype=torch.long)
            yield Tile(slice(start, start + len(part)), logits, [], none)


def faster(found: Sequence[Measurement]) -> list[Measurement]:
    """Say how many times faster ours are, instead of which part of the time they take."""
    return [
        replace(one, ratios={}, more={f"× {label}": round(1 / ratio, 1) for label, ratio in one.ratios.items()})
        for one in found
    ]
