"""Heads, addresses, fields and connections have limits, and a client beyond them costs nobody else anything."""

import asyncio
import json
import random
import resource
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import psutil
import pytest
import uvicorn

from abaca.serve.bodies import MOST_PARAMETERS, InvalidBody, parsed
from abaca.serve.problems import problem
from abaca.serve.protocol import Hooks, Limits, limited
from abaca.serve.requests import Ask, Events
from abaca.serve.server import within_files

from .samples import Live, Serve, Shop

CPU_SECONDS = 0.1
"""What one refused request may cost the server, beside the ordinary cost of the probe after it."""


@pytest.fixture(scope="module")
def live(shop: Shop) -> Iterator[Live]:
    server = Live(shop.cpr, "--connections", "20", "--head-seconds", "1", "--read-seconds", "0.5").ready()
    yield server
    server.end("kill")


def connect(live: Live) -> socket.socket:
    host, port = live.url.removeprefix("http://").split(":")
    opened = socket.create_connection((host, int(port)), timeout=60)
    opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return opened


def received(connection: socket.socket) -> bytes:
    """All that comes until the server closes; what came before it cut the connection off."""
    found = b""
    try:
        while piece := connection.recv(65536):
            found += piece
    except ConnectionError:
        pass
    return found


def send(live: Live, pieces: Iterator[bytes] | list[bytes]) -> bytes:
    with connect(live) as connection:
        try:
            for piece in pieces:
                connection.sendall(piece)
        except ConnectionError:
            pass
        return received(connection)


def status(answer: bytes) -> int:
    return int(answer.split(b" ", 2)[1])


def refused(answer: bytes, code: int, words: str) -> None:
    head, _, body = answer.partition(b"\r\n\r\n")
    assert status(answer) == code, answer[:300]
    assert b"connection: close" in head
    assert words in json.loads(body)["detail"]


def cpu(live: Live) -> float:
    times = psutil.Process(live.process.pid).cpu_times()
    return float(times.user + times.system)


GET = b"GET /health HTTP/1.1\r\nhost: localhost\r\n"


@pytest.mark.parametrize(
    ("pieces", "code", "words"),
    [
        ([GET, b"x: " + b"y" * 40_000 + b"\r\n\r\n"], 431, "32,768 bytes"),
        ([GET, b"".join(b"x%d: y\r\n" % n for n in range(120)), b"\r\n"], 431, "100 fields"),
        ([b"GET /items?q=" + b"y" * 20_000 + b" HTTP/1.1\r\nhost: localhost\r\n\r\n"], 414, "16,384 bytes"),
        ([b"nonsense\r\n\r\n"], 400, "not HTTP"),
        ([b"\r\n" * 20_000], 431, "32,768 bytes"),
        ([(GET + b"\r\n") * 200], 400, "16 requests"),
    ],
)
def test_a_head_beyond_a_limit_is_refused_with_a_reason(live: Live, pieces: list[bytes], code: int, words: str) -> None:
    answer = send(live, pieces)
    if words == "16 requests":  # the requests before it may have been answered; the connection ends
        assert answer.count(b"HTTP/1.1 200") < 200
    else:
        refused(answer, code, words)
    assert live.client.get("/health").status_code == 200


HEADS = [
    GET + b"connection: close\r\n\r\n",
    b"GET /items?q=red&n=3 HTTP/1.1\r\nhost: localhost\r\naccept: */*\r\nx-deadline-ms: 500\r\n\r\n",
    b"POST /recommend HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
    b'content-length: 18\r\n\r\n{"history": [1,2]}',
    b"POST /recommend HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
    b'transfer-encoding: chunked\r\n\r\n12\r\n{"history": [1,2]}\r\n0\r\n\r\n',
    b"GET /model HTTP/1.0\r\nhost: localhost\r\nupgrade: websocket\r\nexpect: 100-continue\r\n\r\n",
]


def mutated(rng: random.Random) -> bytes:
    """A request in which pieces are changed, removed, repeated, or put in."""
    made = bytearray(rng.choice(HEADS))
    for _ in range(rng.randint(1, 4)):
        start = rng.randrange(len(made))
        piece = slice(start, start + rng.choice((0, 1, 3, 20)))
        made[piece] = rng.choice((b"", made[piece] * 2, rng.randbytes(4), b"\r\n", b":", b"\0", b"9" * 30, b"%ff../"))
        made += b"\r\n"
    return bytes(made)


