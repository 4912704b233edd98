"""Rules of a shop: stock, cool-down, caps and floors by department, boosts, diversity, and what each rule did.

    python examples/rules.py

One model answers under several policies. Rules never change a probability; they restrict what may be recommended and
how a list is composed. The same rules are options of `abaca recommend`, columns of a file of histories, and fields of a
request to the server.
"""

import numpy as np
import pyarrow as pa

from abaca import Policy, Recommender

DEPARTMENTS = {
    "dairy": ["milk", "butter", "cheese", "yoghurt"],
    "bakery": ["bread", "rolls", "cake"],
    "drinks": ["tea", "coffee", "juice", "water"],
    "home": ["soap", "candles", "sponges"],
}
ITEMS = [item for items in DEPARTMENTS.values() for item in items]
DEPARTMENT = {item: name for name, items in DEPARTMENTS.items() for item in items}
DAY, START = 86_400, 1_700_000_000
rng = np.random.default_rng(0)

# Everyone has a few favourites, which they buy again and again.
rows = []
for customer in range(120):
    favourites = rng.choice(ITEMS, 4, replace=False)
    for visit in range(12):
        item = rng.choice(favourites if rng.random() < 0.7 else ITEMS)
        rows.append((f"c{customer}", str(item), START + visit * DAY + customer))
log = pa.table(dict(zip(("user", "item", "time"), map(list, zip(*rows, strict=True)), strict=True)))
table = pa.table({"item": ITEMS, "department": [DEPARTMENT[item] for item in ITEMS]})
options = {"epochs": 3, "dim": 16, "window": 20, "options": "fixed", "seed": 0}
rec = Recommender("gru4rec", "softmax+CP+habits+followers", **options).fit(log, items=table, progress=False)

history = ["milk", "bread", "milk", "tea", "bread", "milk"]
times = [START + number * DAY for number in range(len(history))]
now = times[-1] + DAY


def show(what: str, policy: Policy) -> list[str]:
    """Print the list under a policy, and what its rules did."""
    (answer,) = rec.recommend_many([history], policy=policy, times=[times], now=[now])
    print(f"{what}: {', '.join(answer.ids)}")
    for effect in answer.rules:
        print(f"    {effect}")
    return answer.ids


show("as learned", Policy(n=5))

found = show("bought yesterday: not again so soon", Policy(n=5, cooldown="36 hours"))
assert "milk" not in found

found = show(
    "at most two repeats, at least one thing for the home", Policy(n=5, max_repeats=2, at_least=["department=home=1"])
)
assert sum(item in history for item in found) <= 2
assert any(DEPARTMENT[item] == "home" for item in found)

found = show("one of each department", Policy(n=4, at_most={"department": 1}))
assert len({DEPARTMENT[item] for item in found}) == 4

stock = [item for item in ITEMS if item not in ("milk", "rolls")]
found = show(
    "in stock, juice promoted, explained", Policy(n=5, candidates=stock, boost={"juice": 5}, explain_rules=True)
)
assert "milk" not in found
assert found[0] == "juice"

show("less alike", Policy(n=5, diversity=0.5))

# Each history may have its own policy: a shelf of habits and a shelf of discoveries, in one call.
again, discover = rec.recommend_many(
    [history, history], policy=[Policy(n=3, repeats="only"), Policy(n=3, repeats="exclude")]
)
print(f"buy again: {', '.join(again.ids)}; discover: {', '.join(discover.ids)}")
assert set(again.ids) <= set(history)
assert not set(discover.ids) & set(history)
