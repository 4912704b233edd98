"""The model directory: what goes in comes out, and what is damaged is refused."""

import json
import resource
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from abaca import durable
from abaca.data.catalogue import Catalogue
from abaca.durable import write_text
from abaca.errors import ModelError
from abaca.evaluation.ranker import ModelRanker
from abaca.histories import Histories
from abaca.nn.answers import Question
from abaca.nn.build import make_model
from abaca.training import checkpoint, state
from abaca.training.checkpoint import Saved, load_model, save_model
from abaca.training.document import FORMAT, MODEL, document_digest
from abaca.training.state import append_record, load_state, save_state, write_record, write_tensors
from forged import forge_weights
from models import untrained

ITEMS = 12
SIZES: dict[str, dict[str, Any]] = {
    "gru4rec": {"dim": 4, "hidden": 6},
    "sasrec": {"dim": 4, "window": 7, "inner": 8},
    "hstu": {"dim": 4},
}


def made(encoder: str = "gru4rec", output: str = "softmax+CPR:3", seed: int = 0, items: int = ITEMS) -> Saved:
    torch.manual_seed(seed)
    model = make_model(encoder, output, items, **SIZES[encoder]).eval()
    catalogue = Catalogue(
        [f"sku {i} “é” 🍞" for i in range(items)], columns={"title": [f"item {i}" for i in range(items)]}
    )
    return Saved(model, encoder, output, SIZES[encoder], catalogue, {"seed": seed})


def ranks(saved: Saved) -> list[int]:
    histories = Histories.of([[1, 2, 1], [5], [3, 3, 4, 11]])
    question = Question(torch.tensor([2, 7, 3]), 5, torch.tensor([[1], [5], [3]]), torch.empty(3, 0, dtype=torch.int64))
    found = ModelRanker(saved.model, 7).ask(histories, question)
    return [*found.rank.tolist(), *found.items.flatten().tolist(), *found.mass.tolist()]


@pytest.mark.parametrize(
    "output",
    ["softmax", "softmax+CPR:3", "softmax+CPR:2,4+Mi", "softmax+R:3+nodup", "mos:3+C", "mos-mix:2", "repeatnet"],
)
@pytest.mark.parametrize("encoder", ["gru4rec", "sasrec", "hstu"])
def test_round_trip(tmp_path: Path, encoder: str, output: str) -> None:
    saved = made(encoder, output)
    save_model(tmp_path / "deep" / "model", saved)
    loaded = load_model(tmp_path / "deep" / "model")
    before, after = saved.model.state_dict(), loaded.model.state_dict()
    assert before.keys() == after.keys()
    assert all(torch.equal(before[name], after[name]) for name in before)
    assert ranks(loaded) == ranks(saved)
    assert not loaded.model.training
    assert (loaded.encoder, loaded.output, loaded.encoder_options) == (encoder, output, SIZES[encoder])
    assert loaded.catalogue == saved.catalogue
    assert loaded.training == saved.training


def test_loading_leaves_random_numbers_alone(tmp_path: Path) -> None:
    save_model(tmp_path, made())
    torch.manual_seed(3)
    expected = torch.rand(2)
    torch.manual_seed(3)
    load_model(tmp_path)
    assert torch.equal(torch.rand(2), expected)


def test_only_safetensors_and_json(tmp_path: Path) -> None:
    save_model(tmp_path, made())
    names = sorted(path.name for path in tmp_path.iterdir())
    assert [name.split("-")[0] for name in names] == ["card.md", "catalogue", MODEL, "weights"]
    for path in tmp_path.iterdir():
        if path.suffix == ".json":
            json.loads(path.read_text(encoding="utf-8"))
        elif path.suffix != ".md":
            assert path.suffix == ".safetensors"
            assert load_file(path)["items.weight"].shape == (ITEMS, 4)
    assert not any(b"\x80\x04" in path.read_bytes()[:2] for path in tmp_path.iterdir())  # how a pickle begins


