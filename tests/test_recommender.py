"""The public face: fit, recommend, evaluate, save, load."""

import dataclasses
import gc
import json
import math
import shutil
import tempfile
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import polars
import pyarrow
import pytest
import torch

import abaca
from abaca.data.prepare import PrepareOptions, prepare
from abaca.data.queries import HistorySource
from abaca.data.sequences import Sequences
from abaca.data.synthetic import synthetic_log
from abaca.errors import ModelError, QueryError, SequencesError, SpecError
from abaca.evaluation.baselines import BASELINES
from abaca.evaluation.evaluate import evaluate
from abaca.nn.encoders import SASRecOptions
from abaca.options import sort_options
from abaca.recommender import Recommender
from abaca.training.callbacks import Callback

QUICK: dict[str, Any] = {
    "epochs": 2, "lr": 0.02, "warmup": 2, "batch_targets": 100, "targets": 6, "overlap": 4, "window": 8, "dim": 8
}  # fmt: skip

LOG = synthetic_log("copy-after-repeat", users=40, items=30, length=12, seed=2)
TABLES = {"pandas": LOG.to_pandas(), "polars": polars.from_arrow(LOG), "arrow": LOG}


def quick(encoder: str = "gru4rec", output: str = "softmax+CPR:5", **options: Any) -> Recommender:
    return Recommender(encoder, output, **{**QUICK, **options})


@pytest.fixture(scope="module")
def fitted() -> Recommender:
    return quick().fit(LOG)


def weights(recommender: Recommender) -> list[torch.Tensor]:
    assert recommender.saved is not None
    return list(recommender.saved.model.state_dict().values())


def same_weights(one: Recommender, other: Recommender) -> bool:
    return all(torch.equal(a, b) for a, b in zip(weights(one), weights(other), strict=True))


@pytest.mark.parametrize("kind", TABLES)
def test_the_whole_cycle(kind: str, tmp_path: Path, fitted: Recommender) -> None:
    """fit → evaluate → save → load → recommend, with every kind of table, gives one and the same answer."""
    table = TABLES[kind]
    recommender = quick().fit(table)
    assert same_weights(recommender, fitted)
    evaluation = recommender.evaluate(cutoffs=(5, 10))
    assert 0 < evaluation.mean("ndcg@5") <= evaluation.mean("ndcg@10") <= 1
    assert len(evaluation.rank) == 40
    recommender.save(tmp_path / "model")
    loaded = abaca.load(tmp_path / "model")
    history = LOG["item"].to_pylist()[:6]
    assert loaded.recommend(history, 5) == recommender.recommend(history, 5)
    assert len(loaded.recommend(history, 5)) == 5
    again = loaded.evaluate(table, cutoffs=(5, 10))
    assert np.array_equal(again.rank, evaluation.rank)
    assert (loaded.training, loaded.prepare) == (recommender.training, recommender.prepare)


@pytest.mark.parametrize(("encoder", "output"), [("sasrec", "softmax+CPR:3,5+Mi"), ("gru4rec", "repeatnet")])
def test_other_models_go_through_the_cycle_too(tmp_path: Path, encoder: str, output: str) -> None:
    recommender = quick(encoder, output).fit(LOG)
    recommender.save(tmp_path)
    loaded = abaca.load(tmp_path)
    assert (loaded.encoder, loaded.output) == (encoder, output)
    assert np.array_equal(loaded.evaluate(LOG).rank, recommender.evaluate().rank)
    history = LOG["item"].to_pylist()[:12]
    assert loaded.recommend(history).ids == recommender.recommend(history).ids


def test_a_log_a_path_and_a_prepared_folder_are_the_same(tmp_path: Path, fitted: Recommender) -> None:
    LOG.to_pandas().to_parquet(tmp_path / "log.parquet")
    with abaca.read_log(tmp_path / "log.parquet") as log:
        assert same_weights(quick().fit(log), fitted)
        sequences = abaca.prepare(log, tmp_path / "sequences")
    assert same_weights(quick().fit(str(tmp_path / "log.parquet")), fitted)
    assert same_weights(quick().fit(tmp_path / "sequences"), fitted)
    assert same_weights(quick().fit(sequences), fitted)


