"""The figures of the demo's report, from results to SVG."""

from collections.abc import Mapping, Sequence

from abaca.evaluation.evaluate import Evaluation, Group
from abaca.evaluation.metrics import Estimate
from abaca.study.draw import SOFT, Look, Sheet, error_bars
from abaca.study.statistics import RepeatCurves
from abaca.types import Record

PANEL = (6.2, 3.5)


def repeat_figure(curves: RepeatCurves) -> str:
    """The probability of a repeat by the length of the history, with and without an earlier repeat."""
    words = "Probability that the next item is a repeat, by the number of items in the history"
    sheet = Sheet("repeats", words, panel=PANEL)
    looks = {"had a repeat before": Look("blue", "o", "-"), "no repeat so far": Look("red", "s", "--")}
    for (name, shown), points in zip(looks.items(), (curves.with_repeat, curves.without_repeat), strict=True):
        if points:
            sheet.line(sheet.panels[0], name, [(p.length, 100 * p.probability) for p in points], shown)
    sheet.panels[0].set_xscale("log")
    sheet.panels[0].xaxis.set_major_formatter("{x:g}")
    sheet.panels[0].set_ylim(bottom=0)
    sheet.title(sheet.panels[0], "", "items in the history", "next item is a repeat (%)")
    sheet.legend()
    return sheet.svg()


def trade_off_figure(results: Sequence[Evaluation], metric: str = "ndcg@10") -> str:
    """Each ranker's metric on repeats against its metric on new items, with 95 % intervals."""
    return _trade_off(results, metric, "").svg()


def readme_figure(results: Sequence[Evaluation], subtitle: str, metric: str = "ndcg@10") -> str:
    """The trade-off as a file of its own, with a title and a line that says what was measured."""
    return _trade_off(results, metric, f"When to repeat, when to explore\n{subtitle}").svg(alone=True)


def calibration_figure(results: Sequence[Evaluation]) -> str:
    """How often a repeat came where a model said how likely it was; the dotted line is a perfect prediction."""
    sheet = Sheet("calibration", "Observed share of repeats by the predicted probability of a repeat", panel=PANEL)
    sheet.panels[0].plot([0, 100], [0, 100], color=SOFT, linewidth=0.8, linestyle=":")
    for result in results:
        found = result.summary.calibration
        if found is not None:
            sheet.line(sheet.panels[0], result.name, [(100 * b.predicted, 100 * b.observed) for b in found.bins])
    sheet.title(sheet.panels[0], "", "predicted probability of a repeat (%)", "repeats that happened (%)")
    sheet.legend()
    return sheet.svg()


def learning_figure(records: Mapping[str, Sequence[Record]], metric: str = "ndcg@10") -> str:
    """The validation figure after each epoch."""
    sheet = Sheet("learning", f"Validation {metric.upper()} after each epoch", panel=PANEL)
    for name, run in records.items():
        sheet.line(sheet.panels[0], name, [(record["epoch"] + 1, record[metric]) for record in run])
    sheet.panels[0].xaxis.get_major_locator().set_params(integer=True)
    sheet.panels[0].set_ylim(bottom=0)
    sheet.title(sheet.panels[0], "", "epochs trained", f"validation {metric.upper()}")
    sheet.legend()
    return sheet.svg()


def _trade_off(results: Sequence[Evaluation], metric: str, title: str) -> Sheet:
    words = f"{metric.upper()} on repeats and on new items, one mark per ranker, lines are 95 % intervals"
    sheet = Sheet("trade-off", words, panel=(6.2, 4.0))
    panel = sheet.panels[0]
    for result in results:
        repeat, new = (_estimate(result, metric, group) for group in ("repeat", "new"))
        across, up = (error_bars(e) for e in (repeat, new))
        panel.errorbar(repeat.value, new.value, xerr=across, yerr=up, color=SOFT, linewidth=0.7, alpha=0.6, zorder=1)
        sheet.dot(panel, result.name, (repeat.value, new.value))
    panel.set_xlim(left=0)
    panel.set_ylim(bottom=0)
    _equal_line(sheet, max(results, key=lambda result: result.mean(metric)), metric)
    sheet.title(panel, title, f"{metric.upper()} on repeats", f"{metric.upper()} on new items")
    sheet.legend(3)
    return sheet


def _equal_line(sheet: Sheet, best: Evaluation, metric: str) -> None:
    """Where a ranker would be as good over all targets as the best one."""
    share, overall = float(best.repeat.mean()), best.mean(metric)
    if not 0 < share < 1 or overall == 0:
        return
    panel = sheet.panels[0]
    (_, right), (_, top) = panel.get_xlim(), panel.get_ylim()
    panel.plot([0, overall / share], [overall / (1 - share), 0], color=SOFT, linewidth=0.9, linestyle=":", zorder=1)
    panel.set_xlim(0, right)
    panel.set_ylim(0, top)
    y = min(top, overall / (1 - share))
    at = (overall - (1 - share) * y) / share, y
    panel.annotate(
        f"{overall:.4f} over all targets", at, (8, -8), textcoords="offset points", color=SOFT, fontsize=8, va="top"
    )


def _estimate(result: Evaluation, metric: str, group: Group) -> Estimate:
    """A metric over a group; 0 where the group has no targets."""
    found = result.summary.groups[group].metrics[metric]
    return found if found.value == found.value else Estimate(0.0, 0.0, 0.0)
