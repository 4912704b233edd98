"""What a training step costs at a large catalogue, part by part, and the memory of the whole process.

    python benchmarks/million.py --items 1000000 --windows 32 --json million.json

The model is real (GRU4Rec with `softmax+CPR:100+Mi`), the items are random. The first step allocates the optimizer's
state and does not count.
"""

import argparse
import json
import statistics
import sys
import time

import torch

from abaca.nn import ops
from abaca.nn.build import make_model

PARTS = ("loss", "backward", "optimizer", "average")
LENGTH = 50
"""Positions of a window; each is trained."""


def peak_bytes() -> int:
    """Peak memory of this process, on Linux."""
    with open("/proc/self/status") as lines:
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM"))


def run(items: int, windows: int, steps: int, output: str) -> dict[str, object]:
    """CPU seconds of each part in every step but the first, and peak memory."""
    torch.manual_seed(0)
    model = make_model("gru4rec", output, items, hidden=64, dropout=0.0)
    weights = list(model.parameters())
    average = [weight.detach().clone() for weight in weights]
    optimizer = torch.optim.AdamW(weights, fused=True)
    batch = (torch.rand(windows, LENGTH) ** 3 * items).long()
    positions, targets = torch.arange(LENGTH).repeat(windows, 1), torch.randint(items, (windows, LENGTH))
    spent: dict[str, list[float]] = {part: [] for part in PARTS}
    for step in range(steps + 1):
        marks = [time.process_time()]
        optimizer.zero_grad()
        loss = model.loss(batch, positions, targets)
        marks.append(time.process_time())
        (loss / targets.numel()).backward()  # type: ignore[no-untyped-call]
        marks.append(time.process_time())
        optimizer.step()
        marks.append(time.process_time())
        with torch.no_grad():
            torch._foreach_lerp_(average, weights, 0.001)
        marks.append(time.process_time())
        for part, begin, end in zip(PARTS, marks, marks[1:], strict=False):
            if step:
                spent[part].append(end - begin)
    return {
        "items": items,
        "rows": targets.numel(),
        "output": output,
        "threads": torch.get_num_threads(),
        "native": ops.instructions(),
        "torch": torch.__version__,
        "cpu_seconds": spent,
        "median_cpu_seconds": {part: statistics.median(times) for part, times in spent.items()},
        "peak_bytes": peak_bytes() if sys.platform == "linux" else None,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--items", type=int, default=1_000_000)
    parser.add_argument("--windows", type=int, default=32)
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--output", default="softmax+CPR:100+Mi")
    parser.add_argument("--json", help="write the results to this file")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    text = json.dumps(run(arguments.items, arguments.windows, arguments.steps, arguments.output), indent=1)
    if arguments.json:
        with open(arguments.json, "w") as file:
            file.write(text + "\n")
    print(text)


if __name__ == "__main__":
    main()
