"""A training step of HSTU beside one of SASRec of the same depth and width, per position of windows of equal length.

    python benchmarks/encoders.py --to benchmarks/results/encoders

HSTU runs with native attention and with that of plain torch. All contenders take turns. "Targets" are positions:
the loss reads every position of a window. Peak memory is that of a process which trains one contender alone.
"""

import argparse
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from unittest.mock import patch

import torch
from torch import Tensor

from abaca.bench.measure import Contender, Spent, measure, timed
from abaca.bench.report import markdown, write
from abaca.histories import Windows
from abaca.memory import keep_memory
from abaca.nn.build import make_model
from abaca.nn.encoders import hstu
from abaca.nn.ops.attention import plain
from abaca.nn.ops.buckets import bucket

DAY = 86_400


@dataclass(frozen=True)
class EncoderBench:
    """Steps of the encoders at several depths."""

    depths: tuple[int, ...] = (2, 8)
    length: int = 200
    windows: int = 3
    items: int = 3706
    steps: int = 6

    @property
    def title(self) -> str:
        return f"Training step of {self.windows} windows of {self.length} items, d = 64, {self.items:,} items"

    def references(self, name: str) -> Mapping[str, str]:
        """Contenders are compared at equal depth."""
        depth = name.split(" ")[-1]
        return {"sasrec": f"sasrec native {depth}", "plain": f"hstu plain {depth}"}

    def contenders(self) -> Mapping[str, Contender]:
        torch.manual_seed(0)
        items = torch.randint(self.items, (self.windows, self.length + 1))
        gaps = (DAY ** torch.rand(self.windows, self.length + 1, dtype=torch.float64)).round()
        times, places = gaps.cumsum(1), torch.arange(self.length).expand(self.windows, -1)
        windows: Windows[Tensor] = Windows(items[:, :-1], places, times[:, :-1], times[:, 1:])
        return {
            f"{encoder} {attention} {depth}": partial(self._run, encoder, attention, depth, windows, items[:, 1:])
            for depth in self.depths
            for encoder, attention in (("sasrec", "native"), ("hstu", "native"), ("hstu", "plain"))
        }

    def _run(self, encoder: str, attention: str, depth: int, windows: Windows[Tensor], targets: Tensor) -> Spent:
        size = {"window": self.length} if encoder == "sasrec" else {}
        model = make_model(encoder, "softmax", self.items, blocks=depth, **size).train()
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)

        def step() -> None:
            optimizer.zero_grad()
            model.loss(windows, targets).backward()  # type: ignore[no-untyped-call]
            optimizer.step()

        with plain_attention() if attention == "plain" else nullcontext():
            step()  # makes the optimizer's state
            return timed(lambda: [step() for _ in range(self.steps)], self.steps * targets.numel())


@contextmanager
def plain_attention() -> Iterator[None]:
    """HSTU's attention and its buckets in torch; the other operations stay native."""
    between = lambda times: bucket(times.unsqueeze(2) - times.unsqueeze(1))  # noqa: E731
    with patch.object(hstu, "attend", plain), patch.object(hstu, "buckets_between", between):
        yield


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repetitions", type=int, default=15)
    parser.add_argument("--to", type=Path)
    given = parser.parse_args()
    keep_memory()
    torch.set_num_threads(1)
    bench = EncoderBench()
    found = measure(bench, (), given.repetitions, memory=True, progress=lambda done, total: None)
    print(markdown(bench.title, found), end="")
    if given.to is not None:
        write(given.to, "encoders", bench, found)


if __name__ == "__main__":
    main()
