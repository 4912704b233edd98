"""A study from start to end, in one process: what is done is done once, and the right run is chosen."""

import json
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest

from abaca.errors import SpecError, TrainingError
from abaca.evaluation.metrics import paired_test
from abaca.study import work as work_room
from abaca.study.jobs import Place, run_study
from abaca.study.plan import RowKey
from abaca.study.report import cases, publish
from abaca.study.results import Results
from abaca.study.runs import Workspace
from abaca.study.significance import compared, margin
from abaca.study.tables import Row, estimate
from abaca.study.work import Message, Work
from abaca.training.callbacks import Callback

STUDY = """
outputs = ["softmax", "softmax+C"]
seeds = [0, 1]
baselines = ["most recent", "popularity"]
examples = ["softmax", "softmax+C"]
[options]
epochs = 1
warmup = 1
size = 8
batch_targets = 200
[grid]
lr = [1e-9, 0.02]
[encoders.gru4rec]
[sweep]
options = { size = [4, 8] }
outputs = ["softmax+C"]
[[data]]
name = "copy"
synthetic = { rule = "mixed", users = 60, items = 40, length = 14 }
"""
ROW = RowKey("copy", "gru4rec", "softmax+C")


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Place:
    folder = tmp_path_factory.mktemp("study")
    (folder / "study.toml").write_text(STUDY, encoding="utf-8")
    return Place(folder / "study.toml", None, folder)


@pytest.fixture(scope="module")
def done(place: Place) -> Work:
    return run_study(place, 1, 1, lambda message: None)


def test_every_kind_of_entry_is_there_once(done: Work) -> None:
    lines = [json.loads(line) for line in done.results.path.read_text(encoding="utf-8").splitlines()]
    kinds = [line["kind"] for line in lines]
    # 2 rows × (2 of the grid + 1 more seed), and one size that is not the chosen one's
    counts = {"data": 1, "run": 7, "test": 4, "baseline": 2, "comparison": 1, "margin": 2, "example": 1}
    assert {kind: kinds.count(kind) for kind in set(kinds)} == counts
    assert len({(line["kind"], line["id"]) for line in lines}) == len(lines)
    assert all(line["environment"]["torch"] and line["when"].endswith("Z") for line in lines)


def test_validation_chooses_and_only_the_chosen_is_tested(done: Work) -> None:
    chosen = done.state.chosen(ROW)
    assert chosen is not None
    tried = {run.id: done.results.get("run", run.id) for run in done.state.searched(ROW)}
    assert all(entry is not None for entry in tried.values())
    best = max(tried, key=lambda id: tried[id]["best"])  # type: ignore[index]
    assert chosen.id == best
    tested = {entry["id"] for entry in done.results.all("test")}
    assert {run.id for run in done.state.seeds(ROW)} <= tested
    assert not (set(tried) - {best}) & tested


def test_a_row_is_the_mean_over_its_seeds(done: Work) -> None:
    values = [entry["groups"]["all"]["metrics"]["ndcg@10"]["value"] for entry in done.state.tests(ROW)]
    found = estimate(done.state, Row("GRU4Rec", *ROW[1:]), ROW.data, "ndcg@10")
    assert len(values) == 2
    assert found is not None
    assert found.value == pytest.approx(sum(values) / 2)


def test_nothing_is_done_twice(place: Place, done: Work, monkeypatch: pytest.MonkeyPatch) -> None:
    before = done.results.path.read_bytes()
    monkeypatch.setattr(Workspace, "train", None)
    messages: list[Message] = []
    run_study(place, 1, 1, messages.append)
    assert done.results.path.read_bytes() == before
    assert {message.task for message in messages} == {"preparing copy"}


