"""The files of the page, read once at the start of a server."""

import hashlib
from importlib.resources import files
from pathlib import Path

import fastapi_offline

TYPES = {".html": "text/html", ".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}


def page_files() -> dict[str, tuple[bytes, str]]:
    """The files of the page and of Swagger by name, each with a tag of its content."""
    own = [file for file in files("abaca.serve").joinpath("page").iterdir() if Path(file.name).suffix in TYPES]
    static = files(fastapi_offline).joinpath("static")
    swagger = [static.joinpath(name) for name in ("swagger-ui-bundle.js", "swagger-ui.css")]
    content = {file.name: file.read_bytes() for file in [*own, *swagger]}
    return {name: (data, f'"{hashlib.sha256(data).hexdigest()[:16]}"') for name, data in content.items()}
