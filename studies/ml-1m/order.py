"""How much the order of ml-1m's ties matters, without any training: `python order.py LOG WORK`.

Prepares LOG (ml-1m as its file stands) with exact times and with times of single precision, as RecBole keeps them, and
ranks the held-out items of both by sequential rules, counted on the training part.
"""

import json
import sys
from pathlib import Path

import numpy as np

from abaca import PrepareOptions, read_log
from abaca.data.prepare import prepare
from abaca.data.sequences import Sequences
from abaca.evaluation.baselines import SequentialRules
from abaca.evaluation.evaluate import evaluate

HERE = Path(__file__).parent


def opened(log: str, work: Path, order: str) -> Sequences:
    if not (work / order).exists():
        with read_log(log) as source:
            prepare(source, work / order, options=PrepareOptions(time_precision=order))  # type: ignore[arg-type]
    return Sequences.open(work / order)


def main(log: str, work: str) -> None:
    both = {order: opened(log, Path(work), order) for order in ("exact", "single")}
    exact, single = (np.asarray(sequences.catalogue.ids)[sequences.items] for sequences in both.values())
    found: dict[str, object] = {"interactions at another place": round(float((exact != single).mean()), 4)}
    for split in ("valid", "test"):
        held_out = getattr(both["exact"], split).positions  # the same in both
        found[f"other {split} targets"] = round(float((exact[held_out] != single[held_out]).mean()), 4)
        for order, sequences in both.items():
            ranked = evaluate(SequentialRules().fit(sequences), sequences, split)
            found[f"NDCG@10 of {ranked.name}, {order}, {split}"] = round(ranked.mean("ndcg@10"), 4)
    text = json.dumps(found, indent=2)
    (HERE / "order.json").write_text(text + "\n", encoding="utf-8")
    print(text)


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(*sys.argv[1:])