def test_text_ids_come_back_as_text() -> None:
    frame = LOG.to_pandas()
    frame["item"] = frame["item"].map(lambda item: f"00{item}")
    recommender = quick().fit(frame)
    history = frame["item"].tolist()[:5]
    found = recommender.recommend(history, 4)
    assert all(isinstance(id, str) and id.startswith("00") for id in found.ids)
    assert recommender.recommend([int(history[0])], 4).unknown == (int(history[0]),)


def test_integer_ids_come_back_as_integers(fitted: Recommender) -> None:
    history = LOG["item"].to_numpy()[:5]
    found = fitted.recommend(history, 4)
    assert all(type(id) is int for id in found.ids)
    assert found == fitted.recommend(history.tolist(), 4)


def test_many_histories_at_once(fitted: Recommender) -> None:
    histories = [[1, 2, 3], [], [4], [99, 5]]
    answers = fitted.recommend_many(histories, 3, repeats="exclude")
    assert [answer.ids for answer in answers] == [fitted.recommend(h, 3, repeats="exclude").ids for h in histories]
    assert answers[3].unknown == (99,)
    assert fitted.recommend_many([]) == []


def test_policies_reach_the_answer(fitted: Recommender) -> None:
    history = [1, 2, 1, 3]
    assert set(fitted.recommend(history, 3, repeats="only").ids) == {1, 2, 3}
    assert not {1, 2, 3} & set(fitted.recommend(history, 20, repeats="exclude").ids)
    assert set(fitted.recommend(history, 9, candidates=[1, 7, 8, 500]).ids) == {1, 7, 8}
    assert fitted.recommend(history, 9, candidates=[1, 7, 8, 500], exclude=[7]).unknown == (500,)
    assert 7 not in fitted.recommend(history, 30, exclude=[7]).ids
    assert sum(item.repeat for item in fitted.recommend(history, 10, max_repeat_share=0.1)) <= 1
    with pytest.raises(SpecError, match=r"recommend has no option 'repeat'; did you mean repeats\?"):
        fitted.recommend(history, repeat="only")
    with pytest.raises(QueryError, match="repeats must be one of"):
        fitted.recommend(history, repeats="none")
    with pytest.raises(QueryError, match="got the text 'milk'"):
        fitted.recommend("milk")
    with pytest.raises(QueryError, match="got the text '7'"):
        fitted.recommend(history, exclude="7")


def test_text_finds_the_integers_that_it_spells(fitted: Recommender) -> None:
    answer = fitted.recommend(["1", "2", "1"], 4, exclude=["3"])
    assert answer == fitted.recommend([1, 2, 1], 4, exclude=[3])
    assert answer.repeat_probability is not None
    assert fitted.recommend(["01"]).unknown == ("01",)


def test_ids_of_any_library_find_their_items(fitted: Recommender) -> None:
    wanted = fitted.recommend([1, 2, 1], 4)
    for history in (np.array([1, 2, 1]), torch.tensor([1, 2, 1]), pandas.Series([1, 2, 1]), (1, np.int8(2), 1)):
        assert fitted.recommend(history, np.int64(4)) == wanted
    assert fitted.recommend([1, 2, 1], 4, exclude=None) == wanted


@pytest.mark.parametrize(
    ("history", "policy", "said"),
    [
        (101, {}, r"expected a list of ids, got 101; pass \[101\]"),
        (None, {}, r"expected a list of ids, got None"),
        ([[1, 2], [3]], {}, r"an id is text or a whole number, got \[1, 2\]; recommend takes one history"),
        (np.ones((2, 2), int), {}, r"an id is text or a whole number, got array"),
        (torch.ones(2, 2), {}, r"an id is text or a whole number, got tensor"),
        ([True], {}, r"an id is text or a whole number, got True"),
        ([1, None], {}, r"an id is text or a whole number, got None"),
        (np.array([1, np.nan]), {}, r"an id is text or a whole number, got"),
        ([b"1"], {}, r"an id is text or a whole number, got b'1'"),
        ([1], {"exclude": [1.5]}, r"an id is text or a whole number, got 1.5"),
        ([1], {"n": "3"}, r"n must be at least 1, a whole number, got '3'"),
        ([1], {"n": 2.5}, r"got 2.5"),
        ([1], {"n": None}, r"got None"),
        ([1], {"n": True}, r"got True"),
        ([1], {"exclude": 7}, r"expected a list of ids, got 7"),
        ([1], {"repeats": None}, r"repeats must be one of auto, exclude, only, got None"),
        ([1], {"max_repeat_share": "half"}, r"must be between 0 and 1, got 'half'"),
    ],
)
def test_questions_that_make_no_sense(fitted: Recommender, history: Any, policy: dict[str, Any], said: str) -> None:
    with pytest.raises(QueryError, match=said):
        fitted.recommend(history, **policy)


