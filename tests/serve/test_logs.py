"""A log that nobody reads stops nobody: lines wait, then are dropped and counted."""

import json
import logging
import os
import threading

import httpx2

from abaca.serve.guards import JsonLines
from abaca.serve.logs import QueuedLines

from .samples import Live, Shop


def record(text: str) -> logging.LogRecord:
    return logging.LogRecord("test", logging.INFO, "", 0, text, (), None)


def handler_of(descriptor: int, room: int) -> QueuedLines:
    handler = QueuedLines(descriptor, room)
    handler.setFormatter(JsonLines())
    return handler


def test_lines_are_written_in_order_and_all_of_them_before_the_end() -> None:
    reads, writes = os.pipe()
    handler = handler_of(writes, 1000)
    for number in range(300):
        handler.handle(record(f"line {number}"))
    handler.close()
    os.close(writes)
    with os.fdopen(reads) as file:
        assert [json.loads(line)["message"] for line in file] == [f"line {number}" for number in range(300)]
    assert handler.dropped == 0


def test_lines_that_nobody_reads_are_dropped_counted_and_reported() -> None:
    reads, writes = os.pipe()
    handler = handler_of(writes, 10)
    long = "x" * 4000
    sent = 60
    for _ in range(sent):  # a pipe holds 16 of them
        handler.handle(record(long))
    assert handler.dropped > 0
    found: list[str] = []

    def read() -> None:
        with os.fdopen(reads) as file:
            found.extend(json.loads(line)["message"] for line in file)

    reader = threading.Thread(target=read)
    reader.start()
    handler.close()
    os.close(writes)
    reader.join(60)
    assert found.count(long) == sent - handler.dropped
    reports = [text for text in found if text != long]
    assert all("lines of this log were dropped: nobody read them in time" in text for text in reports)
    assert sum(int(text.split()[0]) for text in reports) == handler.dropped


def test_a_reader_that_is_gone_is_no_error() -> None:
    reads, writes = os.pipe()
    os.close(reads)
    handler = handler_of(writes, 10)
    handler.handle(record("lost"))
    handler.close()
    os.close(writes)
    assert handler.dropped == 1


def test_a_server_whose_log_nobody_reads_goes_on(shop: Shop) -> None:
    reads, writes = os.pipe()
    server = Live(shop.cpr, log=writes)
    os.close(writes)
    with httpx2.Client(base_url=server.url, timeout=120) as client:
        for _ in range(600):  # a pipe holds less than 300 lines
            assert client.get("/health").status_code == 200
        server.process.terminate()
    assert server.process.wait(120) == 0
    os.close(reads)
    server.end("kill")
