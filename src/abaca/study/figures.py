"""The figures of the report, from results to SVG."""

from collections.abc import Mapping, Sequence

from abaca.evaluation import Evaluation, Group
from abaca.metrics import Estimate
from abaca.study.plot import STYLE, XY, Plot, linear, logarithmic
from abaca.study.statistics import Point, RepeatCurves
from abaca.types import Record


def colour(ranker: str) -> str:
    """The colour of a ranker, the same in every figure: copying layers, plain ones, nodup, baselines."""
    if ranker.startswith(("softmax", "mos:", "mos-mix:", "repeatnet")):
        return "s2" if "nodup" in ranker else "s0" if "+C" in ranker else "s1"
    return "s3"


def repeat_figure(curves: RepeatCurves) -> str:
    """The probability of a repeat by the length of the history, with and without an earlier repeat."""
    lines = [("had a repeat before", "s0", curves.with_repeat), ("no repeat so far", "s1", curves.without_repeat)]
    lines = [(name, css, points) for name, css, points in lines if points]
    every = [point for _, _, points in lines for point in points]
    plot = Plot(
        logarithmic(1, max((point.length for point in every), default=10)),
        linear(max((point.probability for point in every), default=1), percent=True),
        right=28,
    )
    plot.axes("items in the history", "next item is a repeat")
    for _, css, points in lines:
        plot.line([_place(point) for point in points], f"line {css}")
        for point in points:
            plot.dot(_place(point), css, 3.5)
    for name, css, points in lines:
        plot.label(_place(points[len(points) // 2]), name, css)
    return plot.svg("Probability that the next item is a repeat, by the number of items in the history")


def trade_off_figure(results: Sequence[Evaluation], metric: str = "ndcg@10") -> str:
    """Each ranker's metric on repeats against its metric on new items, with 95 % intervals."""
    return _trade_off(results, metric, top=44).svg(_trade_off_words(metric))


def readme_figure(results: Sequence[Evaluation], subtitle: str, metric: str = "ndcg@10") -> str:
    """The trade-off as a file of its own, with a title and a line that says what was measured."""
    plot = _trade_off(results, metric, top=98)
    plot.text((14, 30), "When to repeat, when to explore", "title")
    plot.text((14, 52), subtitle)
    return plot.svg(_trade_off_words(metric), STYLE)


def calibration_figure(results: Sequence[Evaluation]) -> str:
    """How often a repeat came where a model said how likely it was; the dotted line is a perfect prediction."""
    plot = Plot(linear(1, percent=True), linear(1, percent=True), (640, 420), right=28)
    plot.axes("predicted probability of a repeat", "repeats that happened")
    plot.line([(0, 0), (1, 1)], "guide")
    lines = [(result.name, result.summary.calibration) for result in results]
    shown = [(name, found.bins) for name, found in lines if found is not None]
    for name, bins in shown:
        most = max(bin.count for bin in bins)
        plot.line([(bin.predicted, bin.observed) for bin in bins], f"line {colour(name)}")
        for bin in bins:
            plot.dot((bin.predicted, bin.observed), colour(name), 2.5 + 6 * (bin.count / most) ** 0.5)
    for name, bins in shown:
        largest = max(bins, key=lambda bin: bin.count)
        plot.label((largest.predicted, largest.observed), name, colour(name))
    return plot.svg("Observed share of repeats by the predicted probability of a repeat")


def learning_figure(records: Mapping[str, Sequence[Record]], metric: str = "ndcg@10") -> str:
    """The validation figure after each epoch."""
    lines = {name: [(record["epoch"] + 1, record[metric]) for record in run] for name, run in records.items()}
    epochs = max(epoch for line in lines.values() for epoch, _ in line)
    x = linear(epochs)
    if epochs <= 12:
        x = type(x)(0.0, float(epochs), tuple(float(n) for n in range(epochs + 1)))
    plot = Plot(x, linear(max(value for line in lines.values() for _, value in line)), right=28)
    plot.axes("epochs trained", f"validation {metric.upper()}")
    for name, line in lines.items():
        plot.line(line, f"line {colour(name)}")
        for point in line:
            plot.dot(point, colour(name), 3.5)
    for name, line in lines.items():
        plot.label(line[-1], name, colour(name))
    return plot.svg(f"Validation {metric.upper()} after each epoch")


def _trade_off(results: Sequence[Evaluation], metric: str, top: int) -> Plot:
    points = [(r.name, _estimate(r, metric, "repeat"), _estimate(r, metric, "new")) for r in results]
    size = (640, 396 + top - 44)
    plot = Plot(linear(max(r.high for _, r, _ in points)), linear(max(n.high for _, _, n in points)), size, 28, top)
    plot.axes(f"{metric.upper()} on repeats", f"{metric.upper()} on new items")
    _equal_line(plot, max(results, key=lambda result: result.mean(metric)), metric)
    for name, repeat, new in points:
        plot.whiskers((repeat.value, new.value), ((repeat.low, repeat.high), (new.low, new.high)), colour(name))
    for name, repeat, new in points:
        plot.dot((repeat.value, new.value), colour(name), 5 if colour(name) == "s3" else 7)
    for name, repeat, new in sorted(points, key=lambda point: colour(point[0])):
        plot.label((repeat.value, new.value), name, colour(name))
    return plot


def _equal_line(plot: Plot, best: Evaluation, metric: str) -> None:
    """Where a ranker would be as good over all targets as the best one."""
    share, overall = float(best.repeat.mean()), best.mean(metric)
    if not 0 < share < 1 or overall == 0:
        return
    low = max(0.0, (overall - share * plot.x.high) / (1 - share))
    high = min(plot.y.high, overall / (1 - share))
    begin, end = (((overall - (1 - share) * new) / share, new) for new in (low, high))
    plot.line([begin, end], "guide")
    x, y = plot.at(end)
    plot.text((x + 18, y + 16), f"{overall:.4f} over all targets")


def _trade_off_words(metric: str) -> str:
    return f"{metric.upper()} on repeats and on new items, one dot per ranker, lines are 95 % intervals"


def _estimate(result: Evaluation, metric: str, group: Group) -> Estimate:
    """A metric over a group; 0 where the group has no targets."""
    found = result.summary.groups[group].metrics[metric]
    return found if found.value == found.value else Estimate(0.0, 0.0, 0.0)


def _place(point: Point) -> XY:
    return point.length, point.probability