def test_many_histories_are_a_list(fitted: Recommender) -> None:
    with pytest.raises(QueryError, match="expected a list of histories, got 3"):
        fitted.recommend_many(3)  # type: ignore[arg-type]
    with pytest.raises(QueryError, match="expected a list of ids, got 1"):
        fitted.recommend_many([1, 2])  # type: ignore[list-item]
    assert len(fitted.recommend_many(iter([[1], [2]]))) == 2  # type: ignore[arg-type]


def test_the_log_is_read_as_the_training_read_it(tmp_path: Path) -> None:
    """The model remembers the columns, and that bad rows were skipped."""
    frame = LOG.to_pandas().rename(columns={"user": "who", "item": "what", "time": "when"})
    frame.to_csv(tmp_path / "log.csv", index=False)
    with (tmp_path / "log.csv").open("a") as stream:
        stream.write(",,\n")
    with abaca.read_log(tmp_path / "log.csv", user="who", item="what", time="when", on_bad_row="skip") as log:
        recommender = quick(epochs=1).fit(log)
    recommender.save(tmp_path / "model")
    result = abaca.load(tmp_path / "model").evaluate(tmp_path / "log.csv")
    assert np.array_equal(result.rank, recommender.evaluate().rank)


def test_prepared_data_takes_no_options_of_preparing(small: Sequences) -> None:
    with pytest.raises(SpecError, match="the data is prepared already: `min_user`, `split` must be given to"):
        quick(min_user=5, split="time").fit(small)


def test_damaged_sequences_are_refused(small: Sequences, tmp_path: Path) -> None:
    shutil.copytree(small.path, tmp_path / "s")
    content = bytearray((tmp_path / "s" / "items.npy").read_bytes())
    content[-1] = 0x7F
    (tmp_path / "s" / "items.npy").write_bytes(content)
    with pytest.raises(SequencesError, match=r"items\.npy is not what was prepared: its checksum differs"):
        quick().fit(tmp_path / "s")


def test_a_model_stands_apart_from_its_data(small: Sequences, tmp_path: Path, fitted: Recommender) -> None:
    LOG.to_pandas().to_csv(tmp_path / "log.csv", index=False)
    for data, folder in ((small, small.path), (small.path, small.path / "model"), (tmp_path / "log.csv", tmp_path)):
        with pytest.raises(SpecError, match="must be separate from the input"):
            quick().fit(data, folder=folder)
    with abaca.read_log(tmp_path / "log.csv") as log, pytest.raises(SpecError, match="must be separate"):
        quick().fit(log, folder=tmp_path)
    with pytest.raises(ModelError, match="is a prepared folder; give the model a folder of its own"):
        quick().fit(LOG, folder=small.path)
    with pytest.raises(ModelError, match="is a prepared folder; give the model a folder of its own"):
        fitted.save(small.path)
    assert not list(small.path.glob("model*"))
    with pytest.raises(ModelError, match=r"log\.csv is a file; give the name of a folder"):
        quick().fit(LOG, folder=tmp_path / "log.csv")
    assert [path.name for path in tmp_path.iterdir()] == ["log.csv"]


def test_titles_travel_with_the_model(tmp_path: Path) -> None:
    titles = pyarrow.table({"item": list(range(30)), "title": [f"Thing {i}" for i in range(30)]})
    recommender = quick().fit(LOG, items=titles)
    recommender.save(tmp_path)
    for found in abaca.load(tmp_path).recommend([1, 2], 30):
        assert found.name == f"Thing {found.id}"