def test_ranks_without_a_column_are_made_again(done: Work) -> None:
    """As an earlier release left them in the workspace."""
    run, sequences = done.state.seeds(ROW)[0], done.workspace.sequences(done.study.data[0])
    file = done.workspace.path / "ranks" / f"{run.folder}.npz"
    with np.load(file) as arrays:
        kept = {name: arrays[name] for name in arrays.files if name != "shelf_rank"}
    before = done.workspace.test(run, sequences, Callback())[0]
    np.savez_compressed(file, **kept)
    after = done.workspace.test(run, sequences, Callback())[0]
    assert np.array_equal(after.rank, before.rank)
    assert np.array_equal(after.shelf_rank, before.shelf_rank)


def test_the_id_of_a_run_follows_from_what_matters(done: Work) -> None:
    run = done.state.searched(ROW)[0]
    others = [
        run.with_seed(9),
        run.with_options({**dict(run.options), "lr": 5.0}),
        type(run)(run.row, run.options, run.seed, "other data"),
        type(run)(run.row._replace(output="softmax"), run.options, run.seed, run.fingerprint),
    ]
    assert len({run.id, *(other.id for other in others)}) == 5
    renamed = type(run)(run.row._replace(data="another name"), run.options, run.seed, run.fingerprint)
    assert renamed.id == run.id


def test_an_entry_cut_by_a_kill_is_made_again(place: Place, done: Work, tmp_path: Path) -> None:
    lines = done.results.path.read_bytes().splitlines(keepends=True)
    place = Place(place.study, None, tmp_path)
    (tmp_path / "results.jsonl").write_bytes(b"".join(lines[:-1]) + lines[-1][:40])
    work = run_study(place, 1, 1, lambda message: None)
    assert {kind: set(found) for kind, found in work.results.entries.items()} == {
        kind: set(found) for kind, found in done.results.entries.items()
    }
    assert (tmp_path / "results.jsonl").read_bytes().startswith(b"".join(lines[:-1]) + lines[-1][:40] + b"\n")


def test_two_writers_do_not_mix_their_lines(tmp_path: Path) -> None:
    first, second = (Results(tmp_path / "results.jsonl", tmp_path / "lock") for _ in range(2))
    first.append("run", "a", best=1)
    second.append("run", "b", best=2)
    first.append("run", "b", best=3)
    first.refresh()
    assert [entry["best"] for entry in first.all("run")] == [1, 2]


def test_a_run_that_diverges_is_noted_and_never_chosen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    train = Workspace.train

    def diverge(self: Workspace, run, sequences, callback):  # type: ignore[no-untyped-def]
        if dict(run.options)["lr"] == 0.02:
            raise TrainingError("the loss is nan")
        return train(self, run, sequences, callback)

    monkeypatch.setattr(work_room.Workspace, "train", diverge)
    text = STUDY.replace('outputs = ["softmax", "softmax+C"]\nseeds = [0, 1]', 'outputs = ["softmax+C"]')
    text = text.replace('examples = ["softmax", "softmax+C"]\n', "")
    (tmp_path / "study.toml").write_text(text, encoding="utf-8")
    work = run_study(Place(tmp_path / "study.toml", None, tmp_path), 1, 1, lambda message: None)
    chosen = work.state.chosen(ROW)
    assert chosen is not None
    assert dict(chosen.options)["lr"] == 1e-9
    assert [entry["error"] for entry in work.results.all("run") if "error" in entry] == ["the loss is nan"]


def test_results_made_with_other_defaults_are_refused(place: Place, done: Work, tmp_path: Path) -> None:
    text = done.results.path.read_text(encoding="utf-8").replace('"patience":10', '"patience":7')
    (tmp_path / "results.jsonl").write_text(text, encoding="utf-8")
    work = Place(place.study, None, tmp_path).work()
    with pytest.raises(SpecError, match="made with patience = 7, now the default is 10; write patience"):
        work.state.check_defaults()


