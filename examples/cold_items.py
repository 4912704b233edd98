"""Recommend items that nobody has taken yet, by their features.

    python examples/cold_items.py

A shop sells courses in turn: a starter, a main dish, a dessert. A model learns this from the column `course` of the
item table. Items that are held out of training, and a new one, are then recommended at the right place.
"""

import numpy as np
import pyarrow as pa

from abaca import Recommender
from abaca.evaluation.cold import evaluate_cold

COURSES, DISHES, GUESTS, MEALS = ["starter", "main dish", "dessert"], 20, 150, 4
rng = np.random.default_rng(0)


def name(course: int, dish: int) -> str:
    """The id of a dish."""
    return f"{COURSES[course]} {dish}"


visits = [(guest, step % 3, int(rng.integers(DISHES))) for guest in range(GUESTS) for step in range(3 * MEALS)]
log = pa.table(
    {
        "user": [f"guest {guest}" for guest, _, _ in visits],
        "item": [name(course, dish) for _, course, dish in visits],
        "time": list(range(len(visits))),
    }
)
dishes = [(course, dish) for course in range(3) for dish in range(DISHES)]
menu = pa.table({"item": [name(*dish) for dish in dishes], "course": [COURSES[course] for course, _ in dishes]})

options = {"output": "softmax", "epochs": 4, "dim": 16, "lr": 0.01, "warmup": 10, "average": 0.0, "options": "fixed"}
rec = Recommender("sasrec", features="course", hold_out_items=0.2, **options).fit(log, items=menu, progress=False)

assert rec.sequences is not None
found = evaluate_cold(rec.ranker(), rec.sequences, cutoffs=(5,)).summarise()
print(f"{found.targets} cold targets among {found.items} cold items:")
print(f"  hr@5 {found.cold['hr@5'].value:.3f}, at random {found.random['hr@5']:.3f}")
assert found.cold["hr@5"].value > found.random["hr@5"]

rec.add_items([{"id": "tiramisu", "course": "dessert"}, {"id": "soup of the day", "course": "starter"}])
history = [name(0, 3), name(1, 7)]
best = rec.recommend(history, 1, candidates=["tiramisu", "soup of the day"]).ids[0]
print(f"after {' and '.join(history)}: {best}")
assert best == "tiramisu"
