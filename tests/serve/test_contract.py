"""The OpenAPI document is true, and nothing malformed is taken or brings the server down."""

import http.client
import itertools
import json
import random
from collections.abc import Iterator
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from schemathesis import GenerationMode

from .samples import Live, Shop

BODIES = 10_000


@pytest.fixture(scope="module")
def live(shop: Shop, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    server = Live(shop.cpr, "--store", tmp_path_factory.mktemp("contract") / "events.db").ready()
    yield server
    code, log = server.end()
    assert code == 0
    assert not any('"error"' in line for line in log)


@pytest.fixture(scope="module")
def described(live: Live) -> Any:
    """The server's own description of itself, with the server behind it."""
    return schemathesis.openapi.from_url(f"{live.url}/openapi.json")


OPERATIONS = [
    ("POST", "/recommend"),
    ("GET", "/items"),
    ("POST", "/items"),
    ("GET", "/model"),
    ("POST", "/model/reload"),
    ("GET", "/examples"),
    ("POST", "/events"),
    ("POST", "/feedback"),
    ("GET", "/users"),
    ("GET", "/users/{user}/recommendations"),
    ("POST", "/users/{user}/recommendations"),
    ("GET", "/users/{user}/history"),
    ("DELETE", "/users/{user}"),
    ("GET", "/health"),
    ("GET", "/ready"),
    ("GET", "/metrics"),
]


@pytest.mark.parametrize(("method", "path"), OPERATIONS)
def test_the_server_does_what_its_openapi_document_says(described: Any, method: str, path: str) -> None:
    """Requests that fit the document, and those that do not, are answered as it says."""
    entry = described.raw_schema["paths"][path][method.lower()]
    takes = "requestBody" in entry or any(one["in"] == "query" for one in entry.get("parameters", []))
    for mode in GenerationMode if takes else [GenerationMode.POSITIVE]:  # any text can be a user
        cases = described[path][method].as_strategy(generation_mode=mode)

        @settings(max_examples=20, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
        @given(case=cases.map(with_known_columns).map(with_one_time_each) if mode is GenerationMode.POSITIVE else cases)
        def check(case: Any) -> None:
            case.call_and_validate()

        check()


def with_one_time_each(case: Any) -> Any:
    """With as many times as there are items, of those that were drawn: OpenAPI cannot say how many there must be."""
    body = case.body
    if not isinstance(body, dict) or "times" not in body:
        return case
    drawn = [time for entry in body["times"] for time in (entry if isinstance(entry, list) else [entry])]
    times = itertools.cycle([time for time in drawn if time is not None] or [0])
    several = [body["history"]] if "history" in body else body["histories"]
    fitting = [list(itertools.islice(times, len(history))) for history in several]
    body["times"] = fitting[0] if "history" in body else fitting
    return case


def with_known_columns(case: Any) -> Any:
    """What OpenAPI does not know: columns of items, cool-downs without times, a model without types and features."""
    body = case.body
    for part in (body, case.query):
        if isinstance(part, dict):
            part.pop("min_cold", None)
            if isinstance(part.get("cooldown"), list):
                part["cooldown"] = [each.partition(" of ")[0] for each in part["cooldown"]]
    if isinstance(body, dict):
        body.pop("types", None)
        for event in [*body.get("events", []), *body.get("feedback", [])]:
            event["time"] = min(event.get("time", 0), 1e9)
        for name in {"at_most", "at_least", "boost_category"} & set(body):
            body[name] = dict(zip(["title"], body[name].values(), strict=False))
        if "cooldown" in body:
            body["cooldown"] = ["2 items" for _ in body["cooldown"]]
    return case


def test_the_document_lists_every_operation(described: Any) -> None:
    listed = {(result.ok().method.upper(), result.ok().path) for result in described.get_all_operations()}
    assert listed == set(OPERATIONS)


@pytest.mark.slow
def test_ten_thousand_malformed_bodies_are_refused_and_the_server_still_answers(live: Live) -> None:
    rng = random.Random(7)
    connection = http.client.HTTPConnection(live.url.removeprefix("http://"), timeout=60)
    seen: dict[int, int] = {}
    for _ in range(BODIES):
        path = rng.choice(("/recommend", "/events"))
        content = malformed(path, rng)
        connection.request("POST", path, content, {"content-type": "application/json"})
        answer = connection.getresponse()
        said = json.loads(answer.read())
        assert 400 <= answer.status < 500, (path, content[:500], said)
        assert said["hint"]
        seen[answer.status] = seen.get(answer.status, 0) + 1
    assert set(seen) == {400, 422}
    assert min(seen.values()) > BODIES / 10
    assert live.client.post("/recommend", json={"history": [1, 2]}).status_code == 200
    assert live.client.get("/users/u/history").json()["items"] == []
    connection.close()


def malformed(path: str, rng: random.Random) -> bytes:
    """A good body made bad: cut, with bytes that are no text, of the wrong type, too large, or with unknown fields."""
    if path == "/recommend":
        good: dict[str, Any] = {"history": [1, "a"], "n": 3, "repeats": "auto", "max_repeat_share": 0.5, "exclude": [2]}
    else:
        good = {"events": [{"user": "u", "item": 1, "time": 5.5, "id": "e"}]}
    whole = json.dumps(good).encode()
    place = rng.randrange(len(whole))
    ways = (
        lambda: whole[:place],
        lambda: whole[:place] + bytes([rng.randrange(0x80, 0xC0)]) + whole[place:],
        lambda: whole + bytes(rng.choices(range(33, 127), k=rng.randrange(1, 40))),
        lambda: rng.choice((b"[", b'{"a":')) * rng.randrange(1, 3000),
        lambda: rng.randbytes(rng.randrange(0, 200)) + b"\x00",
        lambda: json.dumps(wrong_value(good, rng)).encode(),
        lambda: json.dumps({**good, rng.choice(("N", "seq", "", "\u0000", "__proto__", "x" * 500)): 1}).encode(),
        lambda: json.dumps(rng.choice((None, True, 3, "text", [good], [], {}))).encode(),
    )
    return rng.choice(ways)()


def wrong_value(good: dict[str, Any], rng: random.Random) -> dict[str, Any]:
    """One value of a type, size or kind that its field never has."""
    wrong = (None, True, {"a": 1}, [[[]]], [None], [1.5], "\ud800", float("nan"), "x" * 600)
    bad = json.loads(json.dumps(good))
    inside = bad if "history" in bad else rng.choice((bad, bad["events"][0]))
    inside[rng.choice(list(inside))] = rng.choice(wrong)
    return bad