def test_whatever_a_head_holds_it_is_answered_or_refused(live: Live) -> None:
    rng, seen = random.Random(6), set[int]()
    for _ in range(500):
        request = mutated(rng)
        with connect(live) as connection:
            connection.sendall(request)
            with suppress(OSError):
                connection.shutdown(socket.SHUT_WR)
            answer = received(connection)
        if answer:  # else the connection was closed
            assert status(answer) < 500, (request, answer)
            seen.add(status(answer))
    assert {200, 400, 404} <= seen
    assert live.client.get("/health").status_code == 200


def test_a_head_without_end_costs_neither_memory_nor_time(live: Live) -> None:
    """64 MiB in one field, and 16 MiB of short fields: the server stops reading, and its CPU time stays small."""
    memory, before = psutil.Process(live.process.pid).memory_info().rss, cpu(live)
    send(live, (GET + b"x: ", *[b"y" * 65536] * 1024))  # type: ignore[arg-type]
    send(live, (GET, *[b"a: b\r\n" * 10_000] * 256))  # type: ignore[arg-type]
    assert live.client.get("/health").status_code == 200
    assert cpu(live) - before < 2 * CPU_SECONDS
    assert psutil.Process(live.process.pid).memory_info().rss - memory < 32 << 20


def test_unknown_parameters_and_fields_cost_little(live: Live) -> None:
    before = cpu(live)
    many = "&".join(f"p{n}" for n in range(2500))
    answer = live.client.get(f"/items?{many}")
    assert answer.status_code == 422
    assert f"more than {MOST_PARAMETERS} parameters" in answer.json()["detail"]
    body = json.dumps({f"f{n}": 1 for n in range(330_000)}).encode()[: (4 << 20) - 2] + b"}"
    answer = live.client.post("/recommend", content=body, headers={"content-type": "application/json"})
    assert answer.status_code == 422
    assert "more than 50,000 fields" in answer.json()["detail"]
    assert cpu(live) - before < 2 * CPU_SECONDS


def test_an_object_has_few_fields_and_a_long_list_of_wrong_types_is_one_error() -> None:
    for model, body in (
        (Ask, {f"f{n}": 1 for n in range(101)}),
        (Events, {"events": [{"user": 1, "item": 1}, {f"f{n}": 1 for n in range(101)}]}),
    ):
        with pytest.raises(InvalidBody) as caught:
            parsed(json.dumps(body).encode(), model)
        assert "more than 100 fields" in caught.value.error["msg"]
    for wrong in ([1] * 200_000, [None, *[[1] * 30_000] * 6]):  # a minute and more, before
        began = time.process_time()
        with pytest.raises(InvalidBody):
            parsed(json.dumps({"history": [1], "types": wrong}).encode(), Ask)
        assert time.process_time() - began < 1


@pytest.mark.parametrize("number", [10**512, -(10**512), int("9" * 4300)])
def test_a_number_is_no_longer_than_a_text(number: int) -> None:
    most = 10**512 - 1
    taken = parsed(json.dumps({"events": [{"user": most, "item": -most}]}).encode(), Events)
    assert isinstance(taken, Events)
    assert taken.events[0].user == most
    for model, body in (
        (Events, {"events": [{"user": number, "item": 1}]}),
        (Events, {"events": [{"user": 1, "item": number}]}),
        (Ask, {"history": [1, number]}),
    ):
        with pytest.raises(InvalidBody) as caught:
            parsed(json.dumps(body).encode(), model)
        assert "at most 512 digits" in caught.value.error["msg"]


