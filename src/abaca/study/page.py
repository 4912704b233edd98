"""The report's frame: an HTML page with its style inside."""

from abaca.study.plot import STYLE

_CSS = """
:root { color-scheme: light dark; --ink: #1f2328; --soft: #656d76; --rule: #d8dee4; --paper: #ffffff;
  --card: #f6f8fa; --s0: #0072b2; --s1: #c85600; --s2: #7b5aa6; --hit: #0b7a4b; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e6edf3; --soft: #9198a1; --rule: #343b44; --paper: #0f1318; --card: #171c23; --s0: #56b4e9;
    --s1: #f0883e; --s2: #c3a5e8; --hit: #3fb98a; }
}
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
.s0 { color: var(--s0); }
.s1 { color: var(--s1); }
.s2 { color: var(--s2); }
.s3 { color: var(--soft); }
p { margin: 0 0 .9rem; }
a { color: var(--s0); overflow-wrap: anywhere; }
.over { text-transform: uppercase; letter-spacing: .08em; font-size: .74rem; font-weight: 600; color: var(--soft);
  margin: 0; }
.lead { font-size: 1.2rem; line-height: 1.5; color: var(--soft); text-wrap: pretty; }
.verdict { border-left: 4px solid var(--s0); padding: .1rem 0 .1rem 1rem; }
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
.chosen { background: color-mix(in srgb, var(--s0) 9%, transparent); }
.chosen th { font-weight: 700; color: var(--s0); }
figure { margin: 1.2rem 0; }
figure svg { display: block; width: 100%; height: auto; overflow: visible; }
figcaption { margin-top: .6rem; }
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
  .plot text { font-size: 16px; }
  dl { display: block; }
  dd { margin-bottom: .5rem; }
  th, td { padding: .45rem .35rem; }
}
@media print {
  article, figure, table { break-inside: avoid; }
}
"""

PAGE = (
    "<!doctype html>\n<html lang='en'><head><meta charset='utf-8'>"
    "<meta name='viewport' content='width=device-width, initial-scale=1'><title>Abaca demo: when to repeat, when to "
    f"explore</title><style>{STYLE}{_CSS}</style></head><body><main>{{{{body}}}}</main></body></html>\n"
)