def test_options_that_suit_the_log_have_no_defaults(tmp_path: Path) -> None:
    """A study whose options follow from the logs goes on."""
    text = STUDY.replace('outputs = ["softmax", "softmax+C"]\nseeds = [0, 1]', 'outputs = ["softmax+C"]')
    text = text.replace('examples = ["softmax", "softmax+C"]\n', "").replace("[options]", '[options]\noptions = "auto"')
    (tmp_path / "study.toml").write_text(text, encoding="utf-8")
    place = Place(tmp_path / "study.toml", None, tmp_path)
    first = run_study(place, 1, 1, lambda message: None)
    assert {entry["all_options"]["patience"] for entry in first.results.all("run")} == {3}
    again = run_study(place, 1, 1, lambda message: None)
    assert len(again.results.all("run")) == len(first.results.all("run"))


def test_a_log_that_is_not_there_is_named(tmp_path: Path) -> None:
    text = STUDY.replace('synthetic = { rule = "mixed", users = 60, items = 40, length = 14 }', 'log = "x"')
    (tmp_path / "study.toml").write_text(text, encoding="utf-8")
    with pytest.raises(SpecError, match=r"data 'copy': .*x does not exist; pass .* --data"):
        run_study(Place(tmp_path / "study.toml", None, tmp_path), 1, 1, lambda message: None)


def test_a_log_that_changes_meanwhile_is_noticed(tmp_path: Path) -> None:
    (tmp_path / "study.toml").write_text(STUDY, encoding="utf-8")
    work = Place(tmp_path / "study.toml", None, tmp_path).work()
    work.prepare(lambda message: None)
    tasks = {task.kind: task for task in work.pending()}
    (data,) = work.study.data
    work.study = replace(work.study, data=(replace(data, synthetic={**data.synthetic, "seed": 7}),))
    for kind in ("run", "baseline"):
        with pytest.raises(SpecError, match=r"data 'copy': its log or its options have changed"):
            tasks[kind].do(Callback())
    assert not list(work.results.all("run"))


def test_of_two_studies_in_one_folder_each_reports_its_own_data(tmp_path: Path) -> None:
    def place(name: str, options: str) -> Place:
        (tmp_path / name).write_text(STUDY + options, encoding="utf-8")
        return Place(tmp_path / name, None, tmp_path)

    places = [place("a.toml", ""), place("b.toml", "min_item = 12\n")]
    prints = []
    for each in places:
        work = each.work()
        work.prepare(lambda message: None)
        prints.append(work.state.data["copy"]["fingerprint"])
    assert prints[0] != prints[1]
    assert [each.work().state.data["copy"]["fingerprint"] for each in places] == prints


@pytest.mark.parametrize(
    ("synthetic", "said"),
    [('rule = "never-copy", users = 60, items = 3', "different items are needed"), ("items = 0", "must be above 0")],
)
def test_a_synthetic_log_that_cannot_be_is_the_study_s_mistake(tmp_path: Path, synthetic: str, said: str) -> None:
    text = STUDY.replace('rule = "mixed", users = 60, items = 40, length = 14', synthetic)
    (tmp_path / "study.toml").write_text(text, encoding="utf-8")
    with pytest.raises(SpecError, match=said):
        run_study(Place(tmp_path / "study.toml", None, tmp_path), 1, 1, lambda message: None)


def test_data_that_is_changed_and_changed_back_is_what_it_was(tmp_path: Path) -> None:
    def prepared(users: int) -> str:
        path = tmp_path / "study.toml"
        path.write_text(STUDY.replace("users = 60", f"users = {users}"), encoding="utf-8")
        work = Place(path, None, tmp_path).work()
        work.prepare(lambda message: None)
        assert work.state.data["copy"]["fingerprint"] == work.workspace.sequences(work.study.data[0]).fingerprint
        again = Place(path, None, tmp_path).work()  # as `--only-report` reads it
        assert again.state.data == work.state.data
        return str(work.state.data["copy"]["fingerprint"])

    first, other = prepared(60), prepared(61)
    assert first != other
    assert prepared(60) == first


