import dataclasses
import re
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest

from abaca.data.sequences import Targets
from abaca.evaluation.baselines import MostRecent, Popularity
from abaca.evaluation.evaluate import Comparison, compare, evaluate
from abaca.evaluation.metrics import Estimate
from abaca.study.cases import make_cases
from abaca.study.demo_report import Findings, next_commands, report, trade_off, verdict
from abaca.study.groceries import synthetic
from abaca.study.statistics import choose_users
from study.samples import sequences_of

BAD = "<script>alert('&\"x')</script>"
HISTORIES = {
    "loyal": f"{BAD} {BAD} {BAD} {BAD} {BAD}",
    "<i>wanders": "a b c d e",
    "between": f"{BAD} a {BAD} b {BAD}",
}
VOID = {"meta", "line", "circle", "polyline", "br"}


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Findings:
    sequences = sequences_of(HISTORIES, tmp_path_factory.mktemp("report"))
    results = [evaluate(make().fit(sequences), sequences) for make in (Popularity, MostRecent)]
    return Findings(
        source=dataclasses.replace(synthetic(10, 20, 8), citation="A <cite> & b"),
        sequences=sequences,
        results=results,
        comparisons=[compare(results[1], results[0])],
        settings={"epochs": "2 < 3"},
        cases=make_cases(sequences, choose_users(sequences, sequences.test, 4), results),
        choice="Two of < three.",
    )


class Tags(HTMLParser):
    """Checks that tags close in order, and collects them."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: list[tuple[str, dict[str, str | None]]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_the_page_is_well_formed_and_loads_nothing(found: Findings) -> None:
    tags = Tags()
    tags.feed(report(found))
    assert tags.open == []
    names = {name for name, _ in tags.seen}
    assert not names & {"script", "img", "link", "iframe", "object", "i"}
    assert not any("href" in attrs for _, attrs in tags.seen)
    assert not any("src" in attrs for _, attrs in tags.seen)
    assert not re.search(r"url\((?!#)", report(found))
    assert "@import" not in report(found)


def test_every_name_is_escaped(found: Findings) -> None:
    page = report(found)
    assert "<script" not in page
    assert "&lt;script&gt;alert(&#x27;&amp;&quot;x&#x27;)&lt;/script&gt;" in page
    assert "&lt;i&gt;wanders" in page
    assert "A &lt;cite&gt; &amp; b" in page


def test_the_page_has_its_sections_figures_and_rows(found: Findings) -> None:
    page = report(found)
    titles = re.findall(r"<h2>(.*?)</h2>", page)
    assert titles[0] == "The data"
    assert {"The results", "Examples", "Training", "Next"} <= set(titles)
    assert page.count("<svg") == 3
    assert re.findall(r"<tr><th>([^<]+)</th>", page) == ["popularity", "most recent"]
    value = max(result.mean("ndcg@10") for result in found.results)
    assert f"<td><b>{value:.4f}</b>" in page
    assert "Two of &lt; three." in page


def test_cases_by_hand(found: Findings) -> None:
    cases = {case.kind: case for case in found.cases}
    loyal = cases["copy"]
    assert (loyal.user, loyal.length, loyal.share) == ("loyal", 4, 0.75)
    assert [pick.repeat for pick in loyal.latest] == [False, True, True, True]
    assert loyal.target.name == BAD
    assert loyal.target.repeat
    first = loyal.lists["most recent"][0]
    assert (first.name, first.repeat, first.true) == (BAD, True, True)
    assert loyal.ranks["most recent"] == 1
    assert not any(pick.later for picks in loyal.lists.values() for pick in picks)
    assert cases["explore"].user == "<i>wanders"
    assert not cases["explore"].target.repeat


@pytest.mark.parametrize(
    ("low", "high", "said"),
    [(0.1, 0.3, "a is ahead of b"), (-0.3, -0.1, "a is behind b"), (-0.1, 0.1, "a cannot be distinguished from b")],
)
def test_a_verdict_claims_no_more_than_its_interval(low: float, high: float, said: str) -> None:
    test = Comparison("a", "b", "ndcg@10", "all", 9, Estimate((low + high) / 2, low, high), 0.0001)
    assert verdict(test).startswith(said)
    assert "p < 0.001" in verdict(test)


def test_next_commands_quote_ids(found: Findings) -> None:
    assert next_commands("demo/cpr", found.sequences)[0].startswith("abaca recommend demo/cpr '<script>")


def test_the_readme_figure_stands_alone(found: Findings) -> None:
    svg = trade_off(found.results, "a <title>").svg(alone=True)
    assert svg.startswith("<svg ")
    assert 'xmlns="http://www.w3.org/2000/svg"' in svg
    assert "<style>" in svg
    assert "a &lt;title&gt;" in svg
    assert "most recent" in svg
    best = max(result.mean("ndcg@10") for result in found.results)
    assert f"{best:.4f} over all targets" in svg


def test_what_came_after_the_target_is_marked(tmp_path: Path) -> None:
    sequences = sequences_of({"u": "a b a b a"}, tmp_path)
    earlier = Targets(np.array([0]), np.array([3]))
    results = [evaluate(MostRecent().fit(sequences), sequences, earlier)]
    case = make_cases(sequences, choose_users(sequences, earlier, 1), results)[0]
    assert [(pick.name, pick.true, pick.later) for pick in case.lists["most recent"]] == [
        ("a", False, True),
        ("b", True, False),
    ]
