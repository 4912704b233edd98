"""The cost of a training step by the size of the catalogue, the length of histories and the threads."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch

from abaca.bench.measure import Contender, Spent
from abaca.bench.step import burst
from abaca.data.sequences import Targets
from abaca.errors import SpecError
from abaca.nn.build import make_model
from abaca.options import TrainingOptions

ITEMS = (4_000, 16_000, 50_000, 250_000, 1_000_000)
HISTORIES = (50, 100, 200, 400)
THREADS = (1, 2)

STEPS = 3
"""Steps that the random histories suffice for."""


@dataclass(frozen=True)
class Case:
    """One combination of sizes."""

    items: int
    history: int
    threads: int

    @property
    def name(self) -> str:
        return f"{self.items:,} items, history {self.history}, {self.threads} thread{'s' * (self.threads > 1)}"


@dataclass(frozen=True)
class GrowthBench:
    """Whole training steps of `rows` positions; one size grows at a time, the others stay fixed."""

    items: tuple[int, ...] = ITEMS
    histories: tuple[int, ...] = HISTORIES
    threads: tuple[int, ...] = THREADS
    rows: int = 1600
    encoder: str = "sasrec"
    output: str = "softmax+CPR:100+Mi"
    middle: int = 50_000

    def __post_init__(self) -> None:
        for name in ("items", "histories", "threads"):
            if not getattr(self, name) or min(getattr(self, name)) < 1:
                raise SpecError(f"{name} must be one or more sizes above 0, got {getattr(self, name)}")
        if self.middle < 1:
            raise SpecError(f"middle must be above 0, got {self.middle}")
        for history in self.histories:
            if self.rows < history:
                raise SpecError(f"rows ({self.rows}) must be at least as many as the longest history ({history})")

    @property
    def title(self) -> str:
        return f"A training step of {self.rows:,} positions as sizes grow: {self.encoder} {self.output}"

    @property
    def cases(self) -> list[Case]:
        """The combinations, each once."""
        history, threads = self.histories[0], self.threads[0]
        found = [Case(items, history, threads) for items in self.items]
        found += [Case(self.middle, history, threads) for history in self.histories]
        found += [Case(self.middle, history, threads) for threads in self.threads]
        return list(dict.fromkeys(found))

    def references(self, name: str) -> Mapping[str, str]:
        """Every size is compared with the same step at the middle catalogue."""
        middle = Case(self.middle, self.histories[0], self.threads[0])
        return {f"{self.middle:,} items": middle.name}

    def contenders(self) -> Mapping[str, Contender]:
        return {case.name: partial(self.run, case) for case in self.cases}

    def run(self, case: Case) -> Spent:
        """Two training steps of a new model on random histories; the first is a warm-up."""
        before = torch.get_num_threads()
        torch.set_num_threads(case.threads)
        sizes: dict[str, Any] = {"window": case.history} if self.encoder == "sasrec" else {}
        try:
            model = make_model(self.encoder, self.output, case.items, **sizes)
            options = TrainingOptions(targets=case.history, overlap=0, batch_targets=self.rows)
            drawn: Any = RandomSequences(case.items, case.history, STEPS * (self.rows // case.history))
            return burst(model, drawn, options, 1)
        finally:
            torch.set_num_threads(before)


class RandomSequences:
    """Random sequences for training: every user has one window of targets, some items are frequent."""

    def __init__(self, items: int, history: int, users: int) -> None:
        self.path, self.times, self.events, self.types = "random histories", None, None, None
        drawn = np.random.default_rng(0).random(users * (history + 1)) ** 3 * items
        self.items = drawn.astype(np.int32)
        self.offsets = np.arange(users + 1) * (history + 1)
        self.train_end = self.offsets[1:]
        self.valid = self.test = Targets(np.empty(0, np.int64), np.empty(0, np.int64))
