"""The demo's report: one HTML page that loads nothing, for light and dark, wide and narrow screens."""

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape

from abaca.data.sequences import Sequences
from abaca.evaluation.evaluate import GROUPS, Comparison, Evaluation, Group, Shelf
from abaca.evaluation.metrics import Estimate
from abaca.study.cases import Case
from abaca.study.draw import SOFT, Figure
from abaca.study.groceries import Source
from abaca.study.page import bullets, facts, figure, page, paragraph, section
from abaca.study.repetition import repetition
from abaca.study.repetition_figure import repetition_figure
from abaca.study.report import KEY, case_html
from abaca.study.table import Cell, Line, Table, bold_best, plain, to_html

METRIC = "ndcg@10"
GROUP_WORDS: dict[Group | Shelf, str] = {
    "all": "over all targets", "repeat": "on repeats", "new": "on new items",
    "buy again": "on the shelf “buy again”", "discover": "on the shelf “discover”",
}  # fmt: skip


@dataclass(frozen=True)
class Findings:
    """Everything that the report shows."""

    source: Source
    sequences: Sequences
    results: Sequence[Evaluation]  # baselines first, models last, the main one at the end
    comparisons: Sequence[Comparison]
    settings: Mapping[str, str]
    cases: Sequence[Case]
    choice: str
    """How the examples were chosen."""


def report(found: Findings) -> str:
    """The page."""
    when = repetition_figure({found.source.title: repetition(found.sequences)}).svg()
    share = found.results[0].summary.repeats_happen
    sections = {
        "The data": _data(found),
        "When do people repeat?": figure(
            when,
            "The probability of a repeat by the length of the sequence. It is far higher after an earlier repeat: no "
            "fixed rule, such as “never recommend an item again”, fits both.",
        ),
        "The results": _results(found),
        "Good at repeats, good at new items": figure(
            trade_off(found.results).svg(),
            "Each dot is a ranker; thin lines are 95 % intervals. Rankers that only repeat lie at the bottom, one that "
            "never repeats at the left. On the dotted line NDCG over all targets equals that of the best ranker.",
        ),
        "Is the probability of a repeat right?": _calibration(found),
        "Examples": paragraph(f"{found.choice} {KEY}", "note")
        + "".join(case_html(case, found.source.who) for case in found.cases),
        "Training": facts(found.settings),
        "Next": paragraph("The models are beside this page. In its folder:")
        + f"<pre>{escape(chr(10).join(next_commands('default', found.sequences)))}</pre>",
    }
    lead = f"{share:.0%} of the next items are repeats, the rest is new. A recommender has to predict which is due."
    head = "<header><p class='over'>Abaca demo</p><h1>When to repeat, when to explore</h1>"
    head += paragraph(lead, "lead") + paragraph(verdict(found.comparisons[0]) + ".", "verdict") + "</header>"
    body = "".join(section(title, text) for title, text in sections.items())
    return page("Abaca demo: when to repeat, when to explore", head + body)


def verdict(test: Comparison) -> str:
    """A paired test in a sentence."""
    gain = test.difference
    outcome = "cannot be distinguished from"
    if gain.low > 0 or gain.high < 0:
        outcome = f"is {'ahead of' if gain.value > 0 else 'behind'}"
    p = "< 0.001" if test.p_value < 0.001 else f"= {test.p_value:.3f}"
    return (
        f"{test.a} {outcome} {test.b} {GROUP_WORDS[test.group]}: {test.metric.upper()} {gain.value:+.4f} "
        f"(95\u00a0% interval {gain.low:+.4f} to {gain.high:+.4f}, p {p})"
    )


def next_commands(model: str, sequences: Sequences) -> list[str]:
    """Commands to try with a trained model; the ids are the most popular."""
    ids = " ".join(shlex.quote(str(id)) for id in sequences.catalogue.ids[:3])
    return [f"abaca recommend {model} {ids}", f"abaca recommend {model} {ids} --repeats exclude"]


