"""Model directories that were made to harm, with right checksums: each loads, or is one clear error."""

import json
import random
import resource
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from abaca.errors import ModelError
from abaca.recommender import Recommender
from abaca.search.index import build
from abaca.search.tune import write_index
from abaca.training.checkpoint import load_model, weights_of
from abaca.training.document import MODEL
from forged import forge, forge_file, forge_weights
from models import untrained

EVIDENT = "softmax+CP+habits+followers"
ODD: list[Any] = [None, True, -1, 0, 1e400, 2**70, "x", "", [], {}, [[]], {"x": {}}, float("nan"), "\ud800", [None]]
"""Values that belong nowhere."""


@pytest.fixture
def model(tmp_path: Path) -> Path:
    untrained(tmp_path / "model", EVIDENT)
    return tmp_path / "model"


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Every place of a document."""
    if path:
        yield path
    inner = value.items() if isinstance(value, dict) else enumerate(value[:2]) if isinstance(value, list) else ()
    for key, entry in inner:
        yield from places(entry, (*path, key))


def put(document: Any, path: tuple[Any, ...], value: Any) -> None:
    for key in path[:-1]:
        document = document[key]
    document[path[-1]] = value


def tried(folder: Path) -> None:
    """Load and answer, or one clear error; anything else fails the test."""
    said = str(folder)
    try:
        Recommender.load(folder).recommend(["i1", "i2"], 3)
    except ModelError as error:
        said = str(error)
    assert str(folder) in said
    assert len(said) < 2000


def odd_documents(folder: Path, wanted: int) -> None:
    whole = (folder / MODEL).read_text()
    document = json.loads(whole)
    del document["sha256"], document["kind"], document["format"]
    cases = [(path, value) for path in places(document) for value in ODD]
    for path, value in random.Random(7).sample(cases, wanted):
        (folder / MODEL).write_text(whole)
        forge(folder, lambda found, path=path, value=value: put(found, path, value))  # type: ignore[misc]
        tried(folder)


def test_odd_values_in_a_model_json_are_errors_of_the_model(model: Path) -> None:
    odd_documents(model, 100)


@pytest.mark.slow
def test_a_thousand_odd_values_in_a_model_json_are_errors_of_the_model(model: Path) -> None:
    odd_documents(model, 1000)


@pytest.mark.parametrize(("encoder", "option", "value"), [
    ("gru4rec", "dim", 10**9), ("gru4rec", "hidden", 10**8), ("sasrec", "window", 10**10), ("sasrec", "inner", 10**9),
    ("sasrec", "blocks", 10**6), ("sasrec", "blocks", 900), ("gru4rec", "dim", 10**18), ("sasrec", "heads", 3),
])  # fmt: skip
def test_sizes_are_compared_before_anything_is_allocated(tmp_path: Path, encoder: str, option: str, value: int) -> None:
    untrained(tmp_path, encoder=encoder)
    forge(tmp_path, lambda document: document["encoder_options"].update({option: value}))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(ModelError, match="do not belong together"):
        load_model(tmp_path)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 200 * 1024  # KiB


def test_a_mixture_of_more_queries_than_the_file_has_is_refused(tmp_path: Path) -> None:
    untrained(tmp_path, "mos:2")
    forge(tmp_path, lambda document: document.update(output="mos:900"))
    with pytest.raises(ModelError, match="is absent where the options imply"):
        load_model(tmp_path)


def set_to(name: str, change: Callable[[torch.Tensor], torch.Tensor]) -> Callable[[dict[str, torch.Tensor]], None]:
    def apply(tensors: dict[str, torch.Tensor]) -> None:
        tensors[name] = change(tensors[name]).contiguous()

    return apply


@pytest.mark.parametrize(("change", "said"), [
    (set_to("evidence.followers", lambda found: found + 30), "a follower is none of 30 items"),
    (set_to("evidence.followers", lambda found: found[:-1]), "not counted for 30 items"),
    (set_to("evidence.starts", lambda found: found.flip(0)), "begin after the end"),
    (set_to("evidence.starts", lambda found: found * 1000), "begin after the end"),
    (set_to("evidence.counts", lambda found: found[:-1]), "not counted for 30 items"),
    (set_to("evidence.units", lambda found: found.double()), "lists of whole numbers"),
    (set_to("items.weight", lambda found: found[:-1]), "29 × 8 of float32 where the options imply 30 × 8"),
    (set_to("items.weight", lambda found: found.double()), "30 × 8 of float64 where"),
    (lambda tensors: tensors.pop("items.weight"), "items.weight is absent"),
    (lambda tensors: tensors.update(more=torch.zeros(3)), "more is 3 of float32 where the options imply absent"),
    (lambda tensors: tensors.update(popularity=torch.zeros(3)), "popularity is not a count for each of 30 items"),
])  # fmt: skip
def test_tensors_that_do_not_fit_are_refused(model: Path, change: Callable[[Any], Any], said: str) -> None:
    """Numbers of items go into compiled code: none may be outside the catalogue."""
    forge_weights(model, change)
    with pytest.raises(ModelError, match=said):
        load_model(model)


@pytest.mark.parametrize("file", [MODEL, "catalogue"])
def test_deep_json_is_refused(model: Path, file: str) -> None:
    deep = "[" * 100_000 + "]" * 100_000
    if file == MODEL:
        (model / MODEL).write_text(f'{{"kind": "abaca model", "training": {deep}}}')
    else:
        forge_file(model, "catalogue", lambda path: path.write_text(f'{{"ids": {deep}, "size": 30}}'))
    with pytest.raises(ModelError, match="nested too deeply"):
        load_model(model)


@pytest.mark.parametrize(("text", "said"), [
    ('{"ids": ["a", "a"], "size": 2}', "each once"),
    ('{"ids": ["a", 1], "size": 2}', "text or whole numbers"),
    ('{"ids": ["a"], "size": 30}', "size 30 of a catalogue with 1 ids"),
    ('{"ids": ["a"], "size": 1}', "it has 1 ids where model.json has 30"),
    ('{"ids": [1.5], "size": 1}', r"ids\[0\] must be text"),
    ('{"ids": ["\\ud800"], "size": 1}', "surrogates"),
    ('{"ids": ["a"], "size": 1, "columns": {"t": []}}', "has 0 values for 1 ids"),
    ("[]", "must be an object"),
])  # fmt: skip
def test_a_catalogue_that_is_none_is_refused(model: Path, text: str, said: str) -> None:
    forge_file(model, "catalogue", lambda path: path.write_text(text))
    with pytest.raises(ModelError, match=said):
        load_model(model)


@pytest.mark.parametrize("kind", ["flat", "ivf", "hnsw"])
@pytest.mark.parametrize(("items", "dim"), [(30, 6), (29, 8), (400, 8)])
def test_an_index_of_another_table_is_refused(model: Path, kind: str, items: int, dim: int) -> None:
    """One with more items than the catalogue would name items that are not there."""
    table = np.random.default_rng(0).normal(size=(items, dim)).astype(np.float32)
    write_index(model, weights_of(model), build(table, kind), {})
    with pytest.raises(ModelError, match=rf"cannot be used \(it has {items} vectors .*make it again with `abaca"):
        Recommender.load(model).recommend(["i1"])


def test_cells_with_other_ids_are_refused(model: Path) -> None:
    table = np.random.default_rng(0).normal(size=(30, 8)).astype(np.float32)
    index = build(table, "ivf")
    index.native.remove_ids(np.array([3]))
    index.native.add_with_ids(table[:1], np.array([5000]))
    write_index(model, weights_of(model), index, {})
    with pytest.raises(ModelError, match="the items of its cells are not those of the catalogue"):
        Recommender.load(model).recommend(["i1"])


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(part=st.sampled_from(["weights", "catalogue"]), seed=st.integers(0, 2**32), cut=st.booleans())
def test_whatever_a_file_holds_it_is_read_or_refused(model: Path, part: str, seed: int, cut: bool) -> None:
    """A bounded fuzz of the files: bytes that were changed, with checksums that belong to them."""
    (path,) = model.glob(f"{part}-*")
    whole, document = path.read_bytes(), (model / MODEL).read_text()
    rng = random.Random(seed)
    content = bytearray(whole[: rng.randrange(len(whole))] if cut else whole)
    for _ in range(rng.randrange(1, 8)):
        if content:
            content[rng.randrange(min(len(content), 2000))] = rng.randrange(256)
    try:
        forge_file(model, part, lambda file: file.write_bytes(content))
        tried(model)
    finally:
        path.write_bytes(whole)
        (model / MODEL).write_text(document)