def test_a_large_body_is_not_parsed_in_the_event_loop(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    import threading

    from abaca.serve import bodies

    seen: list[str] = []

    def noting(body: bytes, model: Any) -> Any:
        seen.append(threading.current_thread().name)
        return parsed(body, model)

    monkeypatch.setattr(bodies, "parsed", noting)
    client = serve()
    small, large = {"history": [1, 2]}, {"histories": [list(range(30))] * 1000, "n": 1}
    assert len(client.post("/recommend", json=large).json()["answers"]) == 1000
    assert client.post("/recommend", json=small).status_code == 200
    assert seen[0].startswith("abaca-bodies")
    assert not seen[1].startswith("abaca-bodies")


def test_bodies_that_are_held_at_once_have_a_limit(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    from abaca.serve import guards

    monkeypatch.setattr(guards, "BODIES", 0)
    client = serve()
    answer = client.post("/recommend", json={"history": [1]})
    assert answer.status_code == 503
    assert "too many large bodies" in answer.json()["detail"]
    assert answer.headers["retry-after"] == "1"


def test_heads_that_never_end_shut_nobody_out(live: Live) -> None:
    """Twice the allowed connections stay half-sent; the longest are closed for those that come, the rest in time."""
    half = [connect(live) for _ in range(40)]
    for connection in half:
        connection.sendall(GET)
    for path in ("/health", "/model"):
        with connect(live) as other:
            other.sendall(f"GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n".encode())
            assert status(received(other)) == 200
    ends = [received(connection) for connection in half]  # each one is closed by the server
    assert [status(end) for end in ends if end] == [408] * len([end for end in ends if end])
    assert 0 < len([end for end in ends if end]) <= 20
    for connection in half:
        connection.close()


def test_a_connection_that_is_idle_or_sends_nothing_is_closed_for_a_new_one(live: Live) -> None:
    idle = []
    for _ in range(20):
        connection = connect(live)
        connection.sendall(GET + b"\r\n")
        assert connection.recv(4096).startswith(b"HTTP/1.1 200")
        idle.append(connection)
    with connect(live) as other:
        other.sendall(GET + b"connection: close\r\n\r\n")
        assert status(received(other)) == 200
    assert idle[0].recv(1) == b"" if not _reset(idle[0]) else True
    for connection in idle:
        connection.close()


def _reset(connection: socket.socket) -> bool:
    try:
        return connection.recv(1, socket.MSG_PEEK) != b""
    except ConnectionResetError:
        return True


def test_where_every_connection_is_busy_probes_are_still_answered(live: Live) -> None:
    """Requests whose body has not come keep all connections; a probe is answered, other requests are told to wait."""
    head = b"POST /recommend HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: 9\r\n\r\n"
    busy = [connect(live) for _ in range(20)]
    for connection in busy:
        connection.sendall(head)
    deadline = time.monotonic() + 60
    while True:  # until the server has read all of them
        answer = send(live, [b"GET /model HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n"])
        if answer and status(answer) == 503:
            break
        assert time.monotonic() < deadline
    assert b"retry-after: 1" in answer
    assert b"every connection is taken" in answer
    assert status(send(live, [GET + b"connection: close\r\n\r\n"])) == 200
    for connection in busy:
        connection.close()


def test_an_answer_that_nobody_reads_is_given_up(live: Live) -> None:
    body = json.dumps({"histories": [[1]] * 1000, "n": 30}).encode()
    head = f"host: localhost\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
    live.client.close()
    with connect(live) as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        for _ in range(4):
            connection.sendall(b"POST /recommend HTTP/1.1\r\n" + head.encode() + body)
        deadline = time.monotonic() + 120
        while _established(live):
            assert time.monotonic() < deadline
            time.sleep(0.05)


def test_a_body_that_comes_after_the_answer_leaves_the_connection_open() -> None:
    """The timer of the head, which begins with the body's bytes, ends with the body."""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await problem(401, "no", "no")(scope, receive, send)

    async def run() -> bytes:
        kind = limited(Limits(head_seconds=0.3), Hooks(lambda status: None))
        server = uvicorn.Server(uvicorn.Config(app, log_config=None, lifespan="off", http=kind, port=0))
        serving = asyncio.create_task(server.serve())
        while not server.started:
            await asyncio.sleep(0.01)
        port = server.servers[0].sockets[0].getsockname()[1]
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        head = b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 5\r\n\r\n"
        writer.write(head)
        await reader.readuntil(b"}")
        writer.write(b"12345")
        await asyncio.sleep(0.6)
        writer.write(head)
        found = await reader.readuntil(b"}")
        writer.close()
        server.should_exit = True
        await serving
        return found

    assert b"401" in asyncio.run(run())


def _established(server: Live) -> list[Any]:
    found = psutil.Process(server.process.pid).net_connections()
    return [one for one in found if one.status == psutil.CONN_ESTABLISHED and one.raddr]


def test_connections_fit_the_files_that_may_be_opened(shop: Shop) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    program = "from abaca.serve.server import within_files; from abaca.serve.protocol import Limits\n"
    program += "import resource; resource.setrlimit(resource.RLIMIT_NOFILE, (200, 256))\n"
    program += "print(within_files(Limits()).connections, resource.getrlimit(resource.RLIMIT_NOFILE)[0])"
    import sys

    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["160", "256"]
    assert within_files(Limits(connections=10)).connections == 10
    assert resource.getrlimit(resource.RLIMIT_NOFILE) == (soft, hard)
