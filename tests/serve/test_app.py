"""The HTTP interface: what it answers, what it refuses and how."""

import json
import logging
import shutil
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient
from prometheus_client.parser import text_string_to_metric_families

import abaca
from abaca.serve.examples import example_users
from abaca.serve.guards import JsonLines

from .samples import ITEMS, Serve, Shop, title

TOKEN = "a-token-of-enough-letters"


def problem(response: Any, status: int, *words: str) -> None:
    """An error that says what and what to do."""
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/problem+json"
    body = response.json()
    assert body["status"] == status
    assert body["hint"]
    for word in words:
        assert word in json.dumps(body, ensure_ascii=False)


def test_one_history_is_answered_as_the_library_answers(client: TestClient, shop: Shop) -> None:
    body = {"history": [1, 2, 1, 777], "n": 4}
    answer = client.post("/recommend", json=body).json()
    expected = abaca.load(shop.cpr).recommend([1, 2, 1, 777], 4)
    assert answer["model"] == "cpr"
    (found,) = answer["answers"]
    assert [item["id"] for item in found["items"]] == expected.ids
    assert [item["title"] for item in found["items"]] == [title(int(id)) for id in expected.ids]
    assert [item["reason"] for item in found["items"]] == [item.reason for item in expected]
    assert [item["probability"] for item in found["items"]] == pytest.approx([i.probability for i in expected])
    assert found["unknown"] == [777]
    assert found["repeat_probability"] == pytest.approx(expected.repeat_probability)


def test_many_histories_policies_and_the_other_model(client: TestClient, shop: Shop) -> None:
    histories = [[1, 2, 1], [], [5, 6]]
    other = abaca.load(shop.softmax)
    for policy in (
        {"repeats": "exclude"},
        {"repeats": "only"},
        {"max_repeat_share": 0.2},
        {"exclude": [1, 9], "candidates": [1, 2, 3, 9]},
        {"candidates": []},
    ):
        body = {"histories": histories, "n": 5, "model": "softmax", **policy}
        answers = client.post("/recommend", json=body).json()["answers"]
        expected = other.recommend_many(histories, 5, **policy)  # type: ignore[arg-type]
        assert [[item["id"] for item in one["items"]] for one in answers] == [one.ids for one in expected]
    assert client.post("/recommend", json={"histories": []}).json()["answers"] == []


def test_numbers_are_those_of_json(client: TestClient) -> None:
    """3.0 is 3, text finds the integer that it spells, and a number has no largest one."""
    answer = client.post("/recommend", json={"history": [1.0, 2, 10**30, "3"], "n": 2.0}).json()["answers"][0]
    assert answer["unknown"] == [10**30]
    assert len(answer["items"]) == 2


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({}, ["give either history"]),
        ({"history": [1], "histories": [[1]]}, ["give either history"]),
        ({"histoy": [1]}, ["histoy: there is no such field", "did you mean history?"]),
        ({"history": "milk"}, ["history", "list"]),
        ({"history": [1.5]}, ["history.0: an id is a whole number, or text"]),
        ({"history": [True]}, ["history.0: an id is"]),
        ({"history": [None]}, ["history.0: an id is"]),
        ({"history": None}, ["history"]),
        ({"history": ["x" * 513]}, ["history.0"]),
        ({"history": [1] * 10_001}, ["at most 10000"]),
        ({"histories": [[]] * 1001}, ["at most 1000"]),
        ({"history": [1], "n": 0}, ["n: ", "greater than or equal to 1"]),
        ({"history": [1], "n": 1001}, ["n: "]),
        ({"history": [1], "n": "3"}, ["n: ", "integer"]),
        ({"history": [1], "n": True}, ["n: ", "integer"]),
        ({"history": [1], "repeats": "never"}, ["repeats", "'auto', 'exclude' or 'only'"]),
        ({"history": [1], "max_repeat_share": 2}, ["max_repeat_share"]),
        ([1, 2], ["object"]),
    ],
)
def test_a_body_that_does_not_fit_is_refused_with_a_hint(client: TestClient, body: Any, words: list[str]) -> None:
    refused = client.post("/recommend", json=body)
    problem(refused, 422, *words)
    assert "Value error" not in refused.text


