"""Draw docs/images/two-people.svg: two households of the demo and what one model recommends to each.

make demo && .venv/bin/python docs/figures/two_people.py demo/ docs/images/two-people.svg
"""

import sys
from html import escape
from pathlib import Path
from typing import NamedTuple

import abaca

HOUSEHOLDS = {41: "A household that repeats", 811: "A household that explores"}
NAMES = {
    "Apples granny smith": "Granny Smith apples",
    "Eggs - medium": "Eggs",
    "Eggs - x-large": "Eggs",
    "Fem. hygn.napkins": "Hygiene products",
    "Fluid milk white only": "Milk",
    "Frozen single-serve premium entrees/dinners/n": "Frozen meat dinners",
    "Mainstream white bread": "White bread",
    "Pizza/premium": "Pizza",
    "Potatoes russet": "Potatoes",
    "Ready-to-serve soup: chunky/homestyle et": "Soup",
    "Salad spinach": "Spinach",
    "Semi-solid salad dressing may": "Mayonnaise",
    "Soft drink 2 liter bottle carbonated included": "Soft drinks, 2 l",
    "Soft drink single serving bottle carbonated": "Soft drink",
    "Soft drinks 12/18&15pack can car": "Soft drinks",
    "Yogurt multi-packs": "Yogurt",
}
"""Names of the product table, made short enough to read."""

WIDTH, HEIGHT, PANEL, TOP, ROW = 860, 344, 405, 34, 28
REPEAT, NEW = "#00796b", "#e08a1e"


class Household(NamedTuple):
    """A household's latest purchases, the answer to them, and the purchase that followed."""

    title: str
    latest: list[str]
    answer: abaca.Recommendations
    following: str
    is_repeat: bool


def household(rec: abaca.Recommender, sequences: abaca.Sequences, user_id: int, title: str) -> Household:
    """The household's history before its first test target, and the five best items after it."""
    user = list(sequences.user_ids).index(user_id)
    position = min(sequences.test.positions[sequences.test.users == user])
    catalogue = sequences.catalogue
    history = [catalogue.ids[item] for item in sequences.history(user, position).tolist()]
    following = catalogue.ids[sequences.items[position]]
    return Household(title, history[-6:], rec.recommend(history, n=5), following, following in history)


def short(name: str) -> str:
    """A product's name without its department."""
    head = name.split(" (")[0]
    return NAMES.get(head, head)


def text(x: float, y: float, words: str, look: str = "") -> str:
    return f'<text x="{x:g}" y="{y:g}" {look}>{escape(words)}</text>'


def panel(left: float, one: Household) -> list[str]:
    """One household: its latest purchases, then bars for what is recommended."""
    parts = [f'<rect x="{left}" y="12" width="{PANEL}" height="{HEIGHT - 52}" rx="10" fill="#fff" stroke="#d5dbdb"/>']
    x, y = left + 18, TOP + 6
    parts.append(text(x, y, one.title, 'class="head"'))
    latest = [short(name) for name in one.latest]
    parts.append(text(x, y + 24, "bought: … " + ", ".join(latest[:3]) + ",", 'class="soft"'))
    parts.append(text(x, y + 42, ", ".join(latest[3:]), 'class="soft"'))
    parts.append(text(x, y + 74, f"next is a repeat: {one.answer.repeat_probability:.0%}", 'class="bold"'))
    largest = max(item.probability or 0 for item in one.answer)
    for place, item in enumerate(one.answer):
        line = y + 102 + place * ROW
        colour = REPEAT if item.repeat else NEW
        width = 112 * (item.probability or 0) / largest
        parts.append(text(x, line, short(item.name)))
        parts.append(f'<rect x="{x + 210}" y="{line - 12}" width="{width:.1f}" height="14" rx="2" fill="{colour}"/>')
        parts.append(text(x + 216 + width, line, f"{item.probability:.1%}", 'class="soft"'))
    kind = "again" if one.is_repeat else "for the first time"
    parts.append(text(x, y + 108 + 5 * ROW, f"bought next: {short(one.following)}, {kind}", 'class="bold"'))
    return parts


def drawing(households: list[Household]) -> str:
    """The whole figure as SVG, on a light ground of its own."""
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}">',
        "<style>text{font:14px system-ui,'DejaVu Sans',sans-serif;fill:#1d2b2b}.head{font-weight:600;font-size:17px}"
        ".bold{font-weight:600}.soft{fill:#5b6b6b;font-size:13px}</style>",
        f'<rect width="{WIDTH}" height="{HEIGHT}" rx="14" fill="#f4f7f7"/>',
    ]
    for place, one in enumerate(households):
        parts += panel(16 + place * (PANEL + 18), one)
    bottom = HEIGHT - 16
    for left, colour, words in ((250, REPEAT, "recommended again"), (450, NEW, "recommended as new")):
        parts.append(f'<rect x="{left}" y="{bottom - 12}" width="14" height="14" rx="2" fill="{colour}"/>')
        parts.append(text(left + 22, bottom, words, 'class="soft"'))
    return "\n".join([*parts, "</svg>\n"])


if __name__ == "__main__":
    demo, to = Path(sys.argv[1]), Path(sys.argv[2])
    model, prepared = abaca.load(demo / "default"), abaca.Sequences.open(demo / "sequences")
    both = [household(model, prepared, user, title) for user, title in HOUSEHOLDS.items()]
    to.write_text(drawing(both), encoding="utf-8")
