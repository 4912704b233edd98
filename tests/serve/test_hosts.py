"""The server answers to its names only, and takes nothing from pages of other sites."""

import pytest
from fastapi.testclient import TestClient

from abaca.serve.hosts import HostCheck

from .samples import Serve


@pytest.fixture
def client(serve: Serve) -> TestClient:
    return serve(hosts=("localhost", "127.0.0.1", "::1", "shop.example", "*.shop.example"))


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("localhost", 200),
        ("LOCALHOST:8000", 200),
        ("127.0.0.1:8000", 200),
        ("[::1]:8000", 200),
        ("shop.example", 200),
        ("api.shop.example:443", 200),
        ("evil.example", 421),
        ("shop.example.evil.example", 421),
        ("notshop.example", 421),
        ("localhost@evil.example", 421),
        ("", 421),
        ("[", 421),
    ],
)
def test_only_its_own_names_are_answered_to(client: TestClient, host: str, status: int) -> None:
    answer = client.get("/model", headers={"host": host})
    assert answer.status_code == status
    if status == 421:
        assert "--allowed-host" in answer.json()["hint"]
    assert client.get("/health", headers={"host": host}).status_code == 200


@pytest.mark.parametrize(
    ("origin", "status"),
    [
        ("http://localhost:8000", 200),
        ("https://shop.example", 200),
        ("https://api.shop.example", 200),
        ("http://localhost:9999", 403),
        ("https://evil.example", 403),
        ("https://shop.example.evil.example", 403),
        ("null", 403),
        ("", 403),
        ("http://[", 403),
    ],
)
def test_pages_of_other_sites_are_refused(client: TestClient, origin: str, status: int) -> None:
    headers = {"host": "localhost:8000", "origin": origin}
    assert client.post("/recommend", json={"history": [1]}, headers=headers).status_code == status
    assert client.get("/model", headers=headers).status_code == status


def test_the_admin_port_takes_nothing_from_another_site(serve: Serve) -> None:
    client = serve(admin_port=80)
    client.base_url = "http://127.0.0.1"  # where the test's requests go
    assert client.post("/model/reload", headers={"origin": "http://evil.example"}).status_code == 403
    assert client.post("/model/reload", headers={"host": "evil.example"}).status_code == 421
    assert client.post("/model/reload").status_code == 200


def test_the_admin_port_is_not_the_same_port_of_another_address(serve: Serve) -> None:
    client = serve(admin_port=80)
    for host in ("localhost", "192.0.2.5"):
        client.base_url = f"http://{host}"
        assert client.post("/model/reload").status_code in (403, 421)


def test_the_own_address_is_known_at_a_socket_for_both_kinds_of_addresses() -> None:
    check = HostCheck(None, ("localhost",))  # type: ignore[arg-type]

    def refused(host: bytes) -> bool:
        scope = {"path": "/items", "server": ("::ffff:192.0.2.5", 8000), "headers": [(b"host", host)]}
        return check._refusal(scope) is not None

    assert not refused(b"192.0.2.5:8000")
    assert refused(b"192.0.2.6:8000")


def test_a_page_cannot_be_given_another_base_or_send_forms(client: TestClient) -> None:
    policy = client.get("/", headers={"host": "localhost"}).headers["content-security-policy"]
    assert "base-uri 'none'" in policy
    assert "form-action 'none'" in policy
