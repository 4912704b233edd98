"""An HTML page with its style inside: nothing is loaded."""

from collections.abc import Mapping
from html import escape
from importlib.resources import files

from abaca.study.draw import STYLE


def page(title: str, body: str, wide: bool = False) -> str:
    """A whole page."""
    css = files("abaca.study").joinpath("page.css").read_text(encoding="utf-8")
    return (
        "<!doctype html>\n<html lang='en'><head><meta charset='utf-8'>"
        f"<meta name='viewport' content='width=device-width, initial-scale=1'><title>{escape(title)}</title>"
        f"<style>{STYLE}\n{css}</style></head>"
        f"<body class='{'wide' if wide else ''}'><main>{body}</main></body></html>\n"
    )


def section(title: str, body: str) -> str:
    """A section under its title."""
    return f"<section><h2>{escape(title)}</h2>{body}</section>"


def paragraph(text: str, css: str = "") -> str:
    """A paragraph of plain text."""
    return f"<p class='{css}'>{escape(text)}</p>" if css else f"<p>{escape(text)}</p>"


def figure(svg: str, words: str) -> str:
    """A figure with its caption."""
    return f"<figure>{svg}<figcaption>{escape(words)}</figcaption></figure>"


def facts(values: Mapping[str, str]) -> str:
    """Names and values below each other."""
    return "<dl>" + "".join(f"<dt>{escape(k)}</dt><dd>{escape(v)}</dd>" for k, v in values.items()) + "</dl>"


def bullets(lines: list[str]) -> str:
    """A list of sentences."""
    return "<ul>" + "".join(f"<li>{escape(line)}</li>" for line in lines) + "</ul>" if lines else ""