@pytest.mark.parametrize(
    ("content", "status"),
    [
        (b"", 422),
        (b"{", 400),
        (b"\xff\xfe", 400),
        (b"[" * 40_000, 400),
        (b"[" * 100_000, 422),
        (b'{"history": [1], "max_repeat_share": NaN}', 422),
        (b'{"history": [NaN]}', 422),
        (b'{"histories": [[1], [-Infinity]]}', 422),
        (b'{"history": [1], "max_repeat_share": Infinity}', 422),
        (b'{"history": [' + b"9" * 5000 + b"]}", 400),
        (rb'{"history": ["\ud800"]}', 422),
        (rb'{"\udfff": 1}', 422),
        (rb'{"history": ["\u0000"]}', 422),
    ],
)
def test_a_body_that_is_no_json_is_refused(client: TestClient, content: bytes, status: int) -> None:
    kind = {"content-type": "application/json"}
    problem(client.post("/recommend", content=content, headers=kind), status)
    assert client.post("/recommend", json={"history": [1]}).status_code == 200


def test_other_types_methods_and_addresses_are_refused(client: TestClient) -> None:
    form = {"content-type": "application/x-www-form-urlencoded"}
    problem(client.post("/recommend", content=b"history=1", headers=form), 415, "Content-Type: application/json")
    problem(client.get("/recommend"), 405)
    problem(client.get("/nothing"), 404, "/docs")
    problem(client.post("/recommend", json={"history": [], "model": "x"}), 404, "available: cpr, softmax")
    problem(client.get("/items", params={"model": "x"}), 404)
    problem(client.get("/items", params={"size": "3"}), 422, "size")


def test_no_file_can_be_reached(client: TestClient, shop: Shop) -> None:
    """Neither the model's files nor the server's own, however the address is spelled."""
    for name in (
        "../app.py",
        "..%2fapp.py",
        "%2e%2e/app.py",
        "..%5capp.py",
        "/etc/passwd",
        str(shop.cpr / "model.json"),
    ):
        answer = client.get(f"/static/{name}")
        assert answer.status_code == 404
    problem(client.post("/recommend", json={"history": [], "model": str(shop.cpr)}), 404)
    assert str(shop.cpr.parent) not in client.get("/model").text


def test_items_are_found(client: TestClient) -> None:
    found = client.get("/items", params={"q": "green THING 1", "n": 3}).json()["items"]
    assert len(found) == 3
    assert found[0]["title"] == "Green thing 1"
    assert all(item["title"] == title(item["id"]) for item in found)
    assert client.get("/items", params={"q": "7"}).json()["items"][0]["id"] == 7
    assert len(client.get("/items", params={"n": 100}).json()["items"]) == ITEMS
    assert client.get("/items", params={"id": ["7", "900", "4"]}).json()["items"] == [
        {"id": id, "title": title(id)} for id in (7, 4)
    ]
    problem(client.get("/items", params={"id": ["7"] * 101}), 422, "at most 100")


