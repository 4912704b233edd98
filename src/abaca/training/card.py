"""The card of a model: what it was trained on, how, how good it is, and what it must not be used for.

A card follows from `model.json` and, where the model was evaluated, from `evaluation.json` beside it. Equal files give
equal cards: no clock, no name of a folder.
"""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from abaca.durable import write_text
from abaca.errors import ModelError
from abaca.shapes import loads

CARD = "card.md"
EVALUATION = "evaluation.json"
"""The figures of `abaca card MODEL LOG`."""

Document = Mapping[str, Any]

USE = """\
The model ranks the items of its catalogue by the probability that a user takes them next. It was
fitted to what people did, and tested on that. It does not know what is good for them.

It must not be used:

* for decisions about people, such as credit, work, housing, health or law
* on another catalogue, or long after the period above, without a new evaluation
* as proof that people want what they are shown: the figures are measured on a log, not by a trial
* without a limit on repeats where repetition narrows what people see, such as news, opinions and
  videos

The last point is the ethical note of the paper behind the output layers (Chang, Agarwal and
McCallum, WSDM 2024). A better model of repetition may intensify a filter bubble. A user who keeps
watching videos of one conspiracy theory is predicted to watch the next one. The prediction is
accurate, and it isolates the user further. How to break the bubble is an open problem.

These rules limit repeats, in Python, on the command line and over HTTP:

* `repeats="exclude"`: no item of the history is recommended
* `max_repeat_share=0.5`: at most this share of a list are repeats
* `repeats="only"` beside `repeats="exclude"`: two lists, so that repeats never displace new items

They limit items that the user has had. They do not make the new items diverse.
"""

GROUPS = ("all", "repeat", "new", "buy again", "discover")


def write_card(folder: Path, document: Document) -> str:
    """Write the card of a model directory whose `model.json` holds this; the text is returned."""
    text = card_text(document, read_evaluation(folder, document))
    write_text(folder / CARD, text, ModelError)
    return text


def weights_name(document: Document) -> str:
    """The file of weights, whose name changes with them."""
    return next(str(name) for name in document["files"] if name.startswith("weights-"))


def read_evaluation(folder: Path, document: Document) -> Document | None:
    """The figures of these very weights; None where they were not measured."""
    try:
        found = loads((folder / EVALUATION).read_text(encoding="utf-8"))
        return found if found["weights"] == weights_name(document) else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def card_text(document: Document, evaluation: Document | None) -> str:
    """The whole card, as Markdown."""
    training = document["training"]
    parts = [
        f"# Model card: {document['encoder']} {document['output']}",
        f"## Model\n\n{_model(document)}",
        f"## Data\n\n{_data(training)}",
        f"## Options\n\n{_options(document)}",
        f"## Figures\n\n{_not_measured(training) if evaluation is None else _figures(evaluation)}",
        f"## Use\n\n{USE.rstrip()}",
        f"## Version and checksums\n\n{_checksums(document)}",
    ]
    return "\n\n".join(parts) + "\n"


def _model(document: Document) -> str:
    training = document["training"]
    metric = training.get("options", {}).get("metric", "figure")
    best, epoch = training.get("best"), training.get("best_epoch")
    rows = {
        "encoder": document["encoder"],
        "output layer": document["output"],
        "evidence": ", ".join(document.get("evidence", {}).get("parts", ())),
        "items that it can recommend": document["catalogue"] - len(training.get("retired", ())),
        "epochs": None if epoch is None else epoch + 1,
        f"validation {metric} of the network": best,
        f"validation {metric} with evidence": training.get("with_evidence"),
        "trained on the held-out targets too": "yes" if training.get("everything") else "no",
        "updates": ", ".join(f"{one['how']} on {one['date'][:10]}" for one in training.get("updates", ())),
    }
    return _facts(rows)


def _data(training: Document) -> str:
    counts, period = training.get("counts", {}), training.get("period")
    left_out = {**counts.get("dropped", {}), **counts.get("bad_rows", {})}
    rows = {
        "rows of the log": counts.get("read"),
        "interactions": counts.get("interactions"),
        **{f"left out: {reason}": number for reason, number in left_out.items() if number},
        "users": counts.get("users"),
        "items": counts.get("items"),
        "period": " to ".join(period) if period else None,
        "training targets": counts.get("training_targets"),
        "validation and test targets": (
            f"{counts['valid_targets']:,} and {counts['test_targets']:,}" if "valid_targets" in counts else None
        ),
        "split": training.get("split", {}).get("rule"),
        "fingerprint": training.get("fingerprint"),
    }
    return _facts(rows) or "The data was not recorded: the model was saved by an earlier release."