def trade_off(results: Sequence[Evaluation], title: str = "") -> Figure:
    """Each ranker's metric on repeats against its metric on new items, with 95 % intervals."""
    words = f"{METRIC.upper()} on repeats and on new items, one mark per ranker, lines are 95 % intervals"
    drawn = Figure("trade-off", words, panel=(6.2, 4.0))
    (panel,) = drawn.panels
    for result in results:
        drawn.dot_with_intervals(panel, result.name, (_estimate(result, "repeat"), _estimate(result, "new")))
    panel.set_xlim(left=0)
    panel.set_ylim(bottom=0)
    _equal_line(drawn, max(results, key=lambda result: result.mean(METRIC)))
    drawn.title(panel, title, f"{METRIC.upper()} on repeats", f"{METRIC.upper()} on new items")
    drawn.legend(3)
    return drawn


def _equal_line(drawn: Figure, best: Evaluation) -> None:
    """The line on which a ranker is as good over all targets as the best one."""
    share, overall = float(best.repeat.mean()), best.mean(METRIC)
    if not 0 < share < 1 or overall == 0:
        return
    (panel,) = drawn.panels
    (_, right), (_, top) = panel.get_xlim(), panel.get_ylim()
    panel.plot([0, overall / share], [overall / (1 - share), 0], color=SOFT, linewidth=0.9, linestyle=":", zorder=1)
    panel.set_xlim(0, right)
    panel.set_ylim(0, top)
    y = min(top, overall / (1 - share))
    at = (overall - (1 - share) * y) / share, y
    words = f"{overall:.4f} over all targets"
    panel.annotate(words, at, (8, -8), textcoords="offset points", color=SOFT, fontsize=8, va="top")


def _estimate(result: Evaluation, group: Group) -> Estimate:
    """A metric over a group; 0 where the group has no targets."""
    found = result.summary.groups[group].metrics[METRIC]
    return found if found.value == found.value else Estimate(0.0, 0.0, 0.0)


def _data(found: Findings) -> str:
    counts, source = found.sequences.manifest["counts"], found.source
    text = paragraph(source.title, "strong") + "".join(map(paragraph, source.paragraphs))
    text += paragraph(source.citation, "note") if source.citation else ""
    numbers = {
        f"{source.who}s": counts["users"],
        "items": found.sequences.catalogue.size,
        "training targets": counts["training_targets"],
        "validation targets": counts["valid_targets"],
        "test targets": counts["test_targets"],
    }
    tiles = "".join(f"<div><b>{value:,}</b><span>{escape(name)}</span></div>" for name, value in numbers.items())
    rule = found.sequences.manifest["split"]["rule"]
    return text + f"<div class='tiles'>{tiles}</div>" + paragraph(f"The split: {rule}.", "note")


def _results(found: Findings) -> str:
    first = found.results[0]
    heads = tuple((group, (f"{int(first.mask(group).sum()):,} targets",)) for group in GROUPS)
    caption = (
        f"Test {METRIC.upper()}: every target is ranked against all {first.catalogue:,} items; ties count against it. "
        f"Last: the share of repeats in the first ten; {first.summary.repeats_happen:.0%} of the targets are. "
        f"Cold targets, which no ranker can list: {first.summary.cold:,}."
    )
    lines = bold_best([_line(result) for result in found.results], skip=lambda place: place == len(GROUPS))
    table = Table("results", caption, (*heads, ("repeats", ("in the first 10",))), lines)
    paired = f"Paired tests, {found.source.who} by {found.source.who}:"
    return to_html(table) + paragraph(paired) + bullets([verdict(test) for test in found.comparisons])


def _line(result: Evaluation) -> Line:
    values = [result.summary.groups[group].metrics[METRIC].value for group in GROUPS]
    cells = [plain(None if value != value else value, 4) for value in values]
    share = result.summary.repeats_recommended[max(result.cutoffs)]
    return Line("rankers", result.name, (*cells, Cell(share, f"{share:.0%}")))


def _calibration(found: Findings) -> str:
    drawn = Figure("calibration", "Observed share of repeats by predicted probability", panel=(6.2, 3.5))
    errors = []
    for result in found.results:
        calibration = result.summary.calibration
        if calibration is not None and result.name.startswith("softmax") and "nodup" not in result.name:
            drawn.calibration(drawn.panels[0], result.name, [(b.predicted, b.observed) for b in calibration.bins])
            errors.append(f"{result.name} {calibration.ece:.3f}, Brier score {calibration.brier:.3f}")
    drawn.titles([""], "predicted probability of a repeat (%)", "observed repeats (%)")
    drawn.legend()
    words = "The dotted line is a perfect prediction. Calibration error (lower is better): " + "; ".join(errors)
    return figure(drawn.svg(), words + ".")
