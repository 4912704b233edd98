"""The page in a real browser: a history is built, answered, shared, compared, refused."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pyarrow.compute
import pytest
from playwright.sync_api import Browser, Page, expect, sync_playwright

import abaca
from abaca.data.synthetic import synthetic_log
from abaca.recommender import Recommender
from models import untrained

from .samples import SMALL, Live, Shop, title

TOKEN = "a-token-of-enough-letters"
SLOW = """() => {
  const text = Response.prototype.text;
  const later = () => new Promise((resolve) => setTimeout(resolve, 400));
  Response.prototype.text = async function () { await later(); return text.call(this); };
}"""
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed (apt-get install chromium)"),
]


@pytest.fixture(scope="module")
def live(shop: Shop, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    """Both models, a token, a store, and a limit of size small enough to hit."""
    store = tmp_path_factory.mktemp("page") / "events.db"
    options = ["--examples", shop.sequences, "--store", store, "--body-mib", "0.002"]
    server = Live(*shop.models, *options, ABACA_TOKEN=TOKEN).ready()
    yield server
    server.end()


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    expect.set_options(timeout=60_000)
    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield opened
        opened.close()


@pytest.fixture
def page(browser: Browser, live: Live) -> Iterator[Page]:
    """The page with the token given; nothing of it may fail on the way, and nothing may come from elsewhere."""
    context = browser.new_context(viewport={"width": 1200, "height": 900}, reduced_motion="reduce")
    context.set_default_timeout(60_000)
    opened = context.new_page()
    mistakes: list[str] = []
    asked: list[str] = []
    opened.on("pageerror", lambda error: mistakes.append(str(error)))
    opened.on("request", lambda request: asked.append(request.url))
    opened.goto(live.url)
    opened.evaluate("token => sessionStorage.setItem('abaca.token', token)", TOKEN)
    opened.reload()
    expect(opened.locator(".model li").first).to_be_visible()
    yield opened
    context.close()
    assert mistakes == []
    assert all(url.startswith(live.url) for url in asked)


def titles(page: Page, model: int = 0) -> list[str]:
    """What a model recommends now, best first."""
    expect(page.locator("#models")).to_have_attribute("aria-busy", "false")
    names = page.locator(".model").nth(model).locator(".name").all_inner_texts()
    return [name.removesuffix("\u00a0↻") for name in names]


def answered(history: list[int], model: Path, **policy: str) -> list[str]:
    return [title(int(id)) for id in abaca.load(model).recommend(history, 10, **policy).ids]


def add(page: Page, text: str) -> None:
    page.fill("#search", text)
    expect(page.locator("#found-0")).to_contain_text(text)
    page.press("#search", "Enter")


def test_a_history_is_built_with_the_keyboard_and_answered_by_both_models(page: Page, shop: Shop) -> None:
    expect(page.locator(".note").first).to_contain_text("most popular")
    page.keyboard.press("/")
    expect(page.locator("#search")).to_be_focused()
    for name in ("Green thing 4", "Blue thing 5", "Green thing 4"):
        add(page, name)
    expect(page.locator("#history li")).to_have_count(3)
    expect(page.locator(".share")).to_have_count(2)
    assert titles(page, 0) == answered([4, 5, 4], shop.cpr)
    assert titles(page, 1) == answered([4, 5, 4], shop.softmax)
    expect(page.locator("#both")).to_contain_text("on both lists")
    first = abaca.load(shop.cpr).recommend([4, 5, 4], 10)
    assert first.repeat_probability is not None
    expect(page.locator(".share b").first).to_have_text(f"{first.repeat_probability * 100:.1f} %")
    classes = [page.locator(".model").first.locator("li").nth(place).get_attribute("class") for place in range(10)]
    assert classes == ["repeat" if item.repeat else "new" for item in first]
    page.press("#search", "Backspace")
    expect(page.locator("#history li")).to_have_count(2)


def test_enter_takes_what_was_typed_last_however_slow_the_answer(page: Page, shop: Shop) -> None:
    page.fill("#search", "thing 1")
    expect(page.locator("#found-0")).to_contain_text("thing 1")
    page.evaluate(SLOW)
    page.locator("#search").press_sequentially("7")
    page.press("#search", "Enter")
    expect(page.locator("#history li")).to_have_count(1)
    expect(page.locator("#history li")).to_contain_text("Blue thing 17")
    page.locator("#search").press_sequentially("Red thing", delay=180)  # each question cuts off the one before
    expect(page.locator("#found-0")).to_contain_text("Red thing")
    expect(page.locator("#error")).to_be_hidden()


def test_the_policy_is_switched(page: Page, shop: Shop) -> None:
    for name in ("Green thing 4", "Blue thing 5"):
        add(page, name)
    expect(page.locator(".share")).to_have_count(2)
    learned = titles(page)
    page.get_by_text("Only new").click()
    expect(page.locator(".model").first.locator(".name")).not_to_have_text(learned)
    assert titles(page) == answered([4, 5], shop.cpr, repeats="exclude")
    page.get_by_label("Only new").press("ArrowRight")
    expect(page.locator(".model").first.locator("li")).to_have_count(2)
    assert sorted(titles(page)) == ["Blue thing 5", "Green thing 4"]


def test_a_recommended_item_is_added_by_a_click_and_taken_back(page: Page, shop: Shop) -> None:
    add(page, "Red thing 3")
    expect(page.locator(".share")).to_have_count(2)
    best = titles(page)[0]
    page.locator(".model li button").first.click()
    expect(page.locator("#history li")).to_have_count(2)
    expect(page.locator("#history li").last).to_contain_text(best)
    item = int(best.split()[-1])
    expect(page.locator(".model").first.locator(".why").first).to_be_visible()
    assert titles(page) == answered([3, item], shop.cpr)
    page.click("#undo")
    expect(page.locator("#history li")).to_have_count(1)
    page.get_by_label("Remove Red thing 3").click()
    expect(page.locator("#empty")).to_be_visible()


def test_an_example_user_and_a_remembered_one_are_loaded(page: Page, live: Live) -> None:
    page.select_option("#examples", index=1)
    expect(page.locator("#history li")).to_have_count(11)
    body = {"events": [{"user": "anna/1", "item": item, "time": 9 - item} for item in (1, 2, 900)]}
    live.client.post("/events", json=body, headers={"authorization": f"Bearer {TOKEN}"}).raise_for_status()
    page.fill("#user", "anna/1")
    page.press("#user", "Enter")
    expect(page.locator("#history li")).to_have_text(["900×", "Blue thing 2×", "Green thing 1×"])
    expect(page.locator("#history li.unknown")).to_have_count(1)
    expect(page.locator(".note").first).to_contain_text("Not known to cpr: 900")
    page.fill("#user", "nobody")
    page.press("#user", "Enter")
    expect(page.get_by_role("alert")).to_contain_text("No events of user nobody are stored")


def test_stored_users_are_found_and_chosen_with_the_keyboard(page: Page, live: Live) -> None:
    events = [{"user": f"shopper {number:02}", "item": number % 30, "time": 1} for number in range(15)]
    live.client.post("/events", json={"events": events}, headers={"authorization": f"Bearer {TOKEN}"})
    page.fill("#user", "SHOPPER")
    expect(page.locator("#users li")).to_have_count(13)  # a page of twelve, and the row for more
    page.press("#user", "ArrowUp")
    page.press("#user", "Enter")
    expect(page.locator("#users li")).to_have_count(15)
    page.press("#user", "ArrowDown")
    page.press("#user", "Enter")
    expect(page.locator("#history li")).to_have_text([f"{title(13)}×"])


def test_an_item_of_the_history_is_called_a_repeat_whatever_scored_it(page: Page, live: Live) -> None:
    page.goto(f"{live.url}#history=[4,5,4,6]")
    page.get_by_text("Only repeats").click()
    expect(page.locator(".model").nth(1).locator("li")).to_have_count(3)
    words = {which: page.locator(".model").nth(which).locator(".why").all_inner_texts() for which in (0, 1)}
    assert "repeat, copied · seen 2 times, last seen 2 items ago" in words[0]
    assert "repeat · seen 2 times, last seen 2 items ago" in words[1]
    assert "repeat · seen once, the latest item" in words[1]
    assert not any("explored" in text for text in words[0] + words[1])


def test_a_link_shows_the_same_answer_to_another_person(page: Page, browser: Browser, live: Live, shop: Shop) -> None:
    for name in ("Green thing 4", "Blue thing 5"):
        add(page, name)
    page.get_by_text("Only new").click()
    page.fill("#n", "4")
    page.select_option("#model", "softmax")
    expect(page.locator(".model")).to_have_count(1)
    expect(page.locator(".model li")).to_have_count(4)
    expected = answered([4, 5], shop.softmax, repeats="exclude")[:4]
    assert titles(page) == expected
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.click("#copy")
    expect(page.locator("#copy")).to_have_text("Link copied")
    other = browser.new_page()
    other.goto(page.evaluate("navigator.clipboard.readText()"))
    other.fill("#token", TOKEN)
    other.press("#token", "Enter")
    expect(other.locator("#history li")).to_have_text(["Green thing 4×", "Blue thing 5×"])
    assert titles(other) == expected
    expect(other.locator("#n")).to_have_value("4")
    other.goto(f'{live.url}#history=[7,"900"]')  # another link in the same tab
    expect(other.locator("#history li")).to_have_text(["Green thing 7×", "900×"])
    expect(other.locator(".model")).to_have_count(2)
    other.goto(f"{live.url}#history=[7")
    expect(other.get_by_role("alert")).to_contain_text("cannot be read")
    other.goto(f"{live.url}#history=[7]&model=gone")
    expect(other.get_by_role("alert")).to_contain_text("No model named gone")
    other.goto(f"{live.url}#history=[null]")
    expect(other.get_by_role("alert")).to_contain_text("an id is a whole number, or text")
    other.close()


def test_the_slash_key_reaches_the_search_from_everywhere_but_text(page: Page) -> None:
    for place in ("[name=repeats]:checked", "#examples", "#n", "#model", ".model li button", "summary"):
        page.locator(place).first.focus()
        page.keyboard.press("/")
        expect(page.locator("#search")).to_be_focused()
        expect(page.locator("#search")).to_have_value("")
    page.locator("#user").focus()
    page.keyboard.press("/")
    expect(page.locator("#user")).to_have_value("/")


def test_the_numbers_of_a_model_are_one_click_away_and_stay(page: Page, shop: Shop) -> None:
    saved = abaca.load(shop.cpr).saved
    assert saved is not None
    numbers = page.locator(".model").first.locator("dl")
    expect(numbers).to_be_hidden()
    page.locator("summary").first.click()
    expect(page.locator("summary").first).to_have_text("gru4rec · softmax+CPR:5")
    expect(numbers).to_contain_text(f"ndcg@10 {saved.training['best']:.4f}")
    expect(numbers).to_contain_text(f"{saved.training['records'][-1]['targets']} targets per epoch, 2 epochs")
    expect(numbers).to_contain_text("leave-one-out")
    add(page, "Red thing 3")
    expect(page.locator(".share")).to_have_count(2)
    expect(numbers).to_be_visible()


def test_an_error_is_shown_with_its_hint_and_goes_away(page: Page, live: Live) -> None:
    """A history longer than the server takes is refused by the server and shown to the person."""
    page.goto(f"{live.url}#history={[1] * 1200}")
    alert = page.get_by_role("alert")
    expect(alert).to_contain_text("the body has more than 2,097 bytes")
    expect(alert).to_contain_text("send fewer")
    page.click("#clear")
    expect(alert).to_be_hidden()
    expect(page.locator(".model li").first).to_be_visible()


def test_who_has_no_token_is_asked_for_it(page: Page) -> None:
    page.evaluate("sessionStorage.clear()")
    page.reload()
    expect(page.get_by_role("alert")).to_contain_text("needs a token")
    page.fill("#token", "wrong")
    page.press("#token", "Enter")
    expect(page.get_by_role("alert")).to_contain_text("needs a token")
    page.fill("#token", TOKEN)
    page.press("#token", "Enter")
    expect(page.locator(".model li").first).to_be_visible()
    expect(page.get_by_role("alert")).to_be_hidden()


def test_it_fits_a_phone_in_the_dark(browser: Browser, live: Live) -> None:
    context = browser.new_context(viewport={"width": 360, "height": 740}, color_scheme="dark")
    page = context.new_page()
    page.goto(live.url)
    page.evaluate("token => sessionStorage.setItem('abaca.token', token)", TOKEN)
    page.reload()
    expect(page.locator(".model li").first).to_be_visible()
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(14, 18, 23)"
    context.close()


def test_the_docs_are_drawn_without_the_network(page: Page, live: Live) -> None:
    page.goto(f"{live.url}/docs")
    expect(page.locator(".opblock-summary-path").first).to_be_visible()
    assert "/recommend" in "".join(page.locator(".opblock-summary-path").all_inner_texts())


def test_a_server_that_is_gone_is_reported(page: Page, live: Live) -> None:
    live.end()
    page.get_by_text("Only new").click()
    expect(page.get_by_role("alert")).to_contain_text("cannot be reached")
    expect(page.get_by_role("button", name="Try again")).to_be_visible()


def test_the_terms_of_a_score_are_shown_and_add_up(browser: Browser, tmp_path: Path) -> None:
    model = untrained(tmp_path / "model", "softmax+CP+habits+followers")
    history = ["i3", "i7", "i3", "i9", "i7", "i3"]
    found = model.recommend(history, 30)
    live = Live(tmp_path / "model").ready()
    try:
        page = browser.new_page()
        page.goto(f"{live.url}#n=30&history={json.dumps(history)}")
        expect(page.locator(".terms")).to_have_count(30)
        expect(page.locator("#parts")).to_be_visible()
        words = [
            f"{'repeat' if item.repeat else 'new'}, {item.reason.split(' · ')[1].replace(': ', ' · ')}"
            for item in found
        ]
        assert page.locator(".why").all_inner_texts() == words
        repeat = next(place for place, item in enumerate(found) if item.repeat)
        row = page.locator(".model li").nth(repeat)
        expect(row.locator("table")).to_be_hidden()
        expect(row.locator("summary")).to_contain_text(f"Score {found.items[repeat].logit:+.2f}".replace("-", "−"))
        row.locator("summary").click()
        shown = [float(text.replace("−", "-")) for text in row.locator("td:last-child").all_inner_texts()]
        assert shown[:-1] == [round(value, 2) for value in found.items[repeat].terms.values()]
        assert sum(shown[:-1]) == pytest.approx(shown[-1], abs=0.05)
        bars = row.locator("td b").evaluate_all("bars => bars.map((bar) => bar.getBoundingClientRect().toJSON())")
        zero = max(bar["right"] for bar, value in zip(bars, shown, strict=False) if value < 0)
        for bar, value in zip(bars, shown, strict=False):  # negative bars end where positive ones begin
            assert (bar["right"] if value < 0 else bar["left"]) == pytest.approx(zero, abs=1)
        page.get_by_text("JSON", exact=True).click()
        expect(page.locator("pre")).not_to_be_empty()  # it is written by an event that follows the click
        answer = json.loads(page.locator("pre").inner_text())
        assert [item["terms"] for item in answer["items"]] == [pytest.approx(item.terms, abs=1e-4) for item in found]
    finally:
        live.end()


def test_ids_of_64_bits_come_back_as_they_were(browser: Browser, tmp_path: Path) -> None:
    far = 1_234_567_890_123_456_789
    log = synthetic_log("copy-after-repeat", users=30, items=20, length=8, seed=0)
    table = log.set_column(1, "item", pyarrow.compute.add(log["item"], far))
    model = Recommender("gru4rec", "softmax+C", **SMALL).fit(table)
    model.save(tmp_path / "model")
    live = Live(tmp_path / "model").ready()
    try:
        page = browser.new_page()
        page.goto(live.url)
        ids = [far + 7, far + 8, far + 7]
        for id in ids:
            add(page, str(id))
        page.reload()  # the history is kept
        expect(page.locator("#history li")).to_have_count(3)
        expect(page.locator(".share")).to_have_count(1)
        assert titles(page) == [str(id) for id in model.recommend(ids, 10).ids]
    finally:
        live.end()
