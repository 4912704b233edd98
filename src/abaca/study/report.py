"""The demo's report: one HTML page without anything to load, for light and dark screens, wide and narrow."""

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape

from abaca.data.sequences import Sequences
from abaca.evaluation.evaluate import GROUPS, Comparison, Evaluation, Group
from abaca.study import figures
from abaca.study.cases import MEANING, Case, Pick
from abaca.study.draw import look
from abaca.study.groceries import Source
from abaca.study.page import figure, page, paragraph, section
from abaca.study.statistics import CHOICE_RULE, RepeatCurves
from abaca.types import Record

METRIC = "ndcg@10"
GROUP_WORDS: dict[Group, str] = {"all": "over all targets", "repeat": "on repeats", "new": "on new items"}
LEAST = 20
"""Earlier items that a user needs to be shown."""


@dataclass(frozen=True)
class Findings:
    """Everything that the report tells."""

    source: Source
    sequences: Sequences
    curves: RepeatCurves
    results: Sequence[Evaluation]  # baselines first, models last, the one to look at at the end
    comparisons: Sequence[Comparison]
    records: Mapping[str, Sequence[Record]]  # of training, by output layer
    settings: Mapping[str, str]  # what was set, in words
    cases: Sequence[Case]

    @property
    def models(self) -> list[Evaluation]:
        """The rankers that predict how likely a repeat is and were trained for it."""
        return [result for result in self.results if result.name in self.records]

    @property
    def choice_rule(self) -> str:
        """How the shown users were chosen."""
        return CHOICE_RULE.format(who=self.source.who, least=LEAST)


def report(found: Findings) -> str:
    """The page."""
    sections = [
        section("The data", _data(found)),
        section("When do people repeat?", _repeats(found)),
        section("The results", _results(found)),
        section("Good at repeats, good at new items", _trade_off(found)),
        section("Does it know when a repeat comes?", _calibration(found)),
        section(f"Three {found.source.who}s", _cases(found)),
        section("How it was trained", _training(found)),
        section("Go on", _go_on(found)),
    ]
    head = f"<header><p class='over'>Abaca demo</p><h1>When to repeat, when to explore</h1>{_lead(found)}</header>"
    return page("Abaca demo: when to repeat, when to explore", head + "".join(sections))


def verdict(test: Comparison) -> str:
    """A paired test in a sentence."""
    gain = test.difference
    if gain.low > 0 or gain.high < 0:
        said = f"is {'ahead of' if gain.value > 0 else 'behind'}"
    else:
        said = "cannot be told from"
    return (
        f"{test.a} {said} {test.b} {GROUP_WORDS[test.group]}: {test.metric.upper()} {gain.value:+.4f} "
        f"(95\u00a0% interval {gain.low:+.4f} to {gain.high:+.4f}, p {_p(test.p_value)})"
    )


def next_commands(model: str, sequences: Sequences) -> list[str]:
    """What to type next with a trained model; the ids are the most popular."""
    ids = " ".join(shlex.quote(str(id)) for id in sequences.catalogue.ids[:3])
    return [f"abaca recommend {model} {ids}", f"abaca recommend {model} {ids} --repeats exclude"]


def _p(value: float) -> str:
    return "< 0.001" if value < 0.001 else f"= {value:.3f}"


def _lead(found: Findings) -> str:
    counts, who = found.sequences.manifest["counts"], found.source.who
    happen = found.results[0].summary.repeats_happen
    text = (
        f"{counts['users']:,} {who}s, {found.sequences.catalogue.size:,} items, {counts['interactions']:,} "
        f"interactions. {happen:.0%} of what comes next was there before, the rest is new. A recommender has to know "
        "which is due."
    )
    first, *rest = found.comparisons
    groups = [f"{GROUP_WORDS[test.group]} {test.difference.value:+.4f}" for test in rest if test.b == first.b]
    return paragraph(text, "lead") + paragraph("; ".join([verdict(first), *groups]) + ".", "verdict")


def _data(found: Findings) -> str:
    counts, source = found.sequences.manifest["counts"], found.source
    text = paragraph(source.title, "strong") + "".join(map(paragraph, source.paragraphs))
    if source.citation:
        text += f"<p class='note'>{escape(source.citation)}</p>"
    facts = {
        f"{source.who}s": counts["users"],
        "items": found.sequences.catalogue.size,
        "training targets": counts["training_targets"],
        "validation targets": counts["valid_targets"],
        "test targets": counts["test_targets"],
    }
    tiles = "".join(f"<div><b>{value:,}</b><span>{escape(name)}</span></div>" for name, value in facts.items())
    rule = found.sequences.manifest["split"]["rule"]
    return text + f"<div class='tiles'>{tiles}</div>" + paragraph(f"The split, {rule}.", "note")


def _repeats(found: Findings) -> str:
    return figure(
        figures.repeat_figure(found.curves),
        "How often the next item is one of the history, by the length of the history. Someone who has repeated before "
        "is far more likely to repeat: no fixed rule, such as “never recommend again”, fits both.",
    )