def test_nothing_here_unpickles() -> None:
    sources = list(Path(checkpoint.__file__).parents[1].rglob("*.py"))
    assert len(sources) > 20
    found = [
        path.name for path in sources for word in ("import pickle", "torch.load(", "joblib") if word in path.read_text()
    ]
    assert found == []


@pytest.mark.parametrize("ids", [[f"{i:05}" for i in range(50_000)], list(range(-7, 49_993))], ids=["text", "integers"])
def test_fifty_thousand_ids_come_back_as_they_went_in(tmp_path: Path, ids: list[Any]) -> None:
    model = make_model("gru4rec", "softmax", len(ids), dim=2, hidden=2)
    options = {"dim": 2, "hidden": 2}
    save_model(tmp_path, Saved(model, "gru4rec", "softmax", options, Catalogue(ids), {}))
    loaded = load_model(tmp_path).catalogue
    assert loaded.ids == ids
    assert type(loaded.ids[0]) is type(ids[0])
    assert loaded.index(ids[-1]) == 49_999


def test_cold_items_stay_outside(tmp_path: Path) -> None:
    saved = made(items=3)
    catalogue = Catalogue(["a", "b", "c", "d"], 3, {"title": ["A", "B", "C", "D"]})
    save_model(tmp_path, Saved(saved.model, saved.encoder, saved.output, saved.encoder_options, catalogue, {}))
    assert load_model(tmp_path).catalogue == Catalogue(["a", "b", "c"], 3, {"title": ["A", "B", "C"]})


def only(folder: Path, pattern: str) -> Path:
    (path,) = folder.glob(pattern)
    return path


def document(folder: Path, change: Callable[[dict[str, Any]], Any], signed: bool = True) -> None:
    """Change model.json, with the checksum that belongs to the change."""
    content = json.loads((folder / MODEL).read_text())
    change(content)
    if signed:
        content["sha256"] = document_digest(content)
    (folder / MODEL).write_text(json.dumps(content))


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-7])


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 4
    path.write_bytes(content)


def outside(folder: Path, name: str) -> None:
    """Name a file elsewhere, with its right size and checksum."""
    elsewhere = folder.parent / "elsewhere.safetensors"
    shutil.copy(only(folder, "weights-*"), elsewhere)
    document(folder, lambda d: d["files"].update({name: next(f for n, f in d["files"].items() if n[0] == "w")}))


