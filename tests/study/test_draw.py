import re
import sys
from xml.etree import ElementTree

import pytest

from abaca.errors import SpecError
from abaca.evaluation.baselines import BASELINES
from abaca.study.draw import COLOURS, Figure, grid_of, style_of

ROWS = [
    "softmax", "softmax+Mi", "softmax+C", "softmax+CP", "softmax+CPR:100", "softmax+CPR:100+Mi",
    "softmax+CPR:20,100,500+Mi", "mos:3", "softmax+nodup", "repeatnet",
]  # fmt: skip


def figure(name: str = "one") -> Figure:
    made = Figure(name, 'what "it" <shows>')
    made.line(made.panels[0], "softmax", [(1, 2), (3, 4)])
    made.dot(made.panels[0], "popularity", (2, 3), "<group>")
    made.dot(made.panels[0], "popularity", (2, 2), "other", hollow=True)
    made.title(made.panels[0], "a < b", "c & d", "up")
    made.legend()
    return made


def test_every_row_of_the_paper_looks_different_without_colour_too() -> None:
    looks = [style_of(row) for row in ROWS]
    assert len({shown.name for shown in looks}) >= len(ROWS) - 1
    assert len({(shown.marker, shown.dash) for shown in looks}) == len(ROWS)
    assert len({style_of(name).marker for name in BASELINES}) == len(BASELINES)


def test_layers_of_one_family_look_different_within_a_figure() -> None:
    made, family = Figure("one", "words"), ["mos:2", "mos:3", "mos:4", "softmax+CPR:20+Mi", "softmax+CPR:100+Mi"]
    for name in family * 2:
        made.line(made.panels[0], name, [(1, 2), (3, 4)])
    styles = [(line.get_marker(), line.get_linestyle(), line.get_color()) for line in made.panels[0].lines]
    assert styles[:5] == styles[5:]
    assert len(set(styles)) == 5
    assert style_of("mos:2") == style_of("mos:3")


def test_long_titles_fit_their_panels() -> None:
    made = Figure("one", "words", (1, 2), (2.5, 2.3))
    for panel, title in zip(made.panels, ("amazon-videogames-5core, GRU4Rec", "ml-1m, SASRec"), strict=True):
        made.title(panel, title, "", "")
    made.png()
    first, second = (panel._left_title.get_window_extent() for panel in made.panels)
    assert first.width > second.width
    assert first.x1 < second.x0


def test_a_dollar_is_no_formula() -> None:
    made = Figure("one", "words")
    made.title(made.panels[0], r"x$\frac$", "", "")
    assert r"x$\frac$" in made.svg()


def test_a_figure_is_xml_whose_text_is_text() -> None:
    root = ElementTree.fromstring(figure().svg(alone=True))
    words = {text.text for text in root.iter("{http://www.w3.org/2000/svg}text")}
    assert {"a < b", "c & d", "softmax", "popularity", "<group>", "other"} <= words
    assert root.get("aria-label") == 'what "it" <shows>'


def test_colours_follow_the_page() -> None:
    inside = figure().svg()
    light = COLOURS["ink"][0]
    assert f"var(--ink, {light})" in inside
    assert not re.search(rf"(?<!, ){light}", inside)
    assert "<style>:root" not in inside
    assert "prefers-color-scheme: dark" in figure().svg(alone=True)


def test_a_figure_loads_nothing_and_its_ids_are_its_own() -> None:
    first, second = figure("one").svg(), figure("two").svg()
    assert not re.search(r"""(href|src)\s*=\s*["'](?!#)|url\((?!#)|<metadata""", first)
    ids = [set(re.findall(r'id="([^"]+)"', text)) for text in (first, second)]
    assert ids[0]
    assert not ids[0] & ids[1]
    assert first == figure("one").svg()


def test_print_and_picture() -> None:
    assert figure().pdf().startswith(b"%PDF")
    assert figure().png(30).startswith(b"\x89PNG")


def test_panels_stand_in_rows() -> None:
    assert [grid_of(count) for count in (0, 1, 3, 4, 7)] == [(1, 1), (1, 1), (1, 3), (2, 3), (3, 3)]


def test_a_package_that_is_missing_is_named_with_its_cure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(SpecError, match=r"needs the package matplotlib; .*pip install 'abaca\[study\]'"):
        Figure("one", "words")