def test_an_item_table_comes_too_late_for_a_prepared_folder(small: Sequences) -> None:
    with pytest.raises(SpecError, match="the data is prepared already"):
        quick().fit(small, items=pyarrow.table({"item": [1], "title": ["one"]}))


def test_before_fitting_nothing_can_be_asked(tmp_path: Path) -> None:
    for call in (lambda r: r.recommend([1]), lambda r: r.evaluate(), lambda r: r.save(tmp_path), lambda r: r.ranker()):
        with pytest.raises(ModelError, match="not trained yet"):
            call(quick())


def test_targets_are_a_split_or_a_choice(fitted: Recommender) -> None:
    for targets in (None, "train", [1, 2]):
        with pytest.raises(SpecError, match="expected 'test', 'valid' or Targets"):
            fitted.evaluate(targets=targets)  # type: ignore[arg-type]


def test_a_loaded_model_needs_data_to_be_evaluated(tmp_path: Path, fitted: Recommender) -> None:
    fitted.save(tmp_path)
    with pytest.raises(ModelError, match="does not carry its data; pass the log"):
        abaca.load(tmp_path).evaluate()


def test_other_data_is_refused(fitted: Recommender) -> None:
    other = synthetic_log("copy-after-repeat", users=40, items=30, length=12, seed=3)
    with pytest.raises(ModelError, match="trained on other data"):
        fitted.evaluate(other)
    with pytest.raises(ModelError, match="trained on other data"):
        fitted.evaluate(LOG.slice(0, 400))
    assert fitted.evaluate().mean("ndcg@10") == fitted.evaluate(LOG).mean("ndcg@10")


def test_validation_targets_can_be_ranked_and_are_what_training_saw(fitted: Recommender) -> None:
    assert fitted.saved is not None
    assert fitted.evaluate(targets="valid").mean("ndcg@10") == pytest.approx(fitted.saved.training["best"])


def test_refit_trains_on_everything_for_the_best_number_of_epochs_and_refuses_evaluation(tmp_path: Path) -> None:
    recommender = quick(epochs=4, lr=0.1).fit(LOG)
    assert recommender.saved is not None
    best = recommender.saved.training["best_epoch"]
    before = [weight.clone() for weight in weights(recommender)]
    recommender.fit(LOG, refit=True)
    training = recommender.saved.training
    assert [record["targets"] for record in training["records"]] == [LOG.num_rows - 40] * (best + 1)
    assert not all(torch.equal(a, b) for a, b in zip(before, weights(recommender), strict=True))
    with pytest.raises(ModelError, match="refitted on everything: no target is held out"):
        recommender.evaluate()
    recommender.save(tmp_path)
    with pytest.raises(ModelError, match="refitted on everything"):
        abaca.load(tmp_path).evaluate(LOG)
    assert len(recommender.recommend([1, 2], 3)) == 3
    again = abaca.load(tmp_path)
    assert again.training == recommender.training
    assert again.fit(LOG, refit=True).saved is not None
    assert same_weights(again, recommender)


def test_refit_needs_a_fit_before() -> None:
    with pytest.raises(ModelError, match="refit needs an earlier fit"):
        quick().fit(LOG, refit=True)


def test_a_loaded_model_can_be_refitted(tmp_path: Path, fitted: Recommender) -> None:
    fitted.save(tmp_path)
    loaded = abaca.load(tmp_path).fit(LOG, refit=True)
    direct = quick().fit(LOG).fit(LOG, refit=True)
    assert same_weights(loaded, direct)


def test_refit_after_a_split_by_time_knows_the_cold_items_too() -> None:
    """Item 77 is seen only after training ends: unknown to the fit, known to the refit."""
    times = np.arange(LOG.num_rows)
    items = np.where(times < 420, LOG["item"].to_numpy() % 20, LOG["item"].to_numpy())
    items[470:] = np.where(times[470:] % 2, 77, items[470:])
    table = pandas.DataFrame({"user": times % 40, "item": items, "time": times})
    recommender = quick(split="time").fit(table)
    assert recommender.saved is not None
    assert recommender.recommend([77], 3).unknown == (77,)
    assert recommender.evaluate().summary.cold > 0
    recommender.fit(table, refit=True)
    assert recommender.recommend([77], 3).unknown == ()
    assert 77 in recommender.recommend([1], 100).ids