DAMAGES: dict[str, tuple[Callable[[Path], Any], str]] = {
    "cut weights": (lambda f: cut(only(f, "weights-*")), r"weights-.* is not what was saved"),
    "flipped weights": (lambda f: flip(only(f, "weights-*")), r"weights-.* is not what was saved"),
    "cut catalogue": (lambda f: cut(only(f, "catalogue-*")), r"catalogue-.* is not what was saved"),
    "flipped catalogue": (lambda f: flip(only(f, "catalogue-*")), r"catalogue-.* is not what was saved"),
    "no weights": (
        lambda f: only(f, "weights-*").unlink(),
        r"weights-.* is missing: the model directory is incomplete",
    ),
    "no catalogue": (lambda f: only(f, "catalogue-*").unlink(), r"catalogue-.* is missing"),
    "no model.json": (lambda f: (f / MODEL).unlink(), r"is not a model directory \(no model.json\)"),
    "no folder": (shutil.rmtree, r"is not a model directory"),
    "cut model.json": (lambda f: cut(f / MODEL), r"model.json is not JSON"),
    "a list": (lambda f: (f / MODEL).write_text("[]"), r"does not describe an abaca model"),
    "another kind": (lambda f: document(f, lambda d: d.update(kind="x")), r"does not describe an abaca model"),
    "newer": (lambda f: document(f, lambda d: d.update(format=FORMAT + 1)), r"is in format 2, .* update abaca"),
    "older": (lambda f: document(f, lambda d: d.update(format=0)), r"is in format 0, .* train again"),
    "another training": (
        lambda f: document(f, lambda d: d["training"].update(seed=9), signed=False),
        r"model.json is not what was saved \(its checksum differs\)",
    ),
    "no checksum": (lambda f: document(f, lambda d: d.pop("sha256"), signed=False), r"its checksum differs"),
    "no files": (lambda f: document(f, lambda d: d.update(files={})), r"model.json names no file of catalogue"),
    "another output": (lambda f: document(f, lambda d: d.update(output="softmax")), r"do not belong together"),
    "nonsense output": (lambda f: document(f, lambda d: d.update(output="sofmax")), r"do not belong together"),
    "another encoder": (lambda f: document(f, lambda d: d.update(encoder="sasrec")), r"do not belong together"),
    "another size": (lambda f: document(f, lambda d: d["encoder_options"].update(dim=5)), r"do not belong together"),
    "wrong options": (
        lambda f: document(f, lambda d: d.update(encoder_options=3)),
        r"encoder_options must be an object, got 3",
    ),
    "a path upwards": (lambda f: outside(f, "../elsewhere.safetensors"), r"names a file outside the model directory"),
    "an absolute path": (lambda f: outside(f, "/etc/hostname"), r"names a file outside the model directory"),
    "the parent": (lambda f: outside(f, ".."), r"\.\. is missing|names a file outside"),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_directory_is_refused(tmp_path: Path, damage: str) -> None:
    folder = tmp_path / "model"
    save_model(folder, made())
    load_model(folder)
    harm, said = DAMAGES[damage]
    harm(folder)
    with pytest.raises(ModelError, match=said) as caught:
        load_model(folder)
    assert str(folder) in str(caught.value)


def test_a_new_model_replaces_the_old_one_and_its_files(tmp_path: Path) -> None:
    save_model(tmp_path, made(seed=0))
    save_model(tmp_path, made(seed=1))
    assert len(list(tmp_path.iterdir())) == 4
    assert load_model(tmp_path).training == {"seed": 1}
    assert ranks(load_model(tmp_path)) == ranks(made(seed=1)) != ranks(made(seed=0))


class Crash(Exception):
    """The machine goes."""


@pytest.mark.parametrize("step", range(12))
def test_a_crash_while_replacing_leaves_a_whole_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: int
) -> None:
    """Before every call that touches the disk, in turn: the old model or the new one loads, never a mixture."""
    save_model(tmp_path, made(seed=0))
    done = 0

    def crashing(call: Callable[..., Any]) -> Callable[..., Any]:
        def wrapped(*arguments: Any, **options: Any) -> Any:
            nonlocal done
            done += 1
            if done > step:
                raise Crash
            return call(*arguments, **options)

        return wrapped

    with monkeypatch.context() as patch:
        patch.setattr(state, "save_file", crashing(state.save_file))
        patch.setattr(durable.os, "replace", crashing(durable.os.replace))
        patch.setattr(durable.os, "fsync", crashing(durable.os.fsync))
        patch.setattr(Path, "unlink", crashing(Path.unlink))
        try:
            save_model(tmp_path, made(seed=1))
            crashed = False
        except Crash:
            crashed = True
    loaded = load_model(tmp_path)
    assert crashed or loaded.training == {"seed": 1}
    assert ranks(loaded) == ranks(made(seed=loaded.training["seed"]))
    if step < 4:
        assert loaded.training == {"seed": 0}
    save_model(tmp_path, made(seed=2))  # and the next save goes well, over whatever the crash left
    assert load_model(tmp_path).training == {"seed": 2}


def test_a_crash_never_leaves_half_a_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.json"
    write_text(path, "old")

    def crash(*_: Any) -> None:
        raise Crash

    monkeypatch.setattr(durable.os, "replace", crash)
    with pytest.raises(Crash):
        write_text(path, "new")
    assert path.read_text() == "old"


