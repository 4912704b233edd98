"""Models are asked in batches and replaced while they answer."""

import asyncio
import math
import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import abaca
from abaca.errors import ModelError, QueryError
from abaca.policy import Policy
from abaca.recommendation import Recommendations
from abaca.recommender import Recommender
from abaca.serve import service as module
from abaca.serve.service import Loaded, Service
from forged import forge, forge_weights
from models import untrained

from .samples import Shop


@pytest.fixture
def service(shop: Shop) -> Any:
    made = Service(shop.models)
    yield made
    made.close()


def test_models_have_the_names_of_their_folders(service: Service, shop: Shop, tmp_path: Path) -> None:
    assert [model.name for model in service.models] == ["cpr", "softmax"]
    assert service.model() is service.model("cpr")
    with pytest.raises(QueryError, match="there is no model 'x'; available: cpr, softmax"):
        service.model("x")
    shutil.copytree(shop.softmax, tmp_path / "cpr")
    twins = Service([shop.cpr, tmp_path / "cpr"])
    assert [model.name for model in twins.models] == ["cpr", "cpr-2"]
    assert twins.model("cpr-2").facts["output"] == "softmax"
    twins.close()


def test_a_crowd_gets_the_answers_that_each_would_get_alone(shop: Shop) -> None:
    """Different models, policies and histories at once, in fewer batches than requests."""
    sizes: list[int] = []
    service = Service(shop.models, observe=sizes.append)
    policies = [
        Policy(n=3),
        Policy(n=5, repeats="exclude"),
        Policy(n=2, exclude=(-1, 2)),
        Policy(n=2, exclude=(-2, 2)),  # has the hash of the one before
        Policy(candidates=(3, 4)),
    ]
    asked = [
        (name, [[item, item + 1], [item, item, 99]], policy)
        for name in ("cpr", "softmax")
        for item in range(6)
        for policy in policies
    ]

    async def ask() -> list[list[Recommendations]]:
        return await asyncio.gather(
            *(service.recommend(service.model(name), histories, policy) for name, histories, policy in asked)
        )

    found = asyncio.run(ask())
    alone = {"cpr": abaca.load(shop.cpr), "softmax": abaca.load(shop.softmax)}
    for (name, histories, policy), answers in zip(asked, found, strict=True):
        options = dict(vars(policy))
        for history, answer in zip(histories, answers, strict=True):
            single = alone[name].recommend(history, **options)
            assert answer.ids == single.ids
            assert answer.unknown == single.unknown
            assert answer.repeat_probability == pytest.approx(single.repeat_probability, rel=1e-5)
            for one, other in zip(answer, single, strict=True):
                assert one.probability == pytest.approx(other.probability, rel=1e-5)
    assert sum(sizes) == 2 * len(asked)
    assert len(sizes) < len(asked) / 2
    service.close()


def test_a_history_that_cannot_be_answered_spoils_no_other(service: Service) -> None:
    async def ask() -> list[Any]:
        model = service.model()
        return await asyncio.gather(
            *(service.recommend(model, [history], Policy(n=1)) for history in ([1], "text", [2])),
            return_exceptions=True,
        )

    good, bad, also_good = asyncio.run(ask())
    assert len(good[0]) == len(also_good[0]) == 1
    assert isinstance(bad, QueryError)


def test_a_new_version_replaces_the_old_one_and_requests_keep_theirs(shop: Shop, tmp_path: Path) -> None:
    folder = tmp_path / "model"
    shutil.copytree(shop.cpr, folder)
    service = Service([folder])
    old = service.model()
    abaca.load(shop.softmax).save(folder)
    (new,) = service.reload()
    assert new is service.model()
    assert (old.facts["output"], new.facts["output"]) == ("softmax+CPR:5", "softmax")
    assert old.version != new.version
    expected = abaca.load(shop.cpr).recommend([1, 2, 1], 5).ids
    assert asyncio.run(service.recommend(old, [[1, 2, 1]], Policy(n=5)))[0].ids == expected
    service.close()