def _results(found: Findings) -> str:
    first = found.results[0]
    counts = {group: int(first.mask(group).sum()) for group in GROUPS}
    head = "".join(f"<th>{group}<small>{counts[group]:,} targets</small></th>" for group in GROUPS)
    best = {group: max(r.summary.groups[group].metrics[METRIC].value for r in found.results) for group in GROUPS}
    rows = "".join(_row(result, best, result is found.results[-1]) for result in found.results)
    table = (
        f"<div class='scroll'><table><thead><tr><th>{METRIC.upper()}</th>{head}"
        f"<th>repeats in<small>the first 10</small></th></tr></thead><tbody>{rows}</tbody></table></div>"
    )
    cold = (
        f" {first.summary.cold:,} targets were never seen in training and count as misses."
        if first.summary.cold
        else ""
    )
    note = (
        f"Every test target is ranked against all {first.catalogue:,} items; ties count against the target. Grey: 95 % "
        f"bootstrap intervals over {found.source.who}s. Repeats happen {first.summary.repeats_happen:.0%} of the time."
    )
    tests = "".join(f"<li>{escape(verdict(test))}</li>" for test in found.comparisons)
    paired = f"Paired tests, {found.source.who} by {found.source.who}:"
    return table + paragraph(note + cold, "note") + paragraph(paired) + f"<ul>{tests}</ul>"


def _row(result: Evaluation, best: Mapping[Group, float], chosen: bool) -> str:
    cells = ""
    for group in GROUPS:
        figure = result.summary.groups[group].metrics[METRIC]
        if figure.value != figure.value:
            cells += "<td>–</td>"
            continue
        value = f"<b>{figure.value:.4f}</b>" if figure.value == best[group] else f"{figure.value:.4f}"
        cells += f"<td>{value}<small>{figure.low:.4f} – {figure.high:.4f}</small></td>"
    share = result.summary.repeats_recommended[max(result.cutoffs)]
    css = " class='chosen'" if chosen else ""
    return f"<tr{css}><th>{escape(result.name)}</th>{cells}<td>{share:.0%}</td></tr>"


def _trade_off(found: Findings) -> str:
    return figure(
        figures.trade_off_figure(found.results, METRIC),
        "Each dot is a ranker, the thin lines are 95 % intervals. Rankers that only repeat lie at the bottom; one that "
        "never repeats, softmax+nodup, lies at the left; the upper right corner is where to be. Everywhere on the "
        "dotted line NDCG over all targets would be that of the best ranker; below it, less.",
    )


def _calibration(found: Findings) -> str:
    said = [(model.name, model.summary.calibration) for model in found.models]
    errors = "; ".join(f"{name} {c.ece:.3f}, Brier score {c.brier:.3f}" for name, c in said if c is not None)
    return figure(
        figures.calibration_figure(found.models),
        "Of the targets for which a model gave a repeat this probability, how many were repeats? The dotted line is a "
        f"perfect prediction, larger dots hold more targets. Calibration error (lower is better): {errors}.",
    )


def _cases(found: Findings) -> str:
    intro = paragraph(f"{found.source.who.capitalize()}s {found.choice_rule}.", "note")
    key = "<p class='note'><span class='again'>↻</span> in the history · <span class='hit'>✓</span> what came next · "
    key += "<span class='hit'>○</span> came later</p>"
    return intro + key + "".join(case_html(case, found.source.who) for case in found.cases)


def case_html(case: Case, who: str) -> str:
    """One history and the rankers' answers."""
    head = (
        f"<h3>{escape(case.kind.capitalize())}: {escape(who)} {escape(case.user)}<small>{escape(MEANING[case.kind])} · "
        f"{case.length} earlier items, {case.share:.0%} of them repeats</small></h3>"
    )
    chips = "".join(f"<li>{_pick(pick)}</li>" for pick in case.latest)
    kind = "a repeat" if case.target.repeat else "new"
    came = f"<p class='came'>came next: <b>{escape(case.target.name)}</b> <span class='hit'>✓</span> ({kind})</p>"
    lists = "".join(
        f"<div><h4 style='color: var(--{look(name.split()[-1]).name})'>{escape(name)}</h4><ol>"
        + "".join(f"<li class='{'true' if pick.true else ''}'>{_pick(pick)}</li>" for pick in picks)
        + f"</ol><p class='note'>✓ is at rank {case.ranks[name]:,}</p></div>"
        for name, picks in case.lists.items()
    )
    latest = f"<p class='over'>latest items</p><ul class='chips'>{chips}</ul>"
    return f"<article>{head}{latest}{came}<div class='lists'>{lists}</div></article>"


def _pick(pick: Pick) -> str:
    again = " <span class='again' title='in the history'>↻</span>" if pick.repeat else ""
    mark = "✓" if pick.true else "○" if pick.later else ""
    hit = f" <span class='hit'>{mark}</span>" if mark else ""
    return escape(pick.name) + again + hit


def _training(found: Findings) -> str:
    listed = "".join(f"<dt>{escape(key)}</dt><dd>{escape(value)}</dd>" for key, value in found.settings.items())
    words = (
        "The validation figure after each epoch; the weights of the best epoch are kept, and only they see the test."
    )
    return f"<dl>{listed}</dl>" + figure(figures.learning_figure(found.records, METRIC), words)


def _go_on(found: Findings) -> str:
    lines = escape("\n".join(next_commands("cpr", found.sequences)))
    return paragraph("The models lie beside this page. In its folder:") + f"<pre>{lines}</pre>"