@pytest.mark.parametrize(
    ("option", "said"),
    [
        ({"epoch": 3}, r"gru4rec has no option 'epoch'; did you mean epochs\?"),
        ({"droput": 0.1}, r"did you mean dropout\?"),
        ({"min_users": 3}, r"did you mean min_user\?"),
        ({"heads": 2}, r"gru4rec has no option 'heads'"),
        ({"zzz": 1}, r"there are ahead, average, batch_targets,"),
        ({"epochs": "ten"}, r"epochs must be a whole number, got 'ten'"),
        ({"epochs": 2.5}, r"epochs must be a whole number, got 2.5"),
        ({"epochs": True}, r"epochs must be a whole number, got True"),
        ({"lr": "fast"}, r"lr must be a number, got 'fast'"),
        ({"lr": 10**400}, r"lr must be a number, got 1000"),
        ({"overlap": 1 << 31}, r"overlap must be below 2³¹"),
        ({"batch_targets": 10**18}, r"batch_targets must be below 2³¹"),
        ({"schedule": 3}, r"schedule must be text, got 3"),
        ({"lr": 0.0}, r"lr must be above 0"),
        ({"split": "half"}, r"`split` 'half' is not known"),
    ],
)
def test_an_option_that_makes_no_sense_is_refused_with_the_nearest(option: dict[str, Any], said: str) -> None:
    with pytest.raises(SpecError, match=said):
        Recommender("gru4rec", "softmax", **option)


def test_numbers_of_numpy_are_numbers() -> None:
    made = Recommender(
        "gru4rec", "softmax", epochs=np.int64(3), lr=np.float32(0.5), dim=np.int32(8), min_user=np.int8(2)
    )
    assert (made.training.epochs, made.training.lr, made.prepare.min_user) == (3, 0.5, 2)
    for value in (made.training.epochs, made.encoder_options["dim"], made.prepare.min_user):
        assert type(value) is int
    assert type(made.training.lr) is float
    for wrong in ({"epochs": np.float64(2)}, {"lr": "1"}, {"lr": None}, {"drop_consecutive": 1}, {"min_user": np.nan}):
        with pytest.raises(SpecError, match=f"{next(iter(wrong))} must be"):
            Recommender("gru4rec", "softmax", **wrong)


def test_a_model_larger_than_the_memory_is_refused(small: Sequences) -> None:
    for size in (10**6, 10**12):
        with pytest.raises(SpecError, match=r"takes [\d,]+ GB and more, this machine has \d+ GB; choose smaller sizes"):
            quick("sasrec", dim=size).fit(small)


def test_encoders_and_outputs_that_do_not_exist_are_refused() -> None:
    for output in (None, 3, ["softmax"]):
        with pytest.raises(SpecError, match="an output layer is text such as softmax"):
            Recommender(output=output)  # type: ignore[arg-type]
    for encoder in (None, 3, ["sasrec"]):
        with pytest.raises(SpecError, match="is not one of gru4rec, sasrec"):
            Recommender(encoder)  # type: ignore[arg-type]
    with pytest.raises(SpecError, match="mos has at most 1000 queries"):
        Recommender(output="mos:999999999")
    with pytest.raises(SpecError, match=r"encoder 'lstm' is not one of gru4rec, sasrec, .*, auto$"):
        Recommender("lstm")
    with pytest.raises(SpecError, match="did you mean"):
        Recommender(output="softmax+CRP:100")


def test_a_device_that_does_not_exist_is_refused() -> None:
    assert Recommender(device="cpu").device == torch.device("cpu")
    with pytest.raises(SpecError, match="device 'gpu'"):
        Recommender(device="gpu")


