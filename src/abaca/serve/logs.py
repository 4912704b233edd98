"""The log: lines are queued and written by a thread, so that a reader who does not read stops nobody."""

import json
import logging
import os
import queue
import threading
import time

ROOM = 10_000
"""Lines that may wait; further ones are dropped and counted."""
CLOSE_SECONDS = 2.0
"""How long the end waits for the reader of the log."""


class QueuedLines(logging.Handler):
    """Writes records to a file descriptor in a thread of its own."""

    def __init__(self, descriptor: int, room: int = ROOM) -> None:
        super().__init__()
        self._descriptor = descriptor
        self._records: queue.Queue[logging.LogRecord | None] = queue.Queue(room)
        self.dropped = 0
        """Lines that were dropped so far."""
        self._reported = 0
        self._thread = threading.Thread(target=self._write_all, name="abaca-log", daemon=True)
        self._thread.start()

    def emit(self, record: logging.LogRecord) -> None:
        """Queue a record, or drop it."""
        try:
            self._records.put_nowait(record)
        except queue.Full:
            self.dropped += 1

    def close(self) -> None:
        """Write what is queued, as far as there is a reader."""
        until = time.monotonic() + CLOSE_SECONDS
        while self._thread.is_alive() and time.monotonic() < until:
            try:
                self._records.put(None, timeout=0.1)
            except queue.Full:
                continue
            self._thread.join(max(until - time.monotonic(), 0))
        super().close()

    def _write_all(self) -> None:
        while (record := self._records.get()) is not None:
            try:
                self._write(self.format(record))
                self._report()
            except OSError:
                self.dropped += 1
            except Exception:
                self.handleError(record)

    def _report(self) -> None:
        dropped = self.dropped
        if dropped > self._reported:
            said = "%d lines of this log were dropped: nobody read them in time"
            report = logging.LogRecord(__name__, logging.WARNING, "", 0, said, (dropped - self._reported,), None)
            self._reported = dropped
            self._write(self.format(report))

    def _write(self, line: str) -> None:
        """One line, whole; a terminal that does not block is waited for."""
        rest = line.encode("utf-8", "backslashreplace") + b"\n"
        while rest:
            try:
                rest = rest[os.write(self._descriptor, rest) :]
            except BlockingIOError:
                time.sleep(0.01)


class JsonLines(logging.Formatter):
    """One JSON object per line, with the fields of a request where it is one."""

    def format(self, record: logging.LogRecord) -> str:
        entry = {
            "time": time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created)) + f".{int(record.msecs):03}Z",
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **getattr(record, "entry", {}),
        }
        if record.exc_info:
            entry["error"] = self.formatException(record.exc_info)
        return json.dumps(entry, ensure_ascii=False, default=str)
