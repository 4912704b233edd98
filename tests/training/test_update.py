"""An updated model counts what a model that saw the whole log at once would count."""

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pyarrow.compute as compute
import pytest
import torch

import abaca
from abaca.data.log import read_log
from abaca.data.prepare import PrepareOptions, prepare
from abaca.errors import LogError, ModelError, QueryError, SpecError
from abaca.evidence.habits import Clock
from abaca.evidence.transitions import KEPT, Transitions
from abaca.histories import Histories
from abaca.recommender import Recommender
from abaca.training.drift import drift, notes

DAY = 86_400
SMALL: dict[str, Any] = {
    "epochs": 1, "lr": 0.02, "warmup": 2, "batch_targets": 200, "targets": 6, "overlap": 4, "window": 8, "dim": 8
}  # fmt: skip


def made_log(seed: int = 0, users: int = 120, items: int = 50, days: int = 40) -> pyarrow.Table:
    """Rows of random users in the order of time; some items begin late, and some users are rare."""
    rng = np.random.default_rng(seed)
    count = users * 25
    time = np.sort(rng.integers(0, days * DAY, count)) + 1_600_000_000
    begins = np.where(np.arange(items) < items // 2, 0, rng.integers(0, days, items)) * DAY + 1_600_000_000
    item = rng.integers(0, items, count)
    item = np.where(begins[item] <= time, item, item % (items // 2))
    user = (users * rng.random(count) ** 1.5).astype(int)
    return pyarrow.table({"user": user, "item": [f"i{one}" for one in item], "time": time})


def parts_of(log: pyarrow.Table, count: int) -> list[pyarrow.Table]:
    """A log in parts by time; rows of one time are in one part."""
    times = log["time"].to_numpy()
    cuts = [times[len(times) * part // count] for part in range(1, count)]
    edges = [-1, *cuts, times[-1]]
    return [
        log.filter(compute.and_(compute.greater(log["time"], low), compute.less_equal(log["time"], high)))
        for low, high in pairwise(edges)
    ]


def counted_at_once(log: pyarrow.Table, options: PrepareOptions, ids: list[Any], path: Path) -> tuple[Histories, Any]:
    """All rows of a log in the numbers of a catalogue, and their transitions."""
    with read_log(log) as opened:
        sequences = prepare(opened, path, options=options)
    number = np.array([ids.index(id) for id in sequences.catalogue.ids])
    rows = sequences.training(everything=True)
    rows = Histories(number[rows.items], rows.offsets, rows.times)
    return rows, Transitions.count(rows, len(ids))


@pytest.fixture(scope="module")
def log() -> pyarrow.Table:
    return made_log()


@pytest.fixture(scope="module")
def model(log: pyarrow.Table, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An updatable model of the first four tenths."""
    folder = tmp_path_factory.mktemp("updatable") / "model"
    first = pyarrow.concat_tables(parts_of(log, 10)[:4])
    Recommender("gru4rec", "softmax+followers", min_user=5, **SMALL).fit(first, folder=folder, updatable=True)
    return folder


@pytest.mark.parametrize(
    ("options", "count"),
    [
        pytest.param({"min_user": 1}, 10, marks=pytest.mark.slow),
        ({"min_user": 1}, 3),
        ({"min_item": 3, "drop_consecutive": True, "min_user": 4}, 3),
    ],
)
def test_many_parts_count_as_one(log: pyarrow.Table, tmp_path: Path, options: dict[str, Any], count: int) -> None:
    parts = parts_of(log, count)
    recommender = Recommender("gru4rec", "softmax+followers", **SMALL, **options)
    recommender.fit(parts[0], folder=tmp_path / "0", updatable=True)
    for number, part in enumerate(parts[1:]):
        recommender = abaca.load(tmp_path / f"{number}").update(part)
        recommender.save(tmp_path / f"{number + 1}")
    saved = recommender.saved
    assert saved is not None
    assert saved.evidence is not None
    prepared = PrepareOptions(**options)
    rows, expected = counted_at_once(log, prepared, list(saved.catalogue.ids), tmp_path / "once")
    for name, array in vars(expected).items():
        found = getattr(saved.evidence.transitions, name)
        assert found.dtype == array.dtype
        assert np.array_equal(found, array), name
    assert saved.evidence.clock == Clock.of(rows)
    assert saved.popularity is not None
    assert np.array_equal(saved.popularity, expected.counts)
    assert len(saved.training["updates"]) == count - 1
    assert sum(update["rows"] for update in saved.training["updates"]) == log.num_rows - parts[0].num_rows
    twice = abaca.load(tmp_path / "0").update(pyarrow.concat_tables(parts[1:]))
    assert twice.saved is not None
    assert twice.saved.catalogue.ids == saved.catalogue.ids


def test_the_truncated_followers_are_those_of_the_whole_log(tmp_path: Path) -> None:
    rng = np.random.default_rng(4)
    user = np.repeat(np.arange(100), 60)
    item = np.where(rng.random(6000) < 0.3, 0, rng.integers(1, 600, 6000))
    time = 1_600_000_000 + np.tile(np.arange(60), 100) * 100 + user
    order = np.argsort(time)
    log = pyarrow.table({"user": user[order], "item": item[order], "time": time[order]})
    first, later = parts_of(log, 2)
    recommender = Recommender("gru4rec", "softmax+followers", **SMALL).fit(first, updatable=True).update(later)
    assert recommender.saved is not None
    assert recommender.saved.evidence is not None
    _, expected = counted_at_once(log, PrepareOptions(), list(recommender.saved.catalogue.ids), tmp_path / "once")
    found = recommender.saved.evidence.transitions
    assert np.diff(found.starts).max() == KEPT  # else nothing was left out that later rows could bring back
    assert np.array_equal(found.followers, expected.followers)
    assert np.array_equal(found.units, expected.units)


def test_old_rows_are_not_counted_twice(log: pyarrow.Table, model: Path) -> None:
    parts = parts_of(log, 10)
    known = pyarrow.concat_tables(parts[:4])
    both = abaca.load(model).update(pyarrow.concat_tables([known, parts[4]]))
    alone = abaca.load(model).update(parts[4])
    assert both.saved is not None
    assert alone.saved is not None
    assert np.array_equal(both.saved.popularity, alone.saved.popularity)
    assert both.saved.training["updates"][0]["skipped"] == known.num_rows
    with pytest.raises(LogError, match=r"no rows after the model's last time"):
        both.update(parts[4])


def test_users_with_few_events_count_too(log: pyarrow.Table, model: Path) -> None:
    """A filter of training is not one of an update: a server that learns has no filter either."""
    late = int(log["time"].to_numpy().max()) + 1
    few = pyarrow.table({"user": [900, 900, 901, 901], "item": ["i0", "new"] * 2, "time": [late + n for n in range(4)]})
    at_once = abaca.load(model).update(few)
    in_parts = abaca.load(model).update(few[:2]).update(few[2:])
    for found in (at_once, in_parts):
        assert found.saved is not None
        assert found.saved.catalogue.ids[-1] == "new"
        assert found.saved.popularity is not None
        assert found.saved.popularity[-1] == 2
        assert "new" in found.recommend(["i0"], n=100).ids
    assert at_once.saved is not None
    assert in_parts.saved is not None
    assert np.array_equal(at_once.saved.popularity, in_parts.saved.popularity)


def test_rows_at_the_last_time_are_new_unless_they_are_known(log: pyarrow.Table, model: Path) -> None:
    last = pyarrow.concat_tables(parts_of(log, 10)[:4])[-1:]
    user, item, time = (last[name][0].as_py() for name in ("user", "item", "time"))
    same_day = pyarrow.table({"user": [user, user, user], "item": [item, item, "i0"], "time": [time] * 3})
    before, after = abaca.load(model), abaca.load(model).update(same_day)
    assert before.saved is not None
    assert after.saved is not None
    assert (after.saved.training["updates"][0]["rows"], after.saved.training["updates"][0]["skipped"]) == (2, 1)
    with pytest.raises(LogError, match="nothing to update"):
        after.update(same_day)
    retired = after.update(same_day, retire=["i0"])
    assert "i0" not in retired.recommend([item], n=100).ids
    with pytest.raises(SpecError, match="list of ids"):
        after.update(same_day, retire="i0")


def test_old_items_keep_their_numbers_and_new_ones_their_titles(log: pyarrow.Table, model: Path) -> None:
    before = abaca.load(model)
    assert before.saved is not None
    ids, size = list(before.saved.catalogue.ids), before.saved.catalogue.size
    table = before.saved.model.table.detach().clone()
    titles = pyarrow.table({"id": [f"i{one}" for one in range(50)], "title": [f"Thing {one}" for one in range(50)]})
    after = abaca.load(model).update(pyarrow.concat_tables(parts_of(log, 10)[4:]), items=titles)
    saved = after.saved
    assert saved is not None
    assert saved.catalogue.size > size
    assert saved.catalogue.ids[:size] == ids
    assert (saved.model.table[:size] == table).all()
    new = saved.catalogue.ids[-1]
    assert new in after.recommend([ids[0], ids[1]], n=saved.catalogue.size).ids
    assert new in [found.id for found in after.similar(ids[0], n=saved.catalogue.size)]


def test_the_most_popular_items_are_those_of_the_whole_log(model: Path) -> None:
    recommender = abaca.load(model)
    assert recommender.saved is not None
    rare = recommender.saved.catalogue.ids[-1]
    last = recommender.saved.training["last_time"]
    rows = [(0, rare, last + place) for place in range(1, 500)]
    log = pyarrow.table({"user": [0] * len(rows), "item": [r[1] for r in rows], "time": [r[2] for r in rows]})
    assert recommender.recommend([], n=1).ids != [rare]
    assert recommender.update(log).recommend([], n=1).ids == [rare]
    assert recommender.recommend([], n=1, candidates=[rare, recommender.saved.catalogue.ids[0]]).ids == [rare]


def test_a_model_without_a_ledger_needs_the_whole_log(log: pyarrow.Table, tmp_path: Path) -> None:
    parts = parts_of(log, 10)
    plain = Recommender("gru4rec", "softmax+followers", **SMALL).fit(parts[0])
    with pytest.raises(ModelError, match=r"`whole=True`, or train with `updatable=True`"):
        plain.update(parts[1])
    with pytest.raises(LogError, match="not the whole log"):
        plain.update(parts[1], whole=True)
    plain.update(pyarrow.concat_tables(parts[:2]), whole=True)
    kept = Recommender("gru4rec", "softmax+followers", **SMALL).fit(parts[0], updatable=True).update(parts[1])
    assert plain.saved is not None
    assert kept.saved is not None
    assert plain.saved.ledger is None
    assert np.array_equal(plain.saved.popularity, kept.saved.popularity)
    plain.save(tmp_path / "plain")
    assert not list((tmp_path / "plain").glob("ledger*"))


def test_an_updated_model_refuses_to_be_evaluated_on_what_it_counted(log: pyarrow.Table, model: Path) -> None:
    parts = parts_of(log, 10)
    recommender = abaca.load(model).update(parts[4])
    for data in (pyarrow.concat_tables(parts[:4]), pyarrow.concat_tables(parts[:5])):
        with pytest.raises(ModelError, match=r"trained on|updated on everything"):
            recommender.evaluate(data)


def test_retired_items_are_never_answers(log: pyarrow.Table, model: Path, tmp_path: Path) -> None:
    recommender = abaca.load(model)
    best = recommender.recommend(["i1", "i2"], n=3).ids
    recommender.update(parts_of(log, 10)[4], retire=[best[0]])
    recommender.save(tmp_path / "retired")
    assert "counts on 20" in (tmp_path / "retired" / "card.md").read_text(encoding="utf-8")
    loaded = abaca.load(tmp_path / "retired")
    everything = loaded.recommend(["i1", best[0]], n=1000)
    assert best[0] not in everything.ids
    assert everything.unknown == ()
    assert best[0] not in loaded.recommend([], n=1000).ids
    assert best[0] not in [found.id for found in loaded.similar("i1", n=1000)]
    with pytest.raises(QueryError, match="cannot be retired"):
        loaded.update(parts_of(log, 10)[5], retire=["nothing"])


def test_logs_in_other_units_and_spellings_are_read_as_the_first(log: pyarrow.Table, model: Path) -> None:
    part = parts_of(log, 10)[4]
    milliseconds = part.set_column(2, "time", compute.multiply(part["time"], 1000))
    as_text = milliseconds.set_column(0, "user", part["user"].cast(pyarrow.string()))
    plain, other = (abaca.load(model).update(data).saved for data in (part, as_text))
    assert plain is not None
    assert other is not None
    assert np.array_equal(plain.popularity, other.popularity)
    assert plain.training["last_time"] == other.training["last_time"]


def test_ids_that_are_no_integers_are_bad_rows(tmp_path: Path) -> None:
    user, item, time = np.repeat(np.arange(30), 6), np.arange(180) % 11, 1_600_000_000 + np.arange(180)
    recommender = Recommender("gru4rec", "softmax", **SMALL)
    recommender.fit(pyarrow.table({"user": user, "item": item, "time": time}), folder=tmp_path / "m", updatable=True)
    text = pyarrow.table({"user": ["3", "4"], "item": ["77", "pesto"], "time": [1_700_000_000, 1_700_000_001]})
    with pytest.raises(LogError, match="item 'pesto' is not an integer"):
        recommender.update(text)
    recommender.update(read_log(text, on_bad_row="skip"))
    assert recommender.saved is not None
    assert recommender.saved.catalogue.ids[-1] == 77
    assert recommender.saved.training["updates"][0]["rows"] == 1


def test_a_prepared_folder_cannot_be_updated_with(log: pyarrow.Table, tmp_path: Path) -> None:
    with read_log(log) as opened:
        sequences = prepare(opened, tmp_path / "sequences")
    with pytest.raises(SpecError, match="has left rows out"):
        Recommender("gru4rec", "softmax", **SMALL).fit(sequences, updatable=True)


def test_drift_tells_new_shares_from_old() -> None:
    old = [[0, 1, 2, 3, 4, 5]] * 16
    rows = Histories.of([[*row, 0, 0, 0] for row in old], [np.arange(9.0)] * 16)
    found = drift(rows, 5.0)
    assert found == {"repeats": [0.0, 1.0, 0.25], "new_items": [1.0, 0.0, 0.25]}  # 1 / √16: each user changes by 1
    assert len(notes(found)) == 2
    assert "100%" in notes(found)[0]
    assert drift(rows, None) is None
    assert drift(rows, 100.0) is None
    assert notes({"repeats": [0.5, 0.52, 0.001]}) == []
    assert notes({"repeats": [0.5, 0.7, 0.1]}) == []


def test_chance_is_no_drift() -> None:
    """Of 40 users with rows at random, the later ones differ by chance alone; more repeats of many users are noted."""
    random, noted = np.random.default_rng(1), 0
    for _ in range(50):
        known, new = random.integers(0, 100, (40, 6)), random.integers(0, 100, (40, 2))
        chosen = random.random((40, 8)) < 0.4
        rows = np.where(chosen, known[:, :1], np.concatenate([known, new], axis=1))
        found = drift(Histories.of(list(rows), [np.arange(8.0)] * 40), 5.0)
        assert found is not None
        assert 0.03 < found["repeats"][2] < 0.12
        noted += bool(notes({"repeats": found["repeats"]}))
    assert noted <= 1
    rows = np.where(random.random((2000, 8)) < [0.4] * 6 + [0.5] * 2, 0, 1 + np.arange(16_000).reshape(2000, 8))
    assert len(notes(drift(Histories.of(list(rows), [np.arange(8.0)] * 2000), 5.0))) == 2


def test_the_error_of_a_change_is_that_of_samples_of_users() -> None:
    random, changes, errors = np.random.default_rng(2), [], []
    for _ in range(300):
        often = np.where(random.random((60, 1)) < 0.5, 0.9, 0.1)  # rows of a user are alike
        rows = np.where(random.random((60, 8)) < often, 0, 1 + np.arange(480).reshape(60, 8))
        found = drift(Histories.of(list(random.permutation(rows)), [np.arange(8.0)] * 60), 5.0)
        assert found is not None
        changes.append(found["repeats"][1] - found["repeats"][0])
        errors.append(found["repeats"][2])
    assert 0.9 < np.std(changes) / np.mean(errors) < 1.1


def test_drift_tells_what_the_model_predicted_from_what_came(tmp_path: Path) -> None:
    """In new rows, which are the last four of each user, nobody repeats; the model has learned to repeat."""
    users = 60
    old = [[f"i{u % 7}", f"i{u % 5}"] * 4 for u in range(users)]
    new = [[f"new{u}{k}" for k in range(4)] for u in range(users)]
    rows = [(f"u{u}", item, 1_600_000_000 + at) for u in range(users) for at, item in enumerate(old[u])]
    late = [(f"u{u}", item, 1_700_000_000 + at) for u in range(users) for at, item in enumerate(new[u])]
    names = ("user", "item", "time")
    first, second = (pyarrow.table(dict(zip(names, zip(*part, strict=True), strict=True))) for part in (rows, late))
    options = SMALL | {"epochs": 4}
    recommender = Recommender("gru4rec", "softmax+C+habits", **options).fit(first, updatable=True, progress=False)
    known = recommender.recommend(old[3], times=[1_600_000_000 + at for at in range(8)]).repeat_probability
    recommender.update(second)
    assert recommender.saved is not None
    predicted, came, error = recommender.saved.training["updates"][0]["drift"]["calibration"]
    assert 0 < error < predicted
    assert came == 0.0
    assert known is not None
    assert abs(predicted - known) < 0.2 < predicted
    assert "the model predicted" in notes({"calibration": [predicted, came, error]})[0]


def test_a_sample_of_old_windows_is_replayed_and_every_new_one(log: pyarrow.Table, model: Path) -> None:
    parts = parts_of(log, 10)
    late = pyarrow.concat_tables(parts[4:])
    counts = {}
    for share in (0.0, 0.5, 1.0):
        recommender = abaca.load(model).update(late, train=True, replay=share)
        assert recommender.saved is not None
        assert recommender.saved.training["updates"][0]["replay"] == share
        counts[share] = recommender.saved.training["records"][0]["targets"]
    assert 0 < counts[0.0] < counts[0.5] < counts[1.0]
    with pytest.raises(SpecError, match="belong to `train=True`"):
        abaca.load(model).update(late, replay=0.5)
    with pytest.raises(SpecError, match="between 0 and 1"):
        abaca.load(model).update(late, train=True, replay=1.5)


def test_weights_are_trained_on_and_can_be_evaluated(log: pyarrow.Table, model: Path, tmp_path: Path) -> None:
    parts = parts_of(log, 10)
    before = abaca.load(model)
    recommender = abaca.load(model).update(pyarrow.concat_tables(parts[4:]), train=True)
    recommender.save(tmp_path / "trained")
    loaded = abaca.load(tmp_path / "trained")
    assert before.saved is not None
    assert loaded.saved is not None
    assert loaded.saved.training["options"] == before.saved.training["options"]
    assert loaded.saved.training["updates"][0]["how"] == "weights"
    assert loaded.saved.training["updates"][0]["epochs"] == 1
    assert loaded.saved.evidence is not None
    assert loaded.saved.catalogue.size > before.saved.catalogue.size
    shared = [id for id in before.saved.catalogue.ids if loaded.saved.catalogue.index(id) is not None]
    old = before.saved.model.table[[before.saved.catalogue.index(id) for id in shared]]
    new = loaded.saved.model.table[[loaded.saved.catalogue.index(id) for id in shared]]
    cosine = torch.cosine_similarity(old, new, dim=1)
    assert cosine.median() > 0.7  # it went on from the old weights
    assert not torch.equal(old, new)
    found = loaded.evaluate(log)  # the whole log, with the last two of each user held out
    assert 0 < found.mean("ndcg@10") < 1
    with pytest.raises(ModelError, match="trained on other data"):
        loaded.evaluate(pyarrow.concat_tables(parts[:4]))


def test_a_model_that_saw_everything_stays_so_and_validates_on_new_targets(log: pyarrow.Table, model: Path) -> None:
    parts = parts_of(log, 10)
    recommender = abaca.load(model).update(pyarrow.concat_tables(parts[4:6]))
    assert recommender.saved is not None
    since = recommender.saved.training["last_time"]
    recommender.update(pyarrow.concat_tables(parts[6:]), train=True)
    assert recommender.saved.training["everything"]
    assert recommender.sequences is not None
    assert recommender.sequences.times is not None
    targets = recommender.sequences.valid
    assert 20 < len(targets.users) < recommender.sequences.users
    assert (recommender.sequences.times[targets.positions] > since).all()
    with pytest.raises(ModelError, match="updated on everything"):
        recommender.evaluate()


def test_a_simple_rule_is_trained_again(log: pyarrow.Table) -> None:
    with pytest.raises(ModelError, match="is a baseline"):
        Recommender(baseline="popularity").fit(log, updatable=True).update(log)


def test_options_of_training_need_training(log: pyarrow.Table, model: Path) -> None:
    with pytest.raises(SpecError, match="belong to `train=True`"):
        abaca.load(model).update(log, epochs=5)
    with pytest.raises(SpecError, match="has no option"):
        abaca.load(model).update(log, epoch=5)
