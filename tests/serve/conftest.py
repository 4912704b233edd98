"""Two small models with titles, and a server in this process."""

import shutil
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from abaca.serve.app import ServerOptions, make_app
from abaca.serve.events import Store
from abaca.serve.metrics import Metrics
from abaca.serve.service import Service
from abaca.serve.store import open_store
from abaca.serve.tokens import Token, Tokens, digest_of

from .databases import KINDS, Cluster, disk_folder, pg_bin
from .samples import Serve, Shop, make_shop

COUNT = pytest.StashKey[int]()
"""How many databases the tests have made."""


@pytest.fixture(scope="session")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Shop:
    """Models of 30 items with integer ids, and the data they learned from."""
    return make_shop(tmp_path_factory.mktemp("served"))


@pytest.fixture
def serve(shop: Shop) -> Iterator[Serve]:
    """Makes a server in this process; models, store and options can be given."""
    with ExitStack() as opened:

        def make(models: list[Path] | None = None, **options: Any) -> TestClient:
            return opened.enter_context(make_client(models or shop.models, **options))

        yield make


@pytest.fixture(scope="module")
def client(shop: Shop) -> Iterator[TestClient]:
    """A server in this process that keeps nothing, for all tests of a module."""
    with make_client(shop.models) as made:
        yield made


def make_client(
    models: list[Path], store: Store | None = None, examples: Sequence[dict[str, Any]] = (), **options: Any
) -> TestClient:
    metrics = Metrics()
    names = {"token": ("read", "events", "erase"), "admin_token": ("admin",)}
    given = {name: options.pop(name, None) for name in names}
    tokens = [Token(name, digest_of(value), frozenset(names[name])) for name, value in given.items() if value]
    options.setdefault("tokens", Tokens(tokens))
    app = make_app(Service(models, observe=metrics.batch), metrics, store, examples, ServerOptions(**options))
    return TestClient(app, "http://localhost", raise_server_exceptions=False)


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    """A PostgreSQL server of the tests' own."""
    programs = pg_bin()
    if programs is None:
        pytest.skip("PostgreSQL is not installed (apt-get install postgresql)")
    made = Cluster(programs)
    yield made
    made.remove()


@pytest.fixture
def disk() -> Iterator[Path]:
    """A folder on a disk, wherever temporary files are kept."""
    made = disk_folder("abaca-disk-")
    yield made
    shutil.rmtree(made)


@pytest.fixture(params=KINDS)
def address(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A place for a store that nobody used before."""
    if request.param == "sqlite":
        return str(tmp_path / "events.db")
    cluster: Cluster = request.getfixturevalue("cluster")
    request.config.stash[COUNT] = number = request.config.stash.get(COUNT, 0) + 1
    return cluster.database(f"store{number}")


@pytest.fixture
def store(address: str) -> Iterator[Store]:
    opened = open_store(address)
    yield opened
    opened.close()