def test_a_broken_version_is_refused_and_all_old_ones_stay(shop: Shop, tmp_path: Path) -> None:
    for name, path in (("a", shop.cpr), ("b", shop.softmax)):
        shutil.copytree(path, tmp_path / name)
    service = Service([tmp_path / "a", tmp_path / "b"])
    before = service.models
    abaca.load(shop.softmax).save(tmp_path / "a")
    weights = next((tmp_path / "b").glob("weights-*"))
    weights.write_bytes(weights.read_bytes()[:-1])
    with pytest.raises(ModelError, match="is not what was saved"):
        service.reload()
    assert service.models == before
    assert len(asyncio.run(service.recommend(service.model("b"), [[1]], Policy(n=2)))[0]) == 2
    service.close()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda tensor: tensor.fill_(torch.nan), "holds numbers that are not finite"),
        (lambda tensor: tensor.view(-1)[:1].fill_(torch.inf), "holds numbers that are not finite"),
        (lambda tensor: tensor.mul_(1e38), r"cannot answer \(.*\); train it again|not finite"),
    ],
)
def test_a_model_that_cannot_answer_is_refused_and_the_old_one_stays(
    shop: Shop, tmp_path: Path, change: Callable[[Tensor], Any], said: str
) -> None:
    """The checksums are right: only the numbers are not."""
    folder = tmp_path / "model"
    shutil.copytree(shop.cpr, folder)
    service = Service([folder])
    before = service.models
    forge_weights(folder, lambda tensors: change(tensors["items.weight"]))
    with pytest.raises(ModelError, match=said):
        service.reload()
    assert service.models == before
    service.close()
    with pytest.raises(ModelError, match=said):
        Service([folder])


def test_evidence_that_only_times_reach_is_refused(tmp_path: Path) -> None:
    """A question without times would be answered."""
    untrained(tmp_path, "softmax+CP+habits+followers")

    def spoil(document: dict[str, Any]) -> None:
        for kind, found in document["evidence"]["weights"].items():
            if kind != "order":
                found["own"] = 1e300

    forge(tmp_path, spoil)
    with pytest.raises(ModelError, match=r"the evidence of times has numbers of 1e\+12 and more"):
        Service([tmp_path])


def test_a_window_that_the_encoder_cannot_read_is_refused(tmp_path: Path) -> None:
    """A history of one item would be answered."""
    untrained(tmp_path, encoder="sasrec")
    forge(tmp_path, lambda document: document["training"]["options"].update(window=50))
    with pytest.raises(ModelError, match=r"cannot answer \(a window of 50 items is longer than the 8 positions"):
        Service([tmp_path])


def test_figures_that_json_cannot_hold_are_refused(tmp_path: Path) -> None:
    untrained(tmp_path)
    forge(tmp_path, lambda document: document["training"].update(best=math.nan))
    with pytest.raises(ModelError, match=r"not JSON compliant|must be"):
        Service([tmp_path])


def test_a_model_replaced_while_it_is_read_is_read_again(
    shop: Shop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "model"
    shutil.copytree(shop.cpr, folder)
    reads: list[str] = []

    def load(path: Path) -> Recommender:
        reads.append(module._version(path))
        loaded = abaca.load(path)
        if len(reads) == 1:
            abaca.load(shop.softmax).save(folder)
        return loaded

    monkeypatch.setattr(module, "load", load)
    service = Service([folder])
    assert len(set(reads)) == 2
    assert service.model().facts["output"] == "softmax"
    assert service.model().version == reads[1]
    service.close()


def test_reloads_follow_one_another(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two at once: the second begins when the first is done."""
    service = Service([shop.cpr])
    inside, most = 0, 0
    real: Callable[[str, Path], Loaded] = module._load

    def load(name: str, folder: Path) -> Loaded:
        nonlocal inside, most
        inside += 1
        most = max(most, inside)
        try:
            return real(name, folder)
        finally:
            inside -= 1

    monkeypatch.setattr(module, "_load", load)
    threads = [threading.Thread(target=service.reload) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == 1
    service.close()


def test_facts_say_what_was_trained_on_what(service: Service, shop: Shop) -> None:
    facts = service.model("cpr").facts
    saved = abaca.load(shop.cpr).saved
    assert saved is not None
    assert facts["items"] == 30
    assert facts["window"] == 8
    assert facts["parameters"] == sum(tensor.numel() for tensor in saved.model.state_dict().values())
    assert facts["trained"]["data"] == saved.training["fingerprint"]
    assert facts["trained"]["validation"]["best"] == saved.training["best"]
    assert facts["trained"]["targets"] == saved.training["records"][-1]["targets"] > 0
    assert facts["trained"]["options"]["dim"] == 8
