"""A real HTTP server on this machine, which can be told to behave as servers do."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@dataclass
class Site:
    """What the server has, and how it answers."""

    files: dict[str, bytes]
    etag: str | None = '"v1"'
    modified: str | None = None
    ranges: bool = True
    """Whether a range that is asked for is given."""
    heeds_if_range: bool = True
    """Whether a range of another version than the one asked for is refused."""
    cuts: list[int] = field(default_factory=list)
    """After how many bytes the next answers break off."""
    status: list[int] = field(default_factory=list)
    """Codes of the next answers, which say nothing else."""
    content_type: str = "application/octet-stream"
    says_length: bool = True
    endless: bool = False
    """Whether an answer never ends."""
    asked: list[dict[str, str]] = field(default_factory=list)
    """The headers of every request."""
    address: str = ""


@contextmanager
def served(site: Site) -> Iterator[Site]:
    """The site on a free port, until the end of the block."""
    handler = type("Handler", (_Handler,), {"site": site})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    site.address = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield site
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class _Handler(BaseHTTPRequestHandler):
    site: Site

    def log_message(self, *_: object) -> None:
        """Tell nobody."""

    def do_GET(self) -> None:
        site = self.site
        site.asked.append(dict(self.headers))
        body = site.files.get(self.path.lstrip("/"))
        if site.status or body is None:
            self.send_error(site.status.pop(0) if site.status else 404)
            return
        begin = self._begin()
        if begin is not None and begin >= len(body):
            self.send_response(416)
            self.send_header("Content-Range", f"bytes */{len(body)}")
            self.end_headers()
            return
        self.send_response(200 if begin is None else 206)
        if begin is not None:
            self.send_header("Content-Range", f"bytes {begin}-{len(body) - 1}/{len(body)}")
        rest = body[begin or 0 :]
        for name, value in self._headers(len(rest)).items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(rest[: site.cuts.pop(0)] if site.cuts else rest)
        with suppress(OSError):  # the client goes
            while site.endless:
                self.wfile.write(rest)

    def _begin(self) -> int | None:
        """The first byte that is asked for and given; None for all."""
        wanted, only_if = self.headers.get("Range"), self.headers.get("If-Range")
        current = only_if is None or only_if in (self.site.etag, self.site.modified)
        if wanted is None or not self.site.ranges or (self.site.heeds_if_range and not current):
            return None
        return int(wanted.removeprefix("bytes=").rstrip("-"))

    def _headers(self, length: int) -> dict[str, str]:
        site = self.site
        said = {"Content-Type": site.content_type, "ETag": site.etag, "Last-Modified": site.modified}
        if site.says_length:
            said["Content-Length"] = str(length)
        return {name: value for name, value in said.items() if value is not None}