def test_options_go_where_they_belong() -> None:
    training, sizes, prepare = sort_options(
        "sasrec", SASRecOptions, {"epochs": 3, "dim": 8, "min_item": 2, "window": 9, "lr": 1}
    )
    assert (training.epochs, training.window, training.lr) == (3, 9, 1)
    assert sizes["dim"] == 8
    assert prepare.min_item == 2
    names = {field.name for field in dataclasses.fields(training)}
    assert {"epochs", "lr", "window"} <= names


def test_seeds(fitted: Recommender) -> None:
    assert same_weights(quick().fit(LOG), fitted)
    assert not same_weights(quick(seed=1).fit(LOG), fitted)


def test_a_log_too_short_to_train_on_is_refused() -> None:
    table = {"user": [1, 1, 1], "item": [1, 2, 3], "time": [1, 2, 3]}
    with pytest.raises(SequencesError, match="table has nothing to train on"):
        quick(min_user=1).fit(pyarrow.table(table))


def test_temporary_folders_go(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A table is prepared in a temporary folder, which lasts as long as its sequences and no longer."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    recommender = quick(epochs=1).fit(LOG)
    recommender.evaluate(LOG)
    gc.collect()
    assert len(list(tmp_path.iterdir())) == 1
    assert recommender.evaluate().mean("hr@10") > 0
    assert recommender.sequences is not None
    assert len(recommender.sequences.user_ids) == 40
    del recommender
    gc.collect()
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(ModelError):
        quick().fit(LOG, refit=True)
    gc.collect()
    assert list(tmp_path.iterdir()) == []


def test_what_nodup_never_recommends_is_missed_however_small_the_catalogue() -> None:
    rng = np.random.default_rng(0)
    table = pyarrow.table({"user": np.repeat(np.arange(40), 12), "item": rng.integers(0, 8, 480)})
    model = abaca.Recommender("gru4rec", "softmax+nodup", epochs=1, dim=8, hidden=8).fit(table)
    result = model.evaluate()
    assert result.mask("repeat").any()
    assert result.mean("hr@10", "repeat") == 0.0


def test_refit_keeps_the_titles() -> None:
    table = pyarrow.table({"user": np.repeat(np.arange(12), 8), "item": np.tile(np.arange(8), 12)})
    titles = pyarrow.table({"item": np.arange(8), "title": [f"Title {i}" for i in range(8)]})
    model = abaca.Recommender("gru4rec", "softmax", epochs=1, dim=8, hidden=8).fit(table, items=titles)
    model.fit(table, refit=True)
    assert model.recommend([0, 1], n=1).items[0].name.startswith("Title ")


def test_nodup_with_the_whole_catalogue_in_the_history_recommends_nothing() -> None:
    table = pyarrow.table({"user": np.repeat(np.arange(12), 8), "item": np.tile(np.arange(4), 24)})
    model = abaca.Recommender("gru4rec", "softmax+nodup", epochs=1, dim=8, hidden=8).fit(table)
    found = model.recommend([0, 1, 2, 3])
    assert (found.ids, found.repeat_probability) == ([], None)
    assert len(model.recommend([0, 1])) == 2


def test_a_model_that_does_not_say_what_bad_rows_became_reads_strictly() -> None:
    recommender = quick().fit(LOG)
    assert recommender.saved is not None
    assert recommender.saved.training["source"].pop("on_bad_row") == "error"
    assert recommender.reading["on_bad_row"] == "error"


@pytest.mark.parametrize("config", ["gru4rec-cpr", "gru4rec-softmax", "sasrec-cpr", "sasrec-softmax"])
def test_the_defaults_are_the_configurations_of_the_study_on_ml_1m(config: str) -> None:
    study = Path(__file__).parent.parent / "studies" / "ml-1m" / f"{config}.toml"
    options = tomllib.loads(study.read_text(encoding="utf-8"))
    encoder, output = options.pop("encoder"), options.pop("output")
    chosen, plain = Recommender(encoder, output, **options), Recommender(encoder, output)
    assert chosen.training == plain.training
    assert chosen.encoder_options == plain.encoder_options


def test_a_prepared_folder_teaches_how_its_log_was_prepared(tmp_path: Path) -> None:
    """The fitted model and the loaded one read histories and logs alike."""
    LOG.to_pandas().to_csv(tmp_path / "log.csv", index=False)
    with abaca.read_log(tmp_path / "log.csv") as log:
        prepare(log, tmp_path / "sequences", options=PrepareOptions(min_user=5, drop_consecutive=True))
    fitted = quick(epochs=1).fit(tmp_path / "sequences")
    fitted.save(tmp_path / "model")
    loaded = abaca.load(tmp_path / "model")
    source = HistorySource(tmp_path / "log.csv")
    assert fitted.as_learned(source) == loaded.as_learned(source)
    assert fitted.as_learned(source).options.drop_consecutive
    assert np.array_equal(fitted.evaluate(tmp_path / "log.csv").rank, loaded.evaluate(tmp_path / "log.csv").rank)


def test_who_has_no_known_item_gets_the_most_popular_that_are_allowed(fitted: Recommender) -> None:
    assert fitted.saved is not None
    ids = list(fitted.saved.catalogue.ids)
    assert fitted.recommend(["nothing"], 3).ids == ids[:3]
    assert fitted.recommend(["nothing"], 3, exclude=[ids[1], ids[0], ids[1]]).ids == ids[2:5]
    some = [ids[6], ids[4], ids[9]]
    assert fitted.recommend(["nothing"], 3, exclude=[ids[4]], candidates=some).ids == [ids[6], ids[9]]
    assert fitted.recommend(["nothing"], 10**6, exclude=ids[:2]).ids == ids[2:]


def test_each_history_may_have_a_policy_of_its_own(fitted: Recommender) -> None:
    histories = [[1, 2, 3], [4, 5]]
    policies = [abaca.Policy(n=2, exclude=[7]), abaca.Policy(n=5, candidates=[1, 2, 8])]
    answers = fitted.recommend_many(histories, policy=policies)
    assert answers[0].ids == fitted.recommend([1, 2, 3], 2, exclude=[7]).ids
    assert set(answers[1].ids) == {1, 2, 8}
    assert fitted.recommend_many(histories, policy=policies[0])[1].ids == fitted.recommend([4, 5], 2, exclude=[7]).ids
    with pytest.raises(QueryError, match="there are 1 policies for 2 histories"):
        fitted.recommend_many(histories, policy=policies[:1])
    with pytest.raises(QueryError, match="repeats belongs to the policy"):
        fitted.recommend_many(histories, policy=policies, repeats="only")


def test_users_go_with_their_answers(fitted: Recommender) -> None:
    table = fitted.recommend_many({"ann": [1, 2], "bob": [3]}, 2).to_arrow()
    assert table["user_id"].to_pylist() == ["ann", "ann", "bob", "bob"]
    assert table["item_id"].to_pylist()[:2] == fitted.recommend([1, 2], 2).ids
    assert fitted.recommend_many([[1], [2]], 1).to_pandas()["user_id"].tolist() == [0, 1]


def test_what_a_notebook_shows(fitted: Recommender) -> None:
    assert repr(fitted) == "Recommender(gru4rec softmax+CPR:5, 30 items)"
    assert "not trained" in repr(quick())
    assert "not trained" in quick()._repr_html_()
    assert "validation ndcg@10" in fitted._repr_html_()
    result = fitted.evaluate()
    assert repr(result).startswith(f"Evaluation(gru4rec softmax+CPR:5: ndcg@10 {result.mean('ndcg@10'):.4f}, hr@10")
    assert f"<td>{result.mean('ndcg@10', 'repeat'):.4f}</td>" in result._repr_html_()


def test_progress_is_shown_only_where_somebody_sees_it(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    quick(epochs=1).fit(LOG)
    assert capsys.readouterr().err == ""
    monkeypatch.setattr("abaca.training.progress.is_interactive", lambda: True)
    quick(epochs=1).fit(LOG, progress=False)
    quick(epochs=1).fit(LOG, callback=Callback())
    assert capsys.readouterr().err == ""
    quick(epochs=1).fit(LOG)
    assert "epoch   1/1  loss" in capsys.readouterr().err


def test_errors_are_public() -> None:
    with pytest.raises(abaca.UserError):
        Recommender("lstm")
    assert issubclass(abaca.UserError, abaca.AbacaError)


@pytest.mark.parametrize("name", BASELINES)
def test_a_baseline_goes_through_the_cycle_too(name: str, tmp_path: Path) -> None:
    rule = Recommender(baseline=name).fit(LOG, folder=tmp_path / "rule")
    loaded = abaca.load(tmp_path / "rule")
    sequences = rule.sequences
    assert sequences is not None
    wanted = evaluate(BASELINES[name]().fit(sequences), sequences).rank
    assert np.array_equal(rule.evaluate().rank, wanted)
    assert np.array_equal(loaded.evaluate(LOG).rank, wanted)
    history = LOG["item"].to_pylist()[:6]
    found = loaded.recommend(history, 30, exclude=[history[0]])
    assert found == rule.recommend(history, 30, exclude=[history[0]])
    never = set(history) if name == "rules without history" else {history[0]}
    assert set(found.ids) == set(LOG["item"].to_pylist()) - never
    for item in found.items:
        assert item.partition == "rule"
        assert item.repeat == (item.id in history)
        assert (item.probability is None) == (item.logit is None) == (name != "counts alone")
    odds = [item.probability / math.exp(item.logit) for item in found.items if item.probability and item.logit]
    assert odds == pytest.approx([odds[0]] * len(odds) if odds else [])
    assert json.dumps(found.to_json(), allow_nan=False)
    assert repr(loaded) == f"Recommender(rule {name}, 30 items)"


def test_a_baseline_is_refitted_on_everything() -> None:
    rule = Recommender(baseline="popularity").fit(LOG).fit(LOG, refit=True)
    _, counts = np.unique(LOG["item"].to_numpy(), return_counts=True)
    assert rule.saved is not None
    assert sorted(rule.saved.tensors()["counts"].tolist()) == sorted(counts.tolist())
    with pytest.raises(ModelError, match="refitted on everything"):
        rule.evaluate()


def test_what_a_baseline_does_not_have_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="baseline 'magic' is not one of popularity, most recent"):
        Recommender(baseline="magic")
    with pytest.raises(SpecError, match="popularity has no option 'epochs'"):
        Recommender(baseline="popularity", epochs=3)
    rule = Recommender(baseline="popularity", min_user=2).fit(LOG)
    for call in (lambda: rule.similar(1), rule.ranker):
        with pytest.raises(ModelError, match="'popularity' is a baseline: it has no item vectors"):
            call()


def visits() -> pyarrow.Table:
    """Six users with six of five items each."""
    items = [f"i{(user * time) % 5}" for user in range(6) for time in range(6)]
    return pyarrow.table({"user": list("aaaaaabbbbbbccccccddddddeeeeeeffffff"), "item": items, "time": list(range(36))})


def test_a_refit_of_a_loaded_model_keeps_the_titles(tmp_path: Path) -> None:
    table = visits()
    items = pyarrow.table({"id": [f"i{i}" for i in range(5)], "title": [f"Item {i}" for i in range(5)]})
    quick = {"epochs": 1, "dim": 4, "hidden": 8, "device": "cpu"}
    abaca.Recommender("gru4rec", "softmax", **quick).fit(table, items=items).save(tmp_path / "model")
    again = abaca.load(tmp_path / "model").fit(table, refit=True)
    found = again.recommend(["i1"], n=2)
    assert [item.name for item in found] == [f"Item {id[1]}" for id in found.ids]


def test_histories_and_policies_by_user() -> None:
    model = abaca.Recommender("gru4rec", "softmax", epochs=1, dim=4, hidden=8, device="cpu").fit(visits())
    histories = {"x": ["i1"], "y": ["i1", "i2"]}
    policies = {"y": abaca.Policy(n=1), "x": abaca.Policy(n=3)}
    assert [len(answer) for answer in model.recommend_many(histories, policy=policies)] == [3, 1]
    series = pandas.Series(histories)
    assert model.recommend_many(series, 1).to_pandas()["user_id"].tolist() == ["x", "y"]
    with pytest.raises(QueryError, match="one policy for each user"):
        model.recommend_many(histories, policy={"x": abaca.Policy()})
