"""The figure shows each data set's two lines with their bands, and gaps where there is hardly anybody."""

import math

from abaca.study.repetition import Repetition, Tally
from abaca.study.repetition_figure import repetition_figure

SHOP = Repetition((Tally(3, 10, 6), Tally(5, 40, 10), Tally(6, 4, 4)), (Tally(3, 20, 2), Tally(4, 30, 3)))
FILMS = Repetition((), (Tally(3, 50, 0), Tally(4, 50, 0)))


def test_lines_are_percent_by_length_with_a_gap_where_hardly_anybody_is_left() -> None:
    panel, *_ = repetition_figure({"shop": SHOP}).panels
    with_repeat, without = panel.get_lines()
    assert list(with_repeat.get_xdata()) == [3, 4, 5]
    first, gap, last = with_repeat.get_ydata()
    assert (first, last) == (60.0, 25.0)
    assert math.isnan(gap)
    assert list(without.get_ydata()) == [10.0, 10.0]


def test_bands_are_the_intervals() -> None:
    panel, *_ = repetition_figure({"shop": SHOP}).panels
    corners = panel.collections[1].get_paths()[0].vertices[:, 1]
    bounds = [bound for tally in SHOP.without_repeat for bound in (tally.probability.low, tally.probability.high)]
    assert sorted({round(corner, 6) for corner in corners}) == sorted(round(100 * bound, 6) for bound in bounds)


def test_the_legend_counts_sequences_as_the_papers() -> None:
    panel, *_ = repetition_figure({"shop": SHOP}).panels
    assert [text.get_text() for text in panel.get_legend().get_texts()] == ["earlier repeat (54)", "none so far (50)"]


def test_a_panel_each_and_one_scale_for_all() -> None:
    figure = repetition_figure({"shop": SHOP, "films": FILMS, "other": SHOP, "more": FILMS})
    assert [panel.get_title(loc="left") for panel in figure.panels[:4]] == ["shop", "films", "other", "more"]
    assert len({panel.get_ylim() for panel in figure.panels[:4]}) == 1
    svg = figure.svg(alone=True)
    assert svg.startswith("<svg")
    assert "films" in svg
    assert "95 % intervals" in svg
