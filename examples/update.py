"""Take the events of a new week into a model: counted in a second, or trained on; a new item, and one that is gone.

    python examples/update.py

A shop knows its log up to last week. This week a new item, pesto, is bought after pasta. The model takes the new rows
without being trained from the start. The copy of the log that it keeps (`updatable=True`) makes the counts exactly
those of the whole log.
"""

import numpy as np
import pyarrow as pa

from abaca import Recommender
from abaca.training.drift import notes

DAY, START = 86_400, 1_700_000_000
USUAL = {"pasta": "tomatoes", "soap": "sponges"} | {f"dish {number}": f"sauce {number}" for number in range(28)}
rng = np.random.default_rng(0)


def day(number: int, **other: str) -> pa.Table:
    """The purchases of one day: everyone buys something, and then mostly what usually follows it."""
    follows, rows = USUAL | other, []
    for customer in range(150):
        first = str(rng.choice(list(USUAL)))
        then = follows[first] if rng.random() < 0.8 else str(rng.choice(list(USUAL)))
        time = START + number * DAY + 60 * customer
        rows += [(f"c{customer}", first, time), (f"c{customer}", then, time + 1)]
    return pa.table(dict(zip(("user", "item", "time"), map(list, zip(*rows, strict=True)), strict=True)))


def after_pasta() -> list[str]:
    """What is recommended after pasta, repeats aside."""
    return rec.recommend(["pasta"], n=3, repeats="exclude").ids


# 1. The model of last week; it keeps a copy of its log.
log = pa.concat_tables([day(number) for number in range(12)])
options = {"epochs": 3, "dim": 16, "window": 20, "options": "fixed", "seed": 0}
rec = Recommender("gru4rec", "softmax+CP+habits+followers", **options).fit(log, updatable=True, progress=False)
print("before, after pasta:", after_pasta())

# 2. This week: counts. Nothing is trained; the new item enters the catalogue and follows pasta.
week = pa.concat_tables([day(number, pasta="pesto") for number in range(12, 20)])
rec.update(week)
entry = rec.saved.training["updates"][-1]
print(
    f"counted {entry['rows']} rows, {entry['items']} new item; after pasta:",
    after_pasta(),
)
assert "pesto" in after_pasta()
for note in notes(entry["drift"]):
    print("the log has drifted:", note)

# 3. The next day: the weights too. A pass reads all new rows and half of the old ones; soap is no longer sold.
rec.update(day(20, pasta="pesto"), train=True, replay=0.5, retire=["soap"], progress=False)
print("trained on, after pasta:", after_pasta())
assert "soap" not in rec.recommend(["soap", "pasta"], n=9).ids
assert [update["how"] for update in rec.saved.training["updates"]] == ["counts", "weights"]
