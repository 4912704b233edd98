"""Tokens have roles, come from a file that may change, are compared whole, and are never shown."""

import hashlib
import logging
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from abaca.errors import UserError
from abaca.serve import tokens as module
from abaca.serve.guards import JsonLines
from abaca.serve.store import open_store
from abaca.serve.tokens import ROLES, Tokens, read_tokens

from .samples import Serve

SECRETS = {role: f"secret-of-{role}-12345" for role in ROLES}


def write(file: Path, secrets: dict[str, str]) -> Path:
    file.write_text(
        "".join(f'["{role} token"]\ntoken = "{value}"\nroles = ["{role}"]\n' for role, value in secrets.items())
    )
    return file


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return write(tmp_path / "tokens.toml", SECRETS)


@pytest.fixture
def client(serve: Serve, file: Path, tmp_path: Path) -> TestClient:
    return serve(tokens=Tokens((), file), store=open_store(str(tmp_path / "events.db")))


def bearer(value: str) -> dict[str, str]:
    return {"authorization": f"Bearer {value}"}


REQUESTS: list[tuple[str, str, str, Any]] = [
    ("read", "GET", "/model", None),
    ("read", "POST", "/recommend", {"history": [1]}),
    ("read", "GET", "/users/u/history", None),
    ("events", "POST", "/events", {"events": [{"user": "u", "item": 1}]}),
    ("events", "POST", "/feedback", {"feedback": [{"user": "u", "item": 1, "kind": "shown"}]}),
    ("erase", "DELETE", "/users/u", None),
    ("admin", "POST", "/model/reload", None),
]


@pytest.mark.parametrize(("role", "method", "path", "body"), REQUESTS)
def test_each_request_needs_its_role(client: TestClient, role: str, method: str, path: str, body: Any) -> None:
    statuses = {
        name: client.request(method, path, json=body, headers=bearer(value)).status_code
        for name, value in SECRETS.items()
    }
    assert statuses == {name: 200 if name == role else 403 for name in ROLES}
    nobody = client.request(method, path, json=body)
    assert nobody.status_code == 401
    assert nobody.headers["www-authenticate"] == "Bearer"
    assert client.request(method, path, json=body, headers=bearer(SECRETS[role] + "x")).status_code == 401


def test_metrics_take_any_token_and_probes_none(client: TestClient) -> None:
    for value in SECRETS.values():
        assert client.get("/metrics", headers=bearer(value)).status_code == 200
    assert client.get("/metrics").status_code == 401
    assert client.get("/health").status_code == client.get("/ready").status_code == 200