def test_health_model_and_metrics(serve: Serve) -> None:
    client = serve()
    assert client.get("/health").json() == {"status": "ok"}
    assert client.get("/ready").json() == {"status": "ready", "models": ["cpr", "softmax"]}
    about = client.get("/model").json()
    assert [model["output"] for model in about["models"]] == ["softmax+CPR:5", "softmax"]
    assert about["store"] is False
    client.post("/recommend", json={"histories": [[1], [2], [500, 501]]})
    client.get("/nowhere")
    samples = {
        (sample.name, *sorted(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(client.get("/metrics").text)
        for sample in family.samples
    }
    where = ("method", "POST"), ("route", "/recommend"), ("status", "200")
    assert samples["abaca_requests_total", *where] == 1
    assert samples["abaca_requests_total", ("method", "GET"), ("route", "none"), ("status", "404")] == 1
    assert samples["abaca_batch_histories_sum",] == 3
    assert samples["abaca_unknown_ids_total",] == 2
    assert samples["abaca_waiting_histories",] == 0
    assert {labels[1][1] for name, *labels in samples if name == "abaca_model_info"} == {
        model["version"] for model in about["models"]
    }


def test_the_token_opens_everything_but_the_page_and_health(serve: Serve) -> None:
    client = serve(token=TOKEN)
    for path in ("/", "/docs", "/openapi.json", "/static/page.css", "/health", "/ready"):
        assert client.get(path).status_code == 200
    closed = ["/model", "/items", "/examples", "/metrics", "/users", "/users/7/history", "/users/7/recommendations"]
    for path in closed:
        refused = client.get(path)
        problem(refused, 401, "Authorization: Bearer")
        assert refused.headers["www-authenticate"] == "Bearer"
    problem(client.post("/recommend", json={"history": [1]}), 401)
    for wrong in (f"Bearer {TOKEN}x", f"Bearer {TOKEN[:-1]}", TOKEN, "Bearer", "Bearer é", f"Basic {TOKEN}"):
        problem(client.get("/model", headers={"authorization": wrong.encode()}), 401)
    assert client.get("/model", headers={"authorization": f"bearer {TOKEN}"}).status_code == 200
    assert "HTTPBearer" in client.get("/openapi.json").json()["components"]["securitySchemes"]


def test_users_of_refused_requests_are_not_logged(serve: Serve, caplog: pytest.LogCaptureFixture) -> None:
    client = serve(token=TOKEN)
    with caplog.at_level(logging.INFO, "abaca.serve.access"):
        problem(client.get("/users/alice@example.org/history"), 401)
    (line,) = [JsonLines().format(record) for record in caplog.records if record.name == "abaca.serve.access"]
    assert "alice" not in line
    assert json.loads(line)["status"] == 401


def test_reloading_needs_the_admin_token(serve: Serve, shop: Shop, tmp_path: Path) -> None:
    folder = tmp_path / "model"
    shutil.copytree(shop.cpr, folder)
    client = serve([folder], token=TOKEN, admin_token="another-token-of-letters")
    problem(client.post("/model/reload", headers={"authorization": f"Bearer {TOKEN}"}), 403, "admin token")
    admin = {"authorization": "Bearer another-token-of-letters"}
    abaca.load(shop.softmax).save(folder)
    assert client.post("/model/reload", headers=admin).json()["models"][0]["output"] == "softmax"
    next(folder.glob("catalogue-*")).unlink()
    problem(client.post("/model/reload", headers=admin), 409, "is missing")
    user = {"authorization": f"Bearer {TOKEN}"}
    assert client.get("/model", headers=user).json()["models"][0]["output"] == "softmax"
    assert client.post("/recommend", json={"history": [1]}, headers=user).status_code == 200
    text = client.get("/metrics", headers=user).text
    assert 'abaca_reloads_total{result="refused"} 1.0' in text
    assert 'abaca_reloads_total{result="done"} 1.0' in text


def test_without_an_admin_token_reloading_is_off(client: TestClient) -> None:
    problem(client.post("/model/reload"), 403, "SIGHUP")


def test_a_reload_at_the_wrong_port_names_the_admin_port(serve: Serve) -> None:
    assert "127.0.0.1:9123" in serve(admin_port=9123).post("/model/reload").json()["hint"]


def test_a_body_over_the_limit_is_refused_whatever_its_header_says(serve: Serve) -> None:
    client = serve(body_bytes=1000)
    assert client.post("/recommend", json={"history": [1] * 100}).status_code == 200
    problem(client.post("/recommend", json={"history": [1] * 1000}), 413, "1,000 bytes")
    kind = {"content-type": "application/json"}
    pieces = (b" " * 400 for _ in range(9))
    problem(client.post("/recommend", content=pieces, headers=kind), 413, "1,000 bytes")
    lying = {**kind, "content-length": "many"}
    problem(client.post("/recommend", content=b" " * 2000, headers=lying), 413)


def test_an_answer_that_takes_too_long_is_given_up(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    client = serve(seconds=0.1)
    service = client.app.state.api.service  # type: ignore[attr-defined]
    answer = service.batcher.work
    monkeypatch.setattr(service.batcher, "work", lambda asked: (time.sleep(0.5), answer(asked))[1])
    late = client.post("/recommend", json={"history": [1]})
    problem(late, 503, "no answer within 0.1 s")
    assert late.headers["retry-after"] == "1"
    monkeypatch.setattr(service.batcher, "work", answer)
    time.sleep(0.5)
    assert client.post("/recommend", json={"history": [1]}).status_code == 200


def test_a_client_may_name_its_deadline_and_nothing_is_done_after_it(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = serve()
    batcher = client.app.state.api.service.batcher  # type: ignore[attr-defined]
    answer, go, seen = batcher.work, threading.Event(), []
    monkeypatch.setattr(batcher, "work", lambda asked: (seen.append(len(asked)), go.wait(60), answer(asked))[2])
    hurry = {"x-deadline-ms": "100"}
    for _ in range(3):  # the first is being worked on; the others leave the queue again
        late = client.post("/recommend", json={"history": [1]}, headers=hurry)
        problem(late, 503, "no answer within 0.1 s")
    go.set()
    assert client.post("/recommend", json={"history": [1]}, headers={"x-deadline-ms": "60000"}).status_code == 200
    assert seen == [1, 1]
    for wrong in ("0", "-1", "soon", "1.5", "9" * 30):
        problem(client.get("/model", headers={"x-deadline-ms": wrong}), 400, "x-deadline-ms")


def test_too_much_at_once_is_refused(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    client = serve()
    batcher = client.app.state.api.service.batcher  # type: ignore[attr-defined]
    monkeypatch.setattr(batcher, "room", -1)
    batcher._waiting.append((None, None))
    refused = client.post("/recommend", json={"history": [1]})
    batcher._waiting.clear()
    problem(refused, 503, "in the queue")


def test_a_mistake_of_ours_is_one_message_and_a_line_in_the_log(
    serve: Serve, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    client = serve()
    service = client.app.state.api.service  # type: ignore[attr-defined]
    monkeypatch.setattr(service.batcher, "work", lambda asked: 1 / 0)
    answer = client.post("/recommend", json={"history": [1]})
    problem(answer, 500, "the server failed to answer")
    assert "ZeroDivisionError" not in answer.text
    assert answer.headers["x-request-id"] in answer.json()["hint"]
    assert any(record.exc_info and answer.headers["x-request-id"] in record.getMessage() for record in caplog.records)


def test_each_request_is_one_json_line_that_tells_no_secrets(serve: Serve, caplog: pytest.LogCaptureFixture) -> None:
    client = serve(token=TOKEN)
    with caplog.at_level(logging.INFO, "abaca.serve.access"):
        client.get("/items?q=secret", headers={"authorization": f"Bearer {TOKEN}"})
        client.get("/users/secret/history", headers={"authorization": f"Bearer {TOKEN}"})
        client.get("/no%0Awhere", headers={"authorization": f"Bearer {TOKEN}"})
    lines = [JsonLines().format(record) for record in caplog.records if record.name == "abaca.serve.access"]
    assert all("\n" not in line and TOKEN not in line and "secret" not in line for line in lines)
    first, second, third = map(json.loads, lines)
    assert (first["method"], first["route"], first["status"]) == ("GET", "/items", 200)
    assert first["ms"] > 0
    assert first["bytes"] > 0
    assert (second["route"], second["status"]) == ("/users/{user}/history", 404)
    assert third["path"].startswith("/no")


def test_the_page_and_the_docs_work_offline(client: TestClient) -> None:
    """Everything they load comes from this server, and nothing else is allowed."""
    for path in ("/", "/docs"):
        page = client.get(path)
        assert page.headers["content-type"].startswith("text/html")
        assert "default-src 'self'" in page.headers["content-security-policy"]
        assert "http://" not in page.text
        assert "https://" not in page.text
        loaded = [part.split('"')[0] for part in page.text.replace('src="', 'href="').split('href="')[1:]]
        for address in loaded:
            if address.startswith("/static/"):
                assert client.get(address).status_code == 200, address
    etag = client.get("/").headers["etag"]
    assert client.get("/", headers={"if-none-match": etag}).status_code == 304
    assert client.get("/openapi.json").json()["info"]["version"] == abaca.__version__


def test_example_users_go_from_exploring_to_repeating(serve: Serve, shop: Shop) -> None:
    client = serve(examples=example_users(shop.sequences))
    examples = client.get("/examples").json()["examples"]
    assert 2 <= len(examples) <= 12
    shares = [example["repeat_share"] for example in examples]
    assert shares == sorted(shares)
    sequences = abaca.Sequences.open(shop.sequences)
    for example in examples:
        user = sequences.user_ids.index(int(example["user"]))  # type: ignore[arg-type]
        end = sequences.offsets[user + 1]
        before_the_target = sequences.history(user, int(end) - 1).tolist()
        assert [item["id"] for item in example["items"]] == [sequences.catalogue.ids[i] for i in before_the_target]
    assert serve().get("/examples").json() == {"examples": []}


def test_without_a_store_nothing_is_remembered(client: TestClient) -> None:
    body = {"events": [{"user": 1, "item": 2}]}
    problem(client.post("/events", json=body), 404, "--store")
    problem(client.get("/users/1/recommendations"), 404, "--store")
    problem(client.get("/users"), 404, "--store")


def test_an_answer_may_be_long_but_not_endless(client: TestClient) -> None:
    asked = {"histories": [[1]] * 200, "n": 10}
    answers = client.post("/recommend", json=asked).json()["answers"]
    assert len(answers) == 200
    assert all(answer == answers[0] for answer in answers)
    refused = client.post("/recommend", json={"histories": [[1]] * 1000, "n": 51})
    assert refused.status_code == 422
    assert "at most 50000 items" in refused.text
