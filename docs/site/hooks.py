"""Hooks of the documentation site: pages outside `docs/`, the links between pages, and generated references.

Links between pages are those of the repository, so that they work wherever its files are shown. The site holds the
files of `docs/` at its root and the others by their own path; `on_page_markdown` rewrites links accordingly.
"""

import posixpath
import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page
from reference import command_line, http

ROOT = Path(__file__).parents[2]
ROOT_PAGES = ("CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md")
SHOWN = (".md", ".svg", ".png")
LINK = re.compile(r"(!?)\[([^\]]*)\]\((?![a-z]+:)([^)#\s]+)(#[^)\s]*)?\)")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the generated references and every file outside `docs/` that a page links to."""
    files.append(File.generated(config, "cli.md", content=command_line()))
    files.append(File.generated(config, "http.md", content=http()))
    waiting = [*ROOT_PAGES, *(f"docs/{file.src_uri}" for file in files.documentation_pages() if not file.generated_by)]
    found: set[str] = set()
    while waiting:
        path = waiting.pop()
        if path in found or not (ROOT / path).is_file():
            continue
        found.add(path)
        if not path.startswith("docs/"):
            files.append(File.generated(config, path, abs_src_path=str(ROOT / path)))
        if path.endswith(".md"):
            targets = LINK.findall((ROOT / path).read_text(encoding="utf-8"))
            waiting += [target for _, _, link, _ in targets if (target := resolved(path, link)).endswith(SHOWN)]
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Point links at the site; a link to a file that the site does not hold becomes plain text."""
    outside = page.file.src_uri.startswith(("studies/", "benchmarks/")) or page.file.src_uri in ROOT_PAGES
    here = page.file.src_uri if outside else f"docs/{page.file.src_uri}"

    def rewritten(match: re.Match[str]) -> str:
        image, text, link, anchor = match.groups()
        target = resolved(here, link).removeprefix("docs/")
        if files.get_file_from_path(target) is None and (ROOT / resolved(here, link)).exists():
            return text
        start = posixpath.dirname(page.file.src_uri) or "."
        return f"{image}[{text}]({posixpath.relpath(target, start)}{anchor or ''})"

    return LINK.sub(rewritten, markdown)


def resolved(page: str, link: str) -> str:
    """The path in the repository that a page's link leads to."""
    return posixpath.normpath(posixpath.join(posixpath.dirname(page), link))
