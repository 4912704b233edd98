"""The report's frame: an HTML page with its style inside."""

from html import escape

from abaca.study.draw import STYLE

_CSS = """
:root { color-scheme: light dark; --card: #f6f8fa; --hit: #0b7a4b; }
@media (prefers-color-scheme: dark) { :root { --card: #171c23; --hit: #3fb98a; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--paper); color: var(--ink);
  font: 17px/1.6 system-ui, -apple-system, "Segoe UI", Roboto, Helvetica, Arial, sans-serif;
  -webkit-text-size-adjust: 100%; }
main { max-width: 46rem; margin: 0 auto; padding: 3rem 1.25rem 5rem; }
h1 { font-size: clamp(2rem, 7vw, 2.9rem); line-height: 1.1; letter-spacing: -.02em; margin: .2rem 0 1rem;
  text-wrap: balance; }
h2 { font-size: 1.45rem; line-height: 1.25; letter-spacing: -.01em; margin: 3.5rem 0 .9rem; }
h3 { font-size: 1.1rem; margin: 0 0 .8rem; }
h3 small { display: block; font-weight: 400; color: var(--soft); font-size: .88rem; }
h4 { font-size: .9rem; margin: 0 0 .3rem; overflow-wrap: anywhere; }
p { margin: 0 0 .9rem; }
a { color: var(--blue); overflow-wrap: anywhere; }
.over { text-transform: uppercase; letter-spacing: .08em; font-size: .74rem; font-weight: 600; color: var(--soft);
  margin: 0; }
.lead { font-size: 1.2rem; line-height: 1.5; color: var(--soft); text-wrap: pretty; }
.verdict { border-left: 4px solid var(--blue); padding: .1rem 0 .1rem 1rem; }
.note, figcaption { font-size: .88rem; line-height: 1.5; color: var(--soft); }
.strong { font-weight: 600; }
.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(7.5rem, 1fr)); gap: .6rem; margin: 1.2rem 0; }
.tiles div { background: var(--card); border-radius: .6rem; padding: .7rem .9rem; }
.tiles b { display: block; font-size: 1.3rem; font-variant-numeric: tabular-nums; }
.tiles span { display: block; font-size: .8rem; line-height: 1.3; color: var(--soft); }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
th, td { text-align: right; padding: .5rem .6rem; border-bottom: 1px solid var(--rule); vertical-align: top;
  line-height: 1.35; }
th:first-child { text-align: left; padding-left: .4rem; }
tbody th { font-weight: 500; }
th small, td small { display: block; font-weight: 400; color: var(--soft); font-size: .72rem; white-space: nowrap; }
.chosen { background: color-mix(in srgb, var(--blue) 9%, transparent); }
.chosen th { font-weight: 700; color: var(--blue); }
figure { margin: 1.2rem 0; }
figure svg { display: block; width: 100%; height: auto; overflow: visible; }
figcaption { margin-top: .6rem; }
.wide main { max-width: 76rem; }
.wide p, .wide dl, .wide ul, .wide figcaption { max-width: 50rem; }
.wide figure svg { width: auto; max-width: 100%; }
.table thead tr:first-child th { border-bottom: 0; }
.table { margin: 1.6rem 0 2.4rem; }
.table table { font-size: .86rem; width: auto; min-width: 24rem; }
.table th, .table td { padding: .22rem .55rem; white-space: nowrap; }
.table .span { text-align: center; border-bottom: 0; }
.table .group th { padding-top: .8rem; font-weight: 700; }
.table sup { font-size: .6rem; line-height: 0; display: inline-block; width: .8em; text-align: left; }
article { background: var(--card); border-radius: .8rem; padding: 1.2rem 1.2rem .6rem; margin: 1.2rem 0; }
.chips { list-style: none; display: flex; flex-wrap: wrap; gap: .35rem; padding: 0; margin: .4rem 0 .8rem; }
.chips li { background: var(--paper); border: 1px solid var(--rule); border-radius: 1rem; padding: .05rem .65rem;
  font-size: .84rem; }
.lists { display: grid; grid-template-columns: repeat(auto-fit, minmax(11.5rem, 1fr)); gap: .4rem 1.2rem; }
.lists ol { margin: 0 0 .4rem; padding-left: 1.3rem; font-size: .9rem; line-height: 1.4; }
.lists li { margin: .2rem 0; }
.lists li.true { font-weight: 600; color: var(--hit); }
.again { color: var(--soft); }
.hit { color: var(--hit); font-weight: 700; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .3rem 1.2rem; font-size: .92rem; }
dt { color: var(--soft); }
dd { margin: 0; }
pre { background: var(--card); border-radius: .6rem; padding: .9rem 1rem; overflow-x: auto; font-size: .85rem; }
ul { padding-left: 1.2rem; }
@media (max-width: 34rem) {
  body { font-size: 16px; }
  dl { display: block; }
  dd { margin-bottom: .5rem; }
  th, td { padding: .45rem .35rem; }
}
@media print {
  article, figure, table { break-inside: avoid; }
}
"""


def page(title: str, body: str, wide: bool = False) -> str:
    """A whole page."""
    return (
        "<!doctype html>\n<html lang='en'><head><meta charset='utf-8'>"
        f"<meta name='viewport' content='width=device-width, initial-scale=1'><title>{escape(title)}</title>"
        f"<style>{STYLE}{_CSS}</style></head><body class='{'wide' if wide else ''}'><main>{body}</main></body></html>\n"
    )


def section(title: str, body: str) -> str:
    """A part of a page."""
    return f"<section><h2>{escape(title)}</h2>{body}</section>"


def paragraph(text: str, css: str = "") -> str:
    """Words."""
    return f"<p class='{css}'>{escape(text)}</p>" if css else f"<p>{escape(text)}</p>"


def figure(svg: str, words: str) -> str:
    """A drawing and what it shows."""
    return f"<figure>{svg}<figcaption>{escape(words)}</figcaption></figure>"