def test_a_changed_file_counts_without_a_restart_and_a_broken_one_does_not(
    client: TestClient, file: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(module, "LOOK_SECONDS", -1.0)
    old, new = SECRETS["read"], "another-secret-12345"
    write(file, {"read": new})
    assert client.get("/model", headers=bearer(old)).status_code == 401
    assert client.get("/model", headers=bearer(new)).status_code == 200
    file.write_text(f'[read]\ntoken = "{new}"\nroles = ["write"]\n')
    assert client.get("/model", headers=bearer(new)).status_code == 200
    file.write_text("# no tokens\n")
    assert client.get("/model", headers=bearer(new)).status_code == 200
    file.unlink()
    assert client.get("/model", headers=bearer(new)).status_code == 200
    assert "the old tokens stay" in caplog.text
    assert new not in caplog.text


def test_a_change_while_the_file_is_read_is_seen(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LOOK_SECONDS", -1.0)
    real = module.read_tokens

    def changed_meanwhile(path: Path) -> Any:
        monkeypatch.setattr(module, "read_tokens", real)
        found = real(path)
        write(path, {"read": "another-secret-12345"})
        return found

    monkeypatch.setattr(module, "read_tokens", changed_meanwhile)
    tokens = Tokens((), file)
    assert tokens.find(b"another-secret-12345") is not None


def test_no_token_is_in_a_log_or_an_answer(client: TestClient, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        answers = [
            client.get("/model", headers=bearer(SECRETS["read"])),
            client.get("/model", headers=bearer(SECRETS["erase"])),
            client.get("/model", headers=bearer("guessed-secret-12345")),
        ]
    lines = [JsonLines().format(record) for record in caplog.records]
    assert any('"token": "read token"' in line for line in lines)
    for text in [*lines, *(answer.text for answer in answers)]:
        assert not any(secret in text for secret in [*SECRETS.values(), "guessed-secret-12345"])


def test_a_digest_stands_for_its_token(tmp_path: Path) -> None:
    digest = hashlib.sha256(b"a-secret-of-letters").hexdigest()
    (tmp_path / "tokens").write_text(f'[web]\nsha256 = "{digest}"\nroles = ["read", "events"]\nrate = 5\n')
    found = Tokens((), tmp_path / "tokens").find(b"a-secret-of-letters")
    assert found is not None
    assert (found.name, found.roles, found.rate) == ("web", {"read", "events"}, 5.0)
    assert Tokens((), tmp_path / "tokens").find(digest.encode()) is None


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[web\n", "line 1"),
        ("", "has no tokens"),
        ('[web]\ntoken = "short"\nroles = ["read"]\n', "at least 16"),
        ('[web]\ntoken = "long-enough-secret"\n', "needs roles"),
        ('[web]\ntoken = "long-enough-secret"\nroles = ["write"]\n', "read, events, erase, admin"),
        ('[web]\ntoken = "long-enough-secret"\nroles = ["read"]\nrate = 0\n', "rate"),
        ('[web]\ntoken = "long-enough-secret"\nrole = ["read"]\n', "takes token or sha256"),
        ('[web]\nsha256 = "12"\nroles = ["read"]\n', "hexadecimal"),
        (
            '[a]\ntoken = "long-enough-secret"\nroles = ["read"]\n' * 1
            + '[b]\ntoken = "long-enough-secret"\nroles = ["read"]\n',
            "twice",
        ),
    ],
)
def test_a_file_that_is_wrong_is_refused_without_showing_it(tmp_path: Path, text: str, said: str) -> None:
    file = tmp_path / "tokens.toml"
    file.write_text(text)
    with pytest.raises(UserError) as caught:
        read_tokens(file)
    assert said in str(caught.value)
    assert str(file) in str(caught.value)
    assert "secret" not in str(caught.value)


def test_a_rate_is_of_a_token_or_of_an_address(serve: Serve, tmp_path: Path) -> None:
    """A bucket holds the requests of two seconds; probes are not counted."""
    file = tmp_path / "tokens.toml"
    file.write_text(
        '[slow]\ntoken = "secret-of-slow-one"\nroles = ["read"]\nrate = 0.5\n'
        '[fast]\ntoken = "secret-of-fast-one"\nroles = ["read"]\n'
    )
    client = serve(tokens=Tokens((), file), rate=0.002)
    slow = [client.get("/model", headers=bearer("secret-of-slow-one")) for _ in range(3)]
    fast = [client.get("/model", headers=bearer("secret-of-fast-one")).status_code for _ in range(3)]
    assert slow[0].status_code == 200
    assert slow[-1].status_code == 429
    assert int(slow[-1].headers["retry-after"]) >= 1
    assert fast == [200, 429, 429]
    assert {client.get("/health").status_code for _ in range(9)} == {200}


def test_rates_of_addresses_are_of_networks_in_ipv6_and_callers_are_forgotten() -> None:
    from abaca.serve import rates

    limit = rates.RateLimit(None, 1.0)  # type: ignore[arg-type]

    def allowed(host: str) -> bool:
        return limit._wait({"client": (host, 1)}) == 0

    assert [allowed("10.0.0.1") for _ in range(3)] == [True, True, False]
    assert allowed("10.0.0.2")
    assert [allowed(f"2001:db8::{n}") for n in range(3)] == [True, True, False]
    assert allowed("2001:db8:0:1::1")
    assert [allowed(f"::ffff:10.0.0.{n}") for n in (1, 3, 4, 5)] == [False, True, True, True]
    for number in range(rates.MOST_KEYS):
        allowed(f"name{number}")
    assert len(limit._buckets) == rates.MOST_KEYS
