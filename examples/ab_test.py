"""An A/B test with two models: users are split by a hash of their id, and the hit rates of both groups are compared.

Run it with `python examples/ab_test.py`. It takes about half a minute. The test is replayed on a log: the next item of
each user is known, so a recommendation is a hit if it holds that item. A live test counts purchases instead.
"""

import hashlib
import math
import tempfile
from pathlib import Path

import abaca
from abaca.data.synthetic import synthetic_log

N = 5
"""Items that each user is shown."""


def group(user: object, experiment: str) -> str:
    """A or B: the same for a user at every visit and on every server, and another split for another experiment."""
    digest = hashlib.sha256(f"{experiment}:{user}".encode()).digest()
    return "AB"[digest[0] % 2]


def difference(hits: dict[str, list[bool]]) -> tuple[float, float]:
    """B's hit rate minus A's, and half of its 95 % interval: the groups are independent of each other."""
    rates = {name: sum(found) / len(found) for name, found in hits.items()}
    variance = sum(rates[name] * (1 - rates[name]) / len(hits[name]) for name in hits)
    return rates["B"] - rates["A"], 1.96 * math.sqrt(variance)


def main(folder: Path) -> None:
    with abaca.read_log(synthetic_log("mixed", users=600, items=100, length=20, seed=1)) as log:
        sequences = abaca.prepare(log, folder / "sequences")
    models = {
        "A": abaca.Recommender("gru4rec", "softmax", epochs=3, dim=16).fit(sequences),
        "B": abaca.Recommender("gru4rec", epochs=3, dim=16).fit(sequences),  # the default output layer
    }

    # The test targets are the purchases to come; a history is what a user bought before.
    users, ids = sequences.user_ids, sequences.catalogue.ids
    histories: dict[str, list[list[object]]] = {"A": [], "B": []}
    bought: dict[str, list[object]] = {"A": [], "B": []}
    for user, position in zip(*sequences.test, strict=True):
        side = group(users[user], "default against softmax")
        histories[side].append([ids[item] for item in sequences.history(user, position)])
        bought[side].append(ids[sequences.items[position]])

    # Each user is answered by the model of their group only, as in a live test.
    hits = {}
    for side, model in models.items():
        answers = model.recommend_many(histories[side], n=N)
        hits[side] = [item in answer.ids for item, answer in zip(bought[side], answers, strict=True)]
        rate = sum(hits[side]) / len(hits[side])
        print(f"{side}: {model.output}: {len(hits[side])} users, {rate:.1%} bought one of the {N} items")
    gain, half = difference(hits)
    print(f"B − A: {100 * gain:+.1f} points, 95 % interval {100 * (gain - half):+.1f} to {100 * (gain + half):+.1f}")

    # On a log both models can answer every user. Pairs of answers differ less than groups of users do, so that the
    # interval is narrower: such a comparison needs fewer users than a live test.
    paired = abaca.compare(
        *(models[side].evaluate(sequences, cutoffs=(N,)) for side in "BA"), metric=f"hr@{N}"
    ).difference
    print(f"paired: {100 * paired.value:+.1f} points, {100 * paired.low:+.1f} to {100 * paired.high:+.1f}")
    assert abs(len(hits["A"]) - len(hits["B"])) < 100
    assert paired.high - paired.low < 2 * half


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as made:
        main(Path(made))
