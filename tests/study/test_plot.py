import re
from xml.etree import ElementTree

import pytest

from abaca.study.plot import STYLE, Plot, linear, logarithmic


@pytest.mark.parametrize(
    ("high", "ticks"),
    [
        (1, (0, 0.25, 0.5, 0.75, 1)),
        (0.13, (0, 0.05, 0.1, 0.15)),
        (40, (0, 10, 20, 30, 40)),
        (0, (0, 0.25, 0.5, 0.75, 1)),
    ],
)
def test_linear_ticks_are_round_and_reach_the_highest_value(high: float, ticks: tuple[float, ...]) -> None:
    assert linear(high).ticks == pytest.approx(ticks)


def test_equal_factors_are_equal_steps_on_a_logarithmic_scale() -> None:
    scale = logarithmic(1, 100)
    assert scale.share(10) == pytest.approx(0.5)
    assert scale.ticks == (1, 2, 5, 10, 20, 50, 100)


def test_values_lie_between_the_margins() -> None:
    plot = Plot(linear(1), linear(1))
    assert plot.at((0, 0)) == (plot.left, plot.bottom)
    assert plot.at((1, 1)) == (plot.right, plot.top)


def test_labels_do_not_cover_each_other() -> None:
    plot = Plot(linear(1), linear(1))
    for _ in range(4):
        plot.label((0.5, 0.5), "same place", "s0")
    places = re.findall(r'x="([\d.]+)" y="([\d.]+)"', "".join(plot.marks))
    assert len(set(places)) == 4


def test_a_label_does_not_lie_on_a_line() -> None:
    plot = Plot(linear(1), linear(1))
    plot.line([(0, 0.5), (1, 0.5)], "line s0")
    plot.label((0.5, 0.5), "beside", "s0")
    y = float(re.findall(r'y="([\d.]+)"', plot.marks[-1])[0])
    assert abs(y - plot.at((0.5, 0.5))[1]) > 10


def test_a_figure_is_xml_with_its_words_escaped() -> None:
    plot = Plot(linear(1), linear(1))
    plot.axes("a < b", "c & d")
    plot.label((0.2, 0.2), "<script>", "s1")
    root = ElementTree.fromstring(plot.svg('what "it" shows', STYLE))
    words = [text.text for text in root.iter("{http://www.w3.org/2000/svg}text")]
    assert {"a < b", "c & d", "<script>"} <= set(words)
    assert root.get("aria-label") == 'what "it" shows'
