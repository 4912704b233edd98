"""The files of the page, read once at the start of a server."""

import hashlib
from importlib.resources import files
from pathlib import Path

import fastapi_offline
from fastapi import HTTPException, Request, Response

TYPES = {".html": "text/html", ".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}


def page_files() -> dict[str, tuple[bytes, str]]:
    """The files of the page and of Swagger by name, each with a tag of its content."""
    own = [file for file in files("abaca.serve").joinpath("page").iterdir() if Path(file.name).suffix in TYPES]
    static = files(fastapi_offline).joinpath("static")
    swagger = [static.joinpath(name) for name in ("swagger-ui-bundle.js", "swagger-ui.css")]
    content = {file.name: file.read_bytes() for file in [*own, *swagger]}
    return {name: (data, f'"{hashlib.sha256(data).hexdigest()[:16]}"') for name, data in content.items()}


class Pages:
    """The endpoints of the page and of the documentation."""

    def __init__(self) -> None:
        self.files = page_files()

    async def page(self, request: Request) -> Response:
        """The page."""
        return self._file(request, "index.html")

    async def docs(self, request: Request) -> Response:
        """This documentation."""
        return self._file(request, "docs.html")

    async def static(self, request: Request, name: str) -> Response:
        """A file of the page."""
        return self._file(request, name)

    def _file(self, request: Request, name: str) -> Response:
        """One of the files that were read at the start; no other file can be reached."""
        if name not in self.files:
            raise HTTPException(404, "there is no such file")
        content, etag = self.files[name]
        headers = {"etag": etag, "cache-control": "no-cache"}
        if request.headers.get("if-none-match") == etag:
            return Response(status_code=304, headers=headers)
        return Response(content, media_type=TYPES[Path(name).suffix], headers=headers)