def _options(document: Document) -> str:
    training = document["training"]
    prepared = {f"prepare: {name}": value for name, value in training.get("prepared", {}).items()}
    every = {**training.get("options", {}), **document["encoder_options"], **document.get("output_options", {})}
    return _facts({**({} if document["encoder"] == "rule" else every), **prepared}, digits=None) or "None."


def _not_measured(training: Document) -> str:
    if training.get("everything"):
        return (
            "The model was trained on everything, so no target is held out. The card of the model that it was "
            "refitted from has figures."
        )
    return "Not measured yet. `abaca card MODEL LOG` evaluates the model on its test targets and adds them."


def _figures(evaluation: Document) -> str:
    model, k = evaluation["model"], evaluation["cutoff"]
    count = {group: _group(model, group)["count"] for group in GROUPS}
    head = (f"NDCG@{k}", *(f"{group} ({count[group]:,})" for group in GROUPS))
    rows = [(row["name"], *(_mean(row, group, f"ndcg@{k}") for group in GROUPS)) for row in evaluation["baselines"]]
    rows.append((f"**{model['name']}**", *(_mean(model, group, f"ndcg@{k}") for group in GROUPS)))
    test, ndcg, hr = evaluation["against"], *(_group(model, "all")["metrics"][f"{name}@{k}"] for name in ("ndcg", "hr"))
    gain = test["difference"]
    words = (
        f"{model['targets']:,} {model['split']} targets, each ranked against all {model['catalogue']:,} items. *Buy "
        "again* ranks only items of the history, on repeats; *discover* only the others, on new targets."
    )
    rest = {
        f"NDCG@{k}, 95 % interval": _interval(ndcg),
        f"HR@{k}, 95 % interval": _interval(hr),
        f"above the best baseline, {test['b']}": f"{_interval(gain, '+')}, p = {test['p_value']:.4f}",
        "cold targets, which count as misses": model["cold"],
        **_lists(evaluation),
    }
    return f"{words}\n\n{_table(head, rows)}\n\n{_facts(rest)}"


def _lists(evaluation: Document) -> dict[str, Any]:
    """Repeats, calibration, coverage and popularity of the lists."""
    model, k, fit = evaluation["model"], str(evaluation["cutoff"]), evaluation["model"]["calibration"]
    shown, wanted = (evaluation["popularity"][name] for name in ("recommended", "targets"))
    return {
        "repeats among the targets": _percent(model["repeats_happen"]),
        f"repeats among the first {k} recommended": _percent(model["repeats_recommended"][k]),
        "predicted probability of a repeat, on average": _percent(fit["predicted"]) if fit else None,
        "calibration error of that probability": fit["ece"] if fit else None,
        f"coverage: share of the catalogue in anyone's first {k}": _percent(model["coverage"][k]),
        "mean popularity percentile of recommended items": _percent(shown),
        "mean popularity percentile of targets": _percent(wanted),
        "popularity bias: the difference": None if wanted is None else f"{100 * (shown - wanted):+.1f} points",
    }


def _percent(share: float | None) -> str | None:
    return None if share is None else f"{share:.1%}"


def _checksums(document: Document) -> str:
    version = document["training"].get("abaca", "not recorded")
    rows = [("model.json, its field `sha256`", "", document["sha256"])]
    rows += [(name, f"{facts['bytes']:,}", facts["sha256"]) for name, facts in sorted(document["files"].items())]
    return f"Trained with Abaca {version}; format {document['format']} of model directories.\n\n" + _table(
        ("file", "bytes", "SHA-256"), rows
    )


def _group(row: Document, group: str) -> Any:
    return row["groups"][group] if group in row["groups"] else row["shelves"][group]


def _mean(row: Document, group: str, metric: str) -> str:
    value = _group(row, group)["metrics"][metric]["value"]
    return "–" if value is None else f"{value:.4f}"


def _interval(estimate: Document, sign: str = "") -> str:
    value, low, high = (format(estimate[name], f"{sign}.4f") for name in ("value", "low", "high"))
    return f"{value} ({low} to {high})"


def _facts(rows: Mapping[str, Any], digits: int | None = 4) -> str:
    """A table of names and values; what is not known is left out."""
    return _table(("", ""), [(name, _text(value, digits)) for name, value in rows.items() if value not in (None, "")])


def _text(value: Any, digits: int | None) -> str:
    if isinstance(value, float):
        return f"{value:g}" if digits is None else f"{value:.{digits}f}"
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) and digits is not None else str(value)


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [list(row) for row in rows]
    if not lines:
        return ""
    marks = ["---", *("--:" if len(head) > 2 else "---" for _ in head[1:])]
    escaped = [[cell.replace("|", r"\|") for cell in line] for line in [head, marks, *lines]]
    return "\n".join(f"| {' | '.join(line)} |" for line in escaped)
