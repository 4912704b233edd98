"""What several tests need: one thread, a Spark for small logs, a small synthetic log prepared once, and commands."""

import os
from collections.abc import Iterator
from pathlib import Path

import hypothesis
import pytest
import torch

from abaca.data.log import read_log
from abaca.data.prepare import prepare
from abaca.data.sequences import Sequences
from abaca.data.synthetic import synthetic_log
from commandline import Cli, runner

hypothesis.settings.register_profile("abaca", deadline=None, database=None, derandomize=True)
hypothesis.settings.load_profile("abaca")
os.environ["SPARK_CONF_DIR"] = str(Path(__file__).parent / "spark" / "conf")


@pytest.fixture(scope="session", autouse=True)
def one_thread() -> Iterator[None]:
    """Tests run beside each other, and equality to the bit is promised per number of threads."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session")
def small(tmp_path_factory: pytest.TempPathFactory) -> Sequences:
    """60 users with 14 interactions each, 40 items with integer ids, 660 training targets."""
    folder: Path = tmp_path_factory.mktemp("small") / "sequences"
    with read_log(synthetic_log("copy-after-repeat", users=60, items=40, length=14, seed=5)) as log:
        return prepare(log, folder)


@pytest.fixture
def cli(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Cli:
    """Runs a command in this process."""
    return runner(monkeypatch, capsys)