def test_examples_take_up_titles_that_come_later(tmp_path: Path) -> None:
    path = tmp_path / "study.toml"
    path.write_text(STUDY.replace("seeds = [0, 1]", "seeds = [0]").replace("lr = [1e-9, 0.02]", ""), encoding="utf-8")
    plain = run_study(Place(path, None, tmp_path), 1, 1, lambda message: None)
    titles = {"item": list(range(40)), "title": [f"Thing {item}" for item in range(40)]}
    pyarrow.parquet.write_table(pyarrow.table(titles), tmp_path / "items.parquet")
    path.write_text(path.read_text(encoding="utf-8") + 'items = "items.parquet"\n', encoding="utf-8")
    titled = run_study(Place(path, None, tmp_path), 1, 1, lambda message: None)
    assert "Thing " not in json.dumps([entry["cases"] for entry in plain.results.all("example")])
    (case, *_) = cases(titled.state)["copy"]
    assert "Thing " in json.dumps(asdict(case))
    assert len(list(titled.results.all("run"))) == len(list(plain.results.all("run")))


def test_a_report_takes_away_only_what_reports_write(place: Place, done: Work) -> None:
    tables = place.folder / "tables"
    tables.mkdir(exist_ok=True)
    for name in ("paper.md", "paper.pdf", "notes.md"):  # this study has no table beside the paper's
        (tables / name).write_text("mine", encoding="utf-8")
    publish(done.state, place.folder)
    assert not (tables / "paper.md").exists()
    assert (tables / "paper.pdf").read_text(encoding="utf-8") == (tables / "notes.md").read_text(encoding="utf-8")


def test_many_rows_can_still_differ(done: Work) -> None:
    """Holm's correction over m rows multiplies p by up to m; the least p must not make a mark impossible."""
    rows = 40
    evaluation = done._ranked(ROW, Callback())
    worse = [replace(one, rank=one.rank + 1000) for one in evaluation]
    p_value = compared(evaluation, worse, rows)["ndcg@10"]["p_value"]
    assert rows * p_value < 0.01


def test_a_row_is_tested_against_the_best_baseline_of_each_shelf(done: Work) -> None:
    """The test by hand: each target's mean over the two seeds, minus the baseline's gain, over users."""
    entry, sequences = done.state.margin(ROW), done.workspace.sequences(done.study.data[0])
    assert entry is not None
    assert list(entry["groups"]) == ["all", "buy again", "discover"]
    mine = done._ranked(ROW, Callback())
    for group, found in entry["groups"].items():
        baselines = [done.workspace.baseline(name, sequences) for name in done.study.baselines]
        best = max(baselines, key=lambda one: one.mean("ndcg@10", group))
        gains = (mine[0].gains("ndcg@10", group) + mine[1].gains("ndcg@10", group)) / 2
        mask = best.mask(group)
        by_hand = paired_test(gains[mask], best.gains("ndcg@10", group)[mask], best.users[mask])
        assert found["baseline"] == best.name
        assert found["count"] == mask.sum()
        assert found["value"] == pytest.approx(gains[mask].mean())
        assert found["difference"] == pytest.approx(asdict(by_hand.difference))
        assert found["p_value"] == by_hand.p_value
    assert len(json.dumps(entry)) < 2000


def test_a_margin_over_a_worse_baseline_is_certain(done: Work) -> None:
    mine = done._ranked(ROW, Callback())
    worse = replace(mine[0], rank=mine[0].rank + 1000, name="worse")
    found = margin(mine, {"all": worse}, 1)["all"]
    assert found["baseline"] == "worse"
    assert found["p_value"] < 0.01 < found["difference"]["low"]


def test_without_ranks_nothing_is_trained_for_a_margin(place: Place, done: Work, tmp_path: Path) -> None:
    """A clone of a study has its results but not its workspace."""
    lines = done.results.path.read_text(encoding="utf-8").splitlines(keepends=True)
    (tmp_path / "results.jsonl").write_text("".join(line for line in lines if '"kind":"margin"' not in line))
    work = Place(place.study, None, tmp_path).work()
    work.prepare(lambda message: None)
    assert not list(work.pending())
    assert work.state.margin(ROW) is None
