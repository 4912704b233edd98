"""The files of a model directory: their modes, other users, full disks, and what a crash leaves."""

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from abaca.errors import ModelError
from abaca.recommender import Recommender
from abaca.search.index import Index, build
from abaca.search.tune import write_index
from abaca.training.checkpoint import MODEL, load_model, save_model, set_index, weights_of
from abaca.training.state import append_record
from faults import another_user, largest_file, shared_folder
from models import untrained


@pytest.fixture
def shared() -> Iterator[Path]:
    with shared_folder() as folder:
        yield folder


@pytest.fixture
def umask() -> Iterator[int]:
    before = os.umask(0o022)
    yield 0o644
    os.umask(before)


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def small_index(recommender: Recommender) -> Index:
    assert recommender.saved is not None
    return build(recommender.saved.model.table.detach().numpy(), "flat")


def test_every_file_has_the_mode_of_the_umask(tmp_path: Path, umask: int) -> None:
    """Also where a killed process left a part that only its user may read, as safetensors makes it."""
    model = tmp_path / "model"
    model.mkdir()
    os.close(os.open(model / "weights.new.safetensors.part", os.O_CREAT | os.O_WRONLY, 0o600))
    recommender = untrained(model)
    write_index(model, weights_of(model), small_index(recommender), {})
    assert {stat.S_IMODE(path.stat().st_mode) for path in model.iterdir()} == {umask}


@pytest.mark.parametrize("file", [MODEL, "weights-*", "catalogue-*"])
def test_a_file_that_this_user_may_not_read_is_called_that(shared: Path, file: str) -> None:
    untrained(shared / "model")
    (path,) = (shared / "model").glob(file)
    path.chmod(0)
    with (
        another_user(),
        pytest.raises(ModelError, match=r"cannot be read \(Permission denied\); give this user the perm"),
    ):
        load_model(shared / "model")
    path.chmod(0o644)
    with another_user():
        load_model(shared / "model")


def test_a_folder_that_this_user_may_not_enter_is_called_that(shared: Path) -> None:
    untrained(shared / "model")
    (shared / "model").chmod(0o700 if os.getuid() == 0 else 0)
    with another_user(), pytest.raises(ModelError, match=r"model cannot be read \(Permission denied\)"):
        load_model(shared / "model")
    (shared / "model").chmod(0o755)


def test_a_folder_that_this_user_may_not_write_is_called_that(shared: Path) -> None:
    recommender = untrained(shared / "model")
    for folder in (shared / "model", shared):
        folder.chmod(0o555)
    for to in (shared / "model", shared / "other"):
        with (
            another_user(),
            pytest.raises(ModelError, match=r"Permission denied.*; give this user the permission to wri"),
        ):
            recommender.save(to)
    for folder in (shared, shared / "model"):
        folder.chmod(0o755)


def test_what_a_crash_left_goes_with_the_next_save(tmp_path: Path) -> None:
    """Files of ours are named after their checksum; a user's own files stay, however they are called."""
    other, model = tmp_path / "other", tmp_path / "model"
    recommender = untrained(other, "softmax+C", ids=["a", "b"])
    write_index(other, weights_of(other), small_index(recommender), {})
    saved = untrained(model).saved
    assert saved is not None
    whole = names(model)
    for path in other.iterdir():
        if path.name not in (MODEL, "card.md"):
            path.rename(model / path.name)
    for draft in ("weights.new.safetensors", "weights.new.safetensors.part", "index.new.faiss", "ledger.new.parquet"):
        (model / draft).write_text("half")
    own = {"weights-0123456789ab.safetensors", "weights-mine.safetensors", "catalogue-2024.json", "notes.txt"}
    for name in own:
        (model / name).write_text("mine")
    save_model(model, saved)
    assert names(model) == whole | own
    load_model(model)


def test_the_index_of_the_model_stays_when_it_is_saved_again(tmp_path: Path) -> None:
    recommender = untrained(tmp_path)
    write_index(tmp_path, weights_of(tmp_path), small_index(recommender), {})
    Recommender.load(tmp_path).save(tmp_path)
    assert load_model(tmp_path).index is not None


@pytest.mark.parametrize("missing", [1, 50_000])
def test_an_index_on_a_full_disk_leaves_nothing_and_says_why(tmp_path: Path, missing: int) -> None:
    """One byte too few is too few: faiss itself does not notice what it cannot write when it closes a file."""
    ids = [f"i{number}" for number in range(2000)]
    recommender = untrained(tmp_path, ids=ids)
    before, index = names(tmp_path), small_index(recommender)
    index.write(tmp_path / "whole")
    size = (tmp_path / "whole").stat().st_size
    (tmp_path / "whole").unlink()
    with largest_file(size - missing), pytest.raises(ModelError, match=r"cannot be written \(.*\); free disk space"):
        write_index(tmp_path, weights_of(tmp_path), index, {})
    assert names(tmp_path) == before
    assert load_model(tmp_path).index is None
    set_index(tmp_path, weights_of(tmp_path), None)


def test_a_record_on_a_full_disk_is_whole_or_absent(tmp_path: Path) -> None:
    append_record(tmp_path, {"epoch": 0})
    with largest_file(30), pytest.raises(ModelError, match="a line could not be added"):
        append_record(tmp_path, {"epoch": 1, "loss": 0.123456789, "seconds": 12.5})
    append_record(tmp_path, {"epoch": 2})
    assert (tmp_path / "training.jsonl").read_text() == '{"epoch": 0}\n{"epoch": 2}\n'