@pytest.mark.parametrize("value", [torch.nan, torch.inf, -torch.inf])
def test_numbers_that_are_not_finite_are_neither_saved_nor_loaded(tmp_path: Path, value: float) -> None:
    saved = made()
    save_model(tmp_path, saved)
    before = sorted(path.name for path in tmp_path.iterdir())
    with torch.no_grad():
        saved.model.items.weight[3, 1] = value
    with pytest.raises(ModelError, match=r"items\.weight holds numbers that are not finite, so it is not saved"):
        save_model(tmp_path, saved)
    assert sorted(path.name for path in tmp_path.iterdir()) == before
    load_model(tmp_path)

    def ruin(tensors: dict[str, torch.Tensor]) -> None:
        tensors["items.weight"][3, 1] = value

    forge_weights(tmp_path, ruin)
    with pytest.raises(ModelError, match=r"weights-.*: items\.weight holds numbers that are not finite; train again"):
        load_model(tmp_path)


def test_the_state_of_a_run_comes_back_to_the_bit(tmp_path: Path) -> None:
    tensors = {"a": torch.randn(3, 2), "step": torch.tensor(7.0), "random": torch.get_rng_state()}
    progress = {"epoch": 2, "loss_sum": 0.1 + 0.2, "best": None, "records": [{"loss": 1 / 3}]}
    save_state(tmp_path, tensors, progress)
    loaded, where = load_state(tmp_path)
    assert where == progress
    assert loaded.keys() == tensors.keys()
    assert all(torch.equal(loaded[name], tensors[name]) for name in tensors)


def test_a_missing_or_damaged_state_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="there is no run to resume; train without `resume=True`"):
        load_state(tmp_path)
    (tmp_path / state.STATE).write_bytes(b"not tensors")
    with pytest.raises(ModelError, match="cannot be read"):
        load_state(tmp_path)


def test_the_record_is_a_line_per_epoch(tmp_path: Path) -> None:
    write_record(tmp_path, [{"epoch": 0}, {"epoch": 1}])
    append_record(tmp_path, {"epoch": 2, "loss": 0.5})
    lines = (tmp_path / state.RECORD).read_text().splitlines()
    assert [json.loads(line) for line in lines] == [{"epoch": 0}, {"epoch": 1}, {"epoch": 2, "loss": 0.5}]
    write_record(tmp_path, [])
    assert (tmp_path / state.RECORD).read_text() == ""


def test_nothing_else_in_the_folder_is_deleted(tmp_path: Path) -> None:
    """A replaced model's files go; a user's own stay, whatever their names."""
    own = [tmp_path / "weights-mine.safetensors", tmp_path / "catalogue-2024.json"]
    for path in own:
        path.write_text("mine")
    first = made(output="softmax")
    save_model(tmp_path, first)
    before = set(tmp_path.iterdir())
    second = made(output="softmax+C")
    save_model(tmp_path, second)
    assert all(path.read_text() == "mine" for path in own)
    assert len(set(tmp_path.iterdir())) == len(before)
    assert load_model(tmp_path).output == "softmax+C"


def test_a_full_disk_leaves_what_was_there(tmp_path: Path) -> None:
    """A limit on the size of files stands in for the disk."""
    write_tensors(tmp_path / "x", {"a": torch.zeros(3)})
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, before[1]))
    try:
        for write in (
            lambda: write_tensors(tmp_path / "x", {"a": torch.zeros(3000)}),
            lambda: write_text(tmp_path / "x", "y" * 3000, ModelError),
        ):
            with pytest.raises(ModelError, match=r"x cannot be written .*; free disk space, or give another folder"):
                write()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert [path.name for path in tmp_path.iterdir()] == ["x"]
    assert load_file(tmp_path / "x")["a"].tolist() == [0.0] * 3


def test_a_file_that_goes_while_it_is_read_is_a_model_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    untrained(tmp_path / "model")
    read = durable.checksum

    def gone(path: Path) -> str:
        path.unlink()
        return read(path)

    monkeypatch.setattr(durable, "checksum", gone)
    with pytest.raises(ModelError, match="not what was saved"):
        load_model(tmp_path / "model")
