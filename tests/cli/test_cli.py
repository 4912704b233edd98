"""The command line, end to end on a tiny log: what it prints, what it writes, how it exits."""

import csv
import importlib
import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import typer.main

import abaca
from abaca.auto import Shape, suited
from abaca.cli import COMMANDS, app, main, with_flags
from abaca.data.synthetic import synthetic_log
from abaca.errors import SpecError
from abaca.evaluation.baselines import BASELINES
from abaca.nn.encoders import ENCODERS
from abaca.options import TrainingOptions
from commandline import Cli, Outcome
from models import asked_of_rankers

QUICK = [
    "--epochs", "2", "--dim", "8", "--encoder", "gru4rec", "--lr", "0.02", "--warmup", "2", "--batch-targets", "100"
]  # fmt: skip


def refused(outcome: Outcome, *words: str) -> None:
    """The user's mistake: exit code 2, one message, no traceback, nothing on standard output."""
    said = outcome.error
    assert outcome.code == 2, said
    assert outcome.out == ""
    assert "Traceback" not in said
    assert said.count("error:") == 1
    for word in words:
        assert word in said


def write_log(path: Path) -> Path:
    """40 users, 30 items with text ids, as CSV."""
    table = synthetic_log("copy-after-repeat", users=40, items=30, length=12, seed=2)
    with path.open("w", newline="") as stream:
        writer = csv.writer(stream)
        writer.writerow(["user", "item", "time"])
        for user, item, time in zip(*(column.to_pylist() for column in table.columns), strict=True):
            writer.writerow([f"u{user}", f"i{item:02}", time])
    return path


class Shop(NamedTuple):
    log: Path
    sequences: Path
    model: Path
    plain: Path


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Shop:
    """A log, its sequences and two models, made by the commands."""
    folder = tmp_path_factory.mktemp("shop")
    log = write_log(folder / "log.csv")
    places = Shop(log, folder / "sequences", folder / "model", folder / "plain")
    with pytest.MonkeyPatch.context() as patch:
        for arguments in (
            ["prepare", log, places.sequences],
            ["train", places.sequences, places.model, "--output", "softmax+CPR:5", *QUICK],
            ["train", log, places.plain, "--output", "softmax", *QUICK],
        ):
            patch.setattr(sys, "argv", ["abaca", *map(str, arguments)])
            patch.setattr(app, "registered_commands", [])
            with pytest.raises(SystemExit) as stop:
                main()
            assert not stop.value.code
    return places


def test_as_a_program(tmp_path: Path) -> None:
    """`python -m abaca`, as the shell sees it: exit codes 0 and 2, results apart from messages."""
    log = write_log(tmp_path / "log.csv")

    def shell(*arguments: str) -> "subprocess.CompletedProcess[str]":
        command = [sys.executable, "-W", "error", "-m", "abaca", *arguments]
        return subprocess.run(command, capture_output=True, text=True, env={**os.environ, "COLUMNS": "80"})

    good = shell("inspect", str(log), "--json")
    assert (good.returncode, good.stderr) == (0, "")
    assert json.loads(good.stdout)["interactions"] == 480
    bad = shell("inspect", str(tmp_path / "nothing.csv"))
    assert (bad.returncode, bad.stdout) == (2, "")
    assert bad.stderr.startswith("error: ")
    assert "nothing.csv" in bad.stderr
    assert len(bad.stderr.strip().splitlines()) == 1


def test_torch_is_loaded_by_the_commands_that_need_it_only(tmp_path: Path) -> None:
    """`import abaca`, `--help` and looking at a log do not wait for it."""
    script = (
        (
            "import sys, abaca, abaca.cli\n"
            "for arguments in (['--help'], ['inspect', sys.argv[1]], ['prepare', sys.argv[1], sys.argv[2]]):\n"
            "    sys.argv = ['abaca', *arguments]\n"
            "    abaca.cli.app.registered_commands = []\n"
            "    try:\n"
            "        abaca.cli.main()\n"
            "    except SystemExit as stop:\n"
            "        assert not stop.code\n"
            "assert abaca.TrainingOptions().epochs > 0\n"
            "assert 'torch' not in sys.modules\n"
        )
        .replace("sys.argv[1]", repr(str(write_log(tmp_path / "log.csv"))))
        .replace("sys.argv[2]", repr(str(tmp_path / "s")))
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_a_server_does_not_load_duckdb() -> None:
    """It is not needed there, and it reports leaks when a server ends."""
    script = "import sys, abaca.recommender, abaca.serve.app; assert 'duckdb' not in sys.modules"
    subprocess.run([sys.executable, "-c", script], check=True)


def test_version_and_help(cli: Cli) -> None:
    version = cli("--version")
    assert version.code == 0
    assert version.out.startswith(f"abaca {abaca.__version__}")
    shown = cli("--help")
    assert shown.code == 0
    for command in COMMANDS:
        assert command in shown.out


@pytest.mark.parametrize("command", COMMANDS)
def test_help_teaches(cli: Cli, command: str) -> None:
    shown = cli(command, "--help")
    assert shown.code == 0
    assert f"Example: abaca {command}" in " ".join(shown.out.replace("│", " ").split())


def loaded(name: str) -> Any:
    """A command as the help of the program knows it only by name."""
    alone = typer.Typer()
    importlib.import_module(f"abaca.cli.{name}").add_to(alone)
    alone.callback()(lambda: None)
    return typer.main.get_group(alone).commands[name]


def test_the_help_says_which_options_follow_from_the_log() -> None:
    shape = Shape(users=1000, items=100, interactions=30_000, repeats=0.5)
    chosen = set().union(*(suited(name, shape, sampled=True) for name in ENCODERS))
    shown = {each.name: str(each.show_default) for each in loaded("train").params}  # type: ignore[attr-defined]
    assert {name for name, default in shown.items() if default.startswith("auto; fixed: ")} == chosen
    assert shown["epochs"].endswith(f" {TrainingOptions().epochs}")


def test_the_help_of_the_program_has_every_command(cli: Cli) -> None:
    overview = cli("--help").out.split("Commands")[0]
    assert {name for name in COMMANDS if f"abaca {name} " in overview} == set(COMMANDS)


def test_every_option_has_a_sentence(cli: Cli) -> None:
    cli("--help")
    assert set(typer.main.get_command(app).commands) == set(COMMANDS)  # type: ignore[attr-defined]
    for name in COMMANDS:
        command = loaded(name)
        for each in (command, *getattr(command, "commands", {}).values()):
            for parameter in each.params:
                if parameter.name != "help":
                    assert parameter.help, f"{name} {parameter.name}"


@pytest.mark.parametrize("command", ["prediction", "trian"])
def test_an_unknown_command_is_refused(cli: Cli, command: str) -> None:
    outcome = cli(command)
    assert outcome.code == 2
    assert command in outcome.err


def test_an_unknown_option_is_refused(cli: Cli, shop: Shop) -> None:
    outcome = cli("train", shop.log, "x", "--epoch", "3")
    assert outcome.code == 2
    assert "--epochs" in outcome.err
    assert "Traceback" not in outcome.err


def test_inspect(cli: Cli, shop: Shop) -> None:
    shown = cli("inspect", shop.log)
    assert shown.code == 0
    for words in ("users", "40", "interactions", "480", "repeats", "bad rows", "none", "time", "kB", "about a second"):
        assert words in shown.out
    found = cli("inspect", shop.log, "--json").json
    assert (found["users"], found["interactions"]) == (40, 480)
    assert found["items"] <= 30


def test_options_in_messages_are_flags() -> None:
    said = with_flags(
        "lower `min_user` or `min_item=1`, `overwrite=True`, `on_bad_row='skip'`, see `abaca prepare --help`"
    )
    assert said == "lower --min-user or --min-item 1, --overwrite, --on-bad-row skip, see `abaca prepare --help`"


def test_the_columns_that_were_taken_are_shown(cli: Cli, shop: Shop, tmp_path: Path) -> None:
    log = tmp_path / "log.csv"
    log.write_text(shop.log.read_text().replace("user,item,time", "customer,item_id,ts", 1).replace(",i01,", ", i01,"))
    shown = " ".join(cli("inspect", log).out.replace("│", " ").split())
    assert "columns user customer · item item_id · time ts" in shown
    assert "' 7' is another id than '7'" in shown
    log.write_text(re.sub("^(?=.)", "x,", shop.log.read_text(), flags=re.M).replace("x,user", "user_id,user", 1))
    wanted = "user user_id (not user; --user chooses) · item item · time time"
    assert wanted in cli("inspect", log).out
    assert f"columns: {wanted}" in cli("prepare", log, tmp_path / "s").out


def test_inspect_counts_bad_rows_where_prepare_stops(cli: Cli, tmp_path: Path) -> None:
    log = write_log(tmp_path / "log.csv")
    with log.open("a") as stream:
        stream.write("u1,,5\nu2,i01,soon\n")
    assert sum(cli("inspect", log, "--json").json["bad_rows"].values()) == 2
    refused(cli("prepare", log, tmp_path / "s"), "log.csv line 482", "--on-bad-row skip")
    assert not (tmp_path / "s").exists()
    refused(cli("train", log, tmp_path / "m", *QUICK), "log.csv line 482")
    made = cli("prepare", log, tmp_path / "s", "--on-bad-row", "skip", "--json")
    assert made.code == 0
    assert sum(made.json["counts"]["bad_rows"].values()) == 2
    with pytest.raises(SpecError, match="`on_bad_row` is error or skip"):
        abaca.read_log(log, on_bad_row="ignore")  # type: ignore[arg-type]


def test_prepare_says_what_it_did(cli: Cli, shop: Shop, tmp_path: Path) -> None:
    shown = cli("prepare", shop.log, tmp_path / "s", "--min-item", "3")
    assert shown.code == 0
    said = " ".join(shown.out.split())
    assert "40 users" in said
    assert "40 validation and 40 test targets" in said
    assert "split: leave one out" in said


def test_prepare_in_json_is_the_manifest(cli: Cli, shop: Shop, tmp_path: Path) -> None:
    made = cli("prepare", shop.log, tmp_path / "s", "--json", "--split", "time", "--target", "all")
    assert made.code == 0
    assert made.json == json.loads((tmp_path / "s" / "manifest.json").read_text())
    assert made.json["options"]["split"] == "time"


def test_prepare_refuses_to_overwrite(cli: Cli, shop: Shop, tmp_path: Path) -> None:
    assert cli("prepare", shop.log, tmp_path / "s").code == 0
    refused(cli("prepare", shop.log, tmp_path / "s"), "prepared already", "--overwrite")
    assert cli("prepare", shop.log, tmp_path / "s", "--overwrite", "--min-user", "6").code == 0
    assert json.loads((tmp_path / "s" / "manifest.json").read_text())["options"]["min_user"] == 6
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "letter.txt").write_text("dear")
    refused(cli("prepare", shop.log, tmp_path / "mine", "--overwrite"), "not a prepared folder")
    assert (tmp_path / "mine" / "letter.txt").read_text() == "dear"


def test_columns_can_be_named(cli: Cli, shop: Shop, tmp_path: Path) -> None:
    log = tmp_path / "odd.csv"
    log.write_text(shop.log.read_text().replace("user,item,time", "who,what,when", 1))
    refused(cli("inspect", log), "odd.csv")
    assert cli("inspect", log, "--user", "who", "--item", "what", "--time", "when", "--json").json["users"] == 40


def test_train_writes_a_model_and_a_record(shop: Shop) -> None:
    names = sorted(path.name.split("-")[0] for path in shop.model.iterdir())
    assert names == ["card.md", "catalogue", "model.json", "training.jsonl", "weights"]
    records = [json.loads(line) for line in (shop.model / "training.jsonl").read_text().splitlines()]
    assert [record["epoch"] for record in records] == [0, 1]
    assert {"loss", "ndcg@10", "seconds", "lr", "targets"} <= records[0].keys()


def test_train_says_how_it_goes_and_what_next(cli: Cli, shop: Shop, tmp_path: Path) -> None:
    outcome = cli("train", shop.sequences, tmp_path / "m", *QUICK)
    assert outcome.code == 0
    assert re.search(r"epoch +2/2 +loss \d\.\d+ +validation ndcg@10 0\.\d+ .* targets/s", outcome.err)
    assert "sasrec" not in outcome.out
    assert "gru4rec softmax+CP+habits+followers: validation ndcg@10" in outcome.out
    assert f"next: abaca evaluate {tmp_path / 'm'} {shop.sequences}" in outcome.out


def test_train_within_a_budget_prints_every_trial(cli: Cli, shop: Shop, tmp_path: Path) -> None:
    options = ("--epochs", "1", "--dim", "8", "--lr", "0.01", "--dropout", "0.1", "--output", "softmax")
    outcome = cli("train", shop.sequences, tmp_path / "model", "--budget", "1h", *options)
    assert outcome.code == 0, outcome.err
    for encoder in ("sasrec", "gru4rec"):
        assert f"trial {encoder}, lr 0.01, dropout 0.1, dim 8, 1 epoch: validation ndcg@10" in outcome.err
    assert "the best of 2 trials, found and trained in" in outcome.out
    refused(cli("train", shop.sequences, tmp_path / "other", "--budget", "20"), "budget '20' is not a time", "20m")
    assert not (tmp_path / "other").exists()


def test_train_takes_a_file_of_options_and_flags_win(cli: Cli, shop: Shop, tmp_path: Path) -> None:
    config = tmp_path / "run.toml"
    config.write_text(
        'encoder = "gru4rec"\noutput = "softmax+C"\nepochs = 1\ndim = 6\nbatch_targets = 100\nlr = 1\n'
        "checkpoint_minutes = 0.5\nstop_after = 1\n"
    )
    assert cli("train", shop.log, tmp_path / "m", "--config", config, "--lr", "0.01").code == 0
    document = json.loads((tmp_path / "m" / "model.json").read_text())
    options = document["training"]["options"]
    assert (document["encoder"], document["output"], document["encoder_options"]["dim"]) == ("gru4rec", "softmax+C", 6)
    assert (options["epochs"], options["lr"], options["checkpoint_minutes"]) == (1, 0.01, 0.5)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("epoch = 3", "unknown key 'epoch'; did you mean epochs?"),
        ("outptu = 'softmax'", "did you mean output?"),
        ("resume = true", "unknown key 'resume'"),
        ("epochs = ", "run.toml"),
        ("epochs = 'ten'", "epochs must be a whole number, got 'ten'"),
        ("dim = 2.5", "dim must be a whole number, got 2.5"),
        ("lr = -1", "lr must be above 0"),
        ("encoder = 'lstm'", "encoder 'lstm' is not one of gru4rec, sasrec"),
        ("output = 'softmax+PR:3'", "P adds to C"),
        ("metric = 'recall'", "is not like ndcg@10"),
        ("metric = 'ndcg@²'", "is not like ndcg@10"),
        ("output = 3", "an output layer is text"),
        ("encoder = []", "encoder [] is not one of"),
        ("output = 'mos:999999999'", "at most 1000 queries"),
        ("dim = 1000000000", "choose smaller sizes"),
    ],
)
def test_a_file_of_options_that_makes_no_sense_is_refused(
    cli: Cli, shop: Shop, tmp_path: Path, content: str, said: str
) -> None:
    (tmp_path / "run.toml").write_text(content)
    refused(cli("train", shop.log, tmp_path / "m", "--config", tmp_path / "run.toml"), said)
    assert not (tmp_path / "m").exists()


def test_a_missing_file_of_options_is_refused(cli: Cli, shop: Shop, tmp_path: Path) -> None:
    refused(cli("train", shop.log, tmp_path / "m", "--config", tmp_path / "no.toml"), "no.toml does not exist")
    refused(
        cli("train", shop.log, tmp_path / "m", "--config", tmp_path), "cannot be read (Is a directory)", "TOML file"
    )
    outcome = cli("train", shop.log, tmp_path / "m", "--threads", "-3")
    assert outcome.code == 2
    assert "--threads" in outcome.err
    assert "Traceback" not in outcome.err


def test_options_of_preparing_come_too_late_for_sequences(cli: Cli, shop: Shop, tmp_path: Path) -> None:
    refused(cli("train", shop.sequences, tmp_path / "m", "--min-user", "9", *QUICK), "prepared already", "--min-user")
    (tmp_path / "items.csv").write_text("item,title\ni01,One\n")
    refused(cli("train", shop.sequences, tmp_path / "m", "--items", tmp_path / "items.csv", *QUICK), "prepared already")


def test_resume_goes_on_only_with_the_same_run(cli: Cli, shop: Shop, tmp_path: Path) -> None:
    begun = cli("train", shop.log, tmp_path / "m", "--resume", *QUICK)
    assert begun.code == 0
    assert "holds no run to resume: a new one begins" in begun.err
    assert cli("train", shop.log, tmp_path / "m", "--resume", *QUICK).code == 0  # finished: nothing to do
    refused(cli("train", shop.log, tmp_path / "m", "--resume", "--seed", "5", *QUICK), "seed 0, not 5", "--overwrite")
    refused(
        cli("train", shop.log, tmp_path / "m", "--resume", *QUICK[2:]),
        "m holds a run with epochs 2, not 20; resume with the options it began with (--epochs 2), or replace it with",
    )
    refused(
        cli("train", shop.sequences, tmp_path / "m", "--resume", "--output", "softmax", *QUICK), "(--output softmax+C"
    )


def test_a_model_is_replaced_only_when_asked(cli: Cli, shop: Shop, tmp_path: Path) -> None:
    def weights() -> list[str]:
        return sorted(path.name for path in (tmp_path / "m").glob("weights-*"))

    assert cli("train", shop.sequences, tmp_path / "m", *QUICK).code == 0
    before = weights()
    again = ("train", shop.sequences, tmp_path / "m", *QUICK, "--seed", "9")
    refused(cli(*again), "holds a model; --overwrite replaces it")
    assert weights() == before
    refused(cli(*again, "--overwrite", "--resume"), "give one of them")
    both = cli("train", shop.sequences, tmp_path / "none", *QUICK, "--overwrite", "--resume")
    assert "a new one begins" not in both.err
    refused(both, "give one of them")
    assert cli(*again, "--overwrite").code == 0
    assert weights() != before
    assert len(weights()) == 1
    (tmp_path / "m" / "run.safetensors").touch()
    refused(cli(*again), "holds a run that was stopped; --resume continues it, --overwrite starts again")


@pytest.mark.parametrize(
    ("flags", "config"),
    [
        (["--user", "user"], ""),
        (["--on-bad-row", "skip"], ""),
        (["--split", "time"], ""),
        ([], "min_item = 2"),
    ],
)
def test_whatever_belongs_to_preparing_is_refused_for_sequences(
    cli: Cli, shop: Shop, tmp_path: Path, flags: list[str], config: str
) -> None:
    (tmp_path / "run.toml").write_text(config)
    named = flags[0] if flags else "--min-item"
    outcome = cli("train", shop.sequences, tmp_path / "m", *flags, "--config", tmp_path / "run.toml", *QUICK)
    refused(outcome, f"prepared already: {named} must be given to `abaca prepare`")
    assert not (tmp_path / "m").exists()
    if flags[:1] in (["--user"], ["--on-bad-row"]):
        refused(cli("evaluate", shop.model, shop.sequences, *flags), f"prepared already: {named}")


def test_the_next_line_can_be_copied(cli: Cli, shop: Shop, tmp_path: Path) -> None:
    """Columns are remembered by the model, and names are quoted."""
    log = tmp_path / "my log.csv"
    log.write_text(shop.log.read_text().replace("user,item,time", "who,what,when", 1) + ",,\n")
    columns = ("--user", "who", "--item", "what", "--time", "when", "--on-bad-row", "skip")
    trained = cli("train", log, tmp_path / "my model", *columns, *QUICK)
    assert trained.code == 0
    assert "columns: user who · item what · time when" in trained.out
    (line,) = (line for line in trained.out.splitlines() if line.startswith("next: "))
    command = shlex.split(line.removeprefix("next: ").split(" · ")[0])
    assert cli(*command[1:], "--no-baselines").code == 0


def test_arguments_in_the_wrong_order_are_named(cli: Cli, shop: Shop, tmp_path: Path) -> None:
    wanted = shlex.join(["abaca", "evaluate", str(shop.model), str(shop.log)])
    refused(cli("evaluate", shop.log, shop.model), f"{shop.model} is a model directory, but evaluate takes", wanted)
    refused(cli("evaluate", shop.plain, shop.model), f"abaca evaluate {shop.plain} {shop.model} LOG")
    refused(cli("train", shop.model, tmp_path / "m", *QUICK), "is a model directory, not a log")
    refused(cli("prepare", shop.sequences, tmp_path / "s"), "is prepared already; give the log it was made of")


def test_evaluate_one_model(cli: Cli, shop: Shop) -> None:
    shown = cli("evaluate", shop.model, shop.log)
    assert shown.code == 0
    said = " ".join(shown.out.split())
    for words in ("NDCG@10", "HR@10", "all (40)", "repeat (", "gru4rec softmax+CPR:5", "95 %", "split: leave one out"):
        assert words in said
    alone = cli("evaluate", shop.model, shop.sequences, "--no-baselines", "--at", "5,10", "--json").json
    assert [entry["name"] for entry in alone["evaluations"]] == ["gru4rec softmax+CPR:5"]
    assert alone["comparisons"] == []
    everything = alone["evaluations"][0]["groups"]["all"]
    assert everything["count"] == 40
    assert set(everything["metrics"]) == {"ndcg@5", "hr@5", "mrr@5", "ndcg@10", "hr@10", "mrr@10"}


def test_evaluate_ranks_each_shelf_alone(cli: Cli, shop: Shop) -> None:
    shown = cli("evaluate", shop.model, shop.log)
    assert "each shelf ranked alone: buy again, only items of the history" in shown.out
    found = {entry["name"]: entry for entry in cli("evaluate", shop.model, shop.log, "--json").json["evaluations"]}
    shelves = shown.out.split("each shelf")[1].splitlines()
    cells = [[cell.strip() for cell in line.split("│")[1:-1]] for line in shelves if line.startswith("│")]
    assert [row[0] for row in cells] == [*BASELINES, "gru4rec softmax+CPR:5"]
    for name, *figures in cells:
        entry = found[name]
        measured = [shelf["metrics"] for shelf in entry["shelves"].values() if shelf["count"]]
        assert figures == [f"{part[metric]['value']:.4f}" for part in measured for metric in ("ndcg@10", "hr@10")]
        assert entry["shelves"]["buy again"]["count"] == entry["groups"]["repeat"]["count"]
    assert found["rules without history"]["shelves"]["buy again"]["metrics"]["hr@10"]["value"] == 0


def test_evaluate_with_the_time_of_the_query(cli: Cli, shop: Shop) -> None:
    without, known = (
        cli("evaluate", shop.model, shop.log, "--json", *flags).json["evaluations"] for flags in ((), ("--now",))
    )
    assert (without[0]["now_known"], without[0]["name"]) == (False, "gru4rec softmax+CPR:5")
    assert (known[0]["now_known"], known[0]["name"]) == (True, "gru4rec softmax+CPR:5, time of the query known")
    assert known[0]["groups"] == without[0]["groups"]  # the model reads no times
    assert [entry["name"] for entry in known[1:] if entry["now_known"]] == ["counts alone, time of the query known"]
    assert known[1:-1] == without[1:-1]  # nor do the other baselines
    assert (
        "softmax+CPR:5, time of the query known against the best baseline"
        in cli("evaluate", shop.model, shop.log, "--now").out
    )


def test_evaluate_warns_of_what_was_fitted_on_the_targets(cli: Cli, shop: Shop, tmp_path: Path) -> None:
    trained = cli("train", shop.log, tmp_path / "m", "--output", "softmax+habits", *QUICK)
    figure = re.search(r": validation ndcg@10 (0\.\d+) \(network", trained.out)
    assert figure is not None
    said = cli("evaluate", tmp_path / "m", shop.plain, shop.log, "--targets", "valid", "--json").err
    assert "warning: the evidence of gru4rec softmax+habits was fitted on these targets" in said
    assert f"validation ndcg@10 without this is {figure[1]}\n" in said
    assert "warning: the baselines blend and counts alone were fitted on these targets" in said
    assert said.count("warning:") == 2  # the plain model has no evidence
    assert "warning:" not in cli("evaluate", tmp_path / "m", shop.log).err
    assert cli("train", shop.log, tmp_path / "b", "--baseline", "blend").code == 0
    alone = cli("evaluate", tmp_path / "b", shop.log, "--targets", "valid", "--no-baselines")
    assert "warning: blend was fitted on these targets" in " ".join(alone.err.split())


def test_several_cutoffs_stay_readable(cli: Cli, shop: Shop) -> None:
    """One line per cutoff, so that the table fits; a cutoff beyond the catalogue is no different."""
    flags = ("--no-baselines", "--at", "5,10,20,999999999")
    shown = cli("evaluate", shop.model, shop.log, *flags)
    assert shown.code == 0
    rows = [line for line in shown.out.splitlines() if line.startswith("│")]
    assert max(map(len, rows)) <= 120
    rows = rows[: len(rows) // 2]  # the shelves follow
    cells = [[cell.strip() for cell in line.split("│")[1:-1]] for line in rows]
    assert [(row[0], row[1]) for row in cells] == [
        ("gru4rec softmax+CPR:5", "5"), ("", "10"), ("", "20"), ("", "999999999")
    ]  # fmt: skip
    found = cli("evaluate", shop.model, shop.log, *flags, "--json").json["evaluations"][0]["groups"]["all"]["metrics"]
    for row in cells:
        assert row[2] == f"{found[f'ndcg@{row[1]}']['value']:.4f}"
        assert row[3] == f"{found[f'hr@{row[1]}']['value']:.4f}"
    assert cells[-1][3] == "1.0000"


def test_evaluate_compares_models_and_adds_baselines(cli: Cli, shop: Shop) -> None:
    shown = cli("evaluate", shop.plain, shop.model, shop.log)
    assert shown.code == 0
    assert "gru4rec softmax+CPR:5 against gru4rec softmax: ndcg@10" in shown.out
    assert "gru4rec softmax against the best baseline, personal frequency: ndcg@10 -0." in shown.out
    assert " p = 0." in shown.out or " p = 1." in shown.out
    found = cli("evaluate", shop.plain, shop.model, shop.log, "--json").json
    assert len(found["evaluations"]) > 4  # two models and the baselines
    test, rule = found["comparisons"]
    assert rule["a"] == "gru4rec softmax"
    assert rule["b"] in BASELINES
    assert (test["a"], test["b"]) == ("gru4rec softmax+CPR:5", "gru4rec softmax")
    values = {entry["name"]: entry["groups"]["all"]["metrics"]["ndcg@10"]["value"] for entry in found["evaluations"]}
    assert test["difference"]["value"] == pytest.approx(values[test["a"]] - values[test["b"]])


def test_models_of_the_same_kind_are_told_apart(cli: Cli, shop: Shop, tmp_path: Path) -> None:
    assert cli("train", shop.log, tmp_path / "m", "--output", "softmax", "--seed", "3", *QUICK).code == 0
    found = cli("evaluate", shop.plain, tmp_path / "m", shop.log, "--no-baselines", "--json").json
    assert [entry["name"] for entry in found["evaluations"]] == [
        f"gru4rec softmax ({shop.plain})",
        f"gru4rec softmax ({tmp_path / 'm'})",
    ]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["{model}"], "one or more model directories and then the log"),
        (["{model}", "{log}", "--at", "ten"], "--at 'ten' is not a list of whole numbers"),
        (["{model}", "{log}", "--at", "0"], "a cutoff is at least 1"),
        (["{model}", "{log}", "--targets", "train"], "--targets 'train' is not test or valid"),
        (["{log}", "{log}"], "is not a model directory"),
        (["{model}", "{other}"], "{model}: this model was trained on other data"),
        (["{model}", "{nothing}"], "nothing.csv"),
    ],
)
def test_evaluate_refuses(cli: Cli, shop: Shop, tmp_path: Path, arguments: list[str], said: str) -> None:
    other = tmp_path / "other.csv"
    other.write_text("".join(shop.log.read_text().splitlines(keepends=True)[:400]))
    places = {**shop._asdict(), "other": other, "nothing": tmp_path / "nothing.csv"}
    refused(cli("evaluate", *(argument.format(**places) for argument in arguments)), said.format(**places))


def test_recommend(cli: Cli, shop: Shop) -> None:
    shown = cli("recommend", shop.model, "i01", "i02", "i01", "-n", "4")
    assert shown.code == 0
    for words in ("after i01 i02 i01", "probability", "reason", "%", "one of the history"):
        assert words in shown.out
    found = cli("recommend", shop.model, "i01", "i02", "i01", "-n", "4", "--json").json
    assert len(found["items"]) == 4
    expected = abaca.load(shop.model).recommend(["i01", "i02", "i01"], 4)
    assert [item["id"] for item in found["items"]] == expected.ids
    assert found["unknown"] == []


def test_recommend_under_policies(cli: Cli, shop: Shop, tmp_path: Path) -> None:
    def ids(*options: str) -> list[str]:
        answer = cli("recommend", shop.model, "i01", "i02", *options, "--json").json
        return [item["id"] for item in answer["items"]]

    assert set(ids("--repeats", "only")) == {"i01", "i02"}
    assert not {"i01", "i02"} & set(ids("--repeats", "exclude", "-n", "30"))
    assert set(ids("--candidate", "i05", "--candidate", "i06", "--candidate", "i01", "--exclude", "i06")) == {
        "i05",
        "i01",
    }
    assert len({"i01", "i02"} & set(ids("--max-repeat-share", "0.5", "-n", "2"))) <= 1
    (tmp_path / "ids.txt").write_bytes(b"\xef\xbb\xbfi05\r\n\r\n  \r\n i06\t\r\n")  # as Windows writes text
    some = f"@{tmp_path / 'ids.txt'}"
    assert set(ids("--candidates", some, "--candidates", "i01")) == {"i01", "i05", "i06"}
    assert set(ids("--candidates", some, "--exclude", some, "--candidate", "i02")) == {"i02"}
    refused(
        cli("recommend", shop.model, "i01", "--exclude", "@nowhere.txt"), "a list of ids (No such file or directory)"
    )
    (tmp_path / "stock.txt").touch()
    stock = f"@{tmp_path / 'stock.txt'}"
    refused(cli("recommend", shop.model, "i01", "--candidates", stock), "stock.txt has no ids: nothing is left")
    assert ids("--exclude", stock) == ids()
    commas = cli("recommend", shop.model, "i01", "--candidates", "i05,i06")
    assert "'i05,i06' is one id, which the model does not know; give the option several times, or @FILE" in commas.err
    assert "several times" not in cli("recommend", shop.model, "i01", "--candidates", "i05").err


def test_recommend_under_rules_that_compose_a_list(cli: Cli, shop: Shop, tmp_path: Path) -> None:
    (tmp_path / "items.csv").write_text("item,kind\n" + "".join(f"i{i:02},{'ab'[i % 2]}\n" for i in range(30)))
    model = tmp_path / "model"
    assert cli("train", shop.log, model, "--items", tmp_path / "items.csv", "--epochs", "1", *QUICK).code == 0
    loaded = abaca.load(model)
    options = {
        "max_repeats": ["--max-repeats", "1"],
        "min_new": ["--min-new", "4"],
        "cooldown": ["--cooldown", "1 item"],
        "at_most": ["--at-most", "kind=3", "--at-most", "kind=a=2"],
        "at_least": ["--at-least", "kind=b=2"],
        "boost": ["--boost", "i07=2.5", "--boost", "i03=-1"],
        "boost_category": ["--boost-category", "kind=b=0.5"],
        "diversity": ["--diversity", "0.4"],
    }
    rules: dict[str, Any] = {
        "max_repeats": 1, "min_new": 4, "cooldown": "1 item", "at_most": ["kind=3", "kind=a=2"],
        "at_least": {"kind": {"b": 2}}, "boost": {"i07": 2.5, "i03": -1}, "boost_category": {"kind": {"b": 0.5}},
        "diversity": 0.4,
    }  # fmt: skip
    for name, flags in {**options, "all": [flag for each in options.values() for flag in each]}.items():
        given = rules if name == "all" else {name: rules[name]}
        answer = cli("recommend", model, "i01", "i02", "-n", "6", *flags, "--json").json
        expected = loaded.recommend(["i01", "i02"], 6, **given)
        assert [item["id"] for item in answer["items"]] == expected.ids
        assert answer["rules"] == expected.to_json()["rules"]
    shown = cli(
        "recommend",
        model,
        "i01",
        "i02",
        "-n",
        "3",
        "--exclude",
        expected.ids[0],
        "--boost",
        "i09=99",
        "--explain-rules",
    )
    assert "moved up" in shown.out
    assert "boost" in shown.out
    assert "no rule changed the list" in cli("recommend", model, "i01", "--explain-rules").out
    unheard = cli("recommend", model, "i01", "--at-least", "kind=tea=2").out
    assert "rule: at_least kind=tea: 2 short; no item has this value" in unheard
    assert "rule:" not in cli("recommend", model, "i01", "--boost", "i09=99").out
    refused(cli("recommend", model, "i01", "--at-most", "brand=2"), "no column 'brand'; it has kind")
    refused(cli("recommend", model, "i01", "--cooldown", "7"), "write it as '7 days', '5 items' or '7 days of buy'")
    stock = tmp_path / "stock.csv"
    stock.write_text("sku,left\ni04,3\ni05,1\n")
    found = cli("recommend", model, "i01", "--candidates", f"@{stock}", "--json").json
    assert {item["id"] for item in found["items"]} == {"i04", "i05"}


def test_train_points_to_the_options_of_prepare(cli: Cli, shop: Shop, tmp_path: Path) -> None:
    for flag in ("--drop-consecutive", "--since=3"):
        said = f"{flag.split('=')[0]} is an option of `abaca prepare`"
        refused(cli("train", shop.log, tmp_path / "m", flag), said)
    (tmp_path / "run.toml").write_text("since = 3")
    refused(cli("train", shop.log, tmp_path / "m", "--config", tmp_path / "run.toml"), "an option of `abaca prepare`")
    assert not (tmp_path / "m").exists()


def test_unknown_ids_are_named(cli: Cli, shop: Shop) -> None:
    shown = cli("recommend", shop.model, "i01", "tofu", "--exclude", "[soap]", "-n", "2")
    assert shown.code == 0
    assert "not known to the model: tofu, [soap]" in shown.out
    only = cli("recommend", shop.model, "tofu", "-n", "2")
    assert only.code == 0
    assert "popular: no item of the history is known" in only.out


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--repeats", "never"], "repeats must be one of auto, exclude, only, got 'never'"),
        (["-n", "0"], "n must be at least 1"),
        (["--max-repeat-share", "2"], "between 0 and 1"),
        (["--resume", "--user", "u"], "--user, --resume needs --histories FILE"),
        (["--on-bad-row", "skip"], "--on-bad-row needs --histories FILE"),
    ],
)
def test_recommend_refuses(cli: Cli, shop: Shop, options: list[str], said: str) -> None:
    refused(cli("recommend", shop.model, "i01", *options), said)


def test_a_model_that_is_not_one_is_refused(cli: Cli, shop: Shop, tmp_path: Path) -> None:
    refused(cli("recommend", tmp_path / "no", "i01"), "is not a model directory", "abaca train")
    refused(cli("recommend", shop.sequences, "i01"), "is not a model directory")


def test_integer_ids_on_the_shell(cli: Cli, tmp_path: Path) -> None:
    abaca.Recommender("gru4rec", "softmax+C", epochs=1, dim=4, batch_targets=100).fit(
        synthetic_log("copy-after-repeat", users=20, items=30, length=8, seed=2), folder=tmp_path / "m"
    )
    found = cli("recommend", tmp_path / "m", "3", "7", "x7", "²", "--json").json
    assert found["unknown"] == ["x7", "²"]
    assert all(isinstance(item["id"], int) for item in found["items"])


def test_names_are_shown_as_they_are(cli: Cli, tmp_path: Path) -> None:
    """Ids and titles with brackets, colons and slashes are text, not markup."""
    log, items = write_log(tmp_path / "[log].csv"), tmp_path / "items.csv"
    log.write_text(log.read_text().replace("i01", "[/]01"))
    items.write_text("item,title\n[/]01,[bold]jam :smile:\n")
    assert cli("train", log, tmp_path / "[m]", "--items", items, *QUICK).code == 0
    shown = cli("recommend", tmp_path / "[m]", "[/]01", "--repeats", "only")
    assert shown.code == 0
    assert "[/]01" in shown.out
    assert "[bold]jam :smile:" in shown.out
    assert "after [/]01" in shown.out
    assert cli("inspect", log).out.startswith("[log].csv")


def test_the_log_may_be_anywhere_in_any_format(cli: Cli, shop: Shop, tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    lines = shop.log.read_text().splitlines(keepends=True)
    (folder / "a.csv").write_text("".join(lines[:240]))
    (folder / "b.csv").write_text("".join([lines[0], *lines[240:]]))
    assert cli("inspect", folder, "--json").json["interactions"] == 480
    assert cli("evaluate", shop.model, folder, "--no-baselines", "--json").code == 0


def test_the_help_of_train_tells_the_encoders_own_defaults() -> None:
    """They are written there by hand: the help does not load the encoders."""
    found = {parameter.name: getattr(parameter, "show_default", None) for parameter in loaded("train").params}
    shown = {name: str(default).removeprefix("auto; fixed: ") for name, default in found.items()}
    options = {name: kind.Options() for name, kind in ENCODERS.items()}
    assert shown["dropout"] == ", ".join(f"{name} {each.dropout}" for name, each in options.items())
    assert {shown["dim"]} == {str(each.dim) for each in options.values()}
    assert shown["hidden"] == str(options["gru4rec"].hidden)


@pytest.mark.parametrize("name", COMMANDS)
def test_the_summary_of_a_command_is_its_help(name: str) -> None:
    """`abaca --help` shows it without loading the command."""
    assert (loaded(name).help or "").split("\n\n")[0].replace("\n", " ") == COMMANDS[name]


def test_recommend_answers_a_file_of_histories(cli: Cli, shop: Shop, tmp_path: Path) -> None:
    to = tmp_path / "answers.jsonl"
    assert (
        cli("recommend", shop.model, "--histories", shop.log, "--to", to, "-n", "3", "--json").json["histories"] == 40
    )
    rows = [json.loads(line) for line in to.read_text().splitlines()]
    assert [row["user"] for row in rows] == sorted(f"u{i}" for i in range(40))
    assert all(len(row["ids"]) == 3 for row in rows)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], ["no history", "--histories"]),
        (["i1", "--histories", "x.csv"], ["not both"]),
        (["--histories", "x.csv"], ["--to"]),
        (["i1", "--to", "x.parquet"], ["--histories"]),
        (["--histories", "x.csv", "--to", "x.parquet"], ["x.csv", "does not exist"]),
    ],
)
def test_recommend_says_what_a_file_of_histories_takes(
    cli: Cli, shop: Shop, arguments: list[str], words: list[str]
) -> None:
    refused(cli("recommend", shop.model, *arguments), *words)


def test_recommend_takes_times_and_the_moment(cli: Cli, shop: Shop, tmp_path: Path) -> None:
    with asked_of_rankers() as asked:
        for times in ("1704110400,1704110460.5", "2024-01-01T12:00Z,2024-01-01T12:01:00.5"):
            assert cli("recommend", shop.model, "i01", "i02", "--times", times, "--now", "2024-01-01T13:00").code == 0
        assert cli("recommend", shop.model, "i01", "--now", "-7.5").code == 0
    assert [(query.times, query.now) for query in asked] == [
        *[([1_704_110_400, 1_704_110_460.5], 1_704_114_000)] * 2, (None, -7.5)
    ]  # fmt: skip
    with asked_of_rankers() as asked:
        to = tmp_path / "answers.jsonl"
        assert cli("recommend", shop.model, "--histories", shop.log, "--to", to, "--now", "2024-01-01T12:00").code == 0
    assert len(asked) == 40
    assert {query.now for query in asked} == {1_704_110_400}
    assert all(query.times is not None and query.times[0] > 1.6e9 for query in asked)
    lists = tmp_path / "lists.jsonl"
    lists.write_text('{"history": ["i01"], "times": [3], "when": 4}\n')
    with asked_of_rankers() as asked:
        assert cli("recommend", shop.model, "--histories", lists, "--to", tmp_path / "a.csv", "--now", "when").code == 0
    assert [(query.times, query.now) for query in asked] == [([3], 4)]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--times", "1"], ["history 1 has 2 items and 1 times; give one each"]),
        (["--times", "1,x"], ["--times takes numbers", "got 'x'"]),
        (["--times", "1,nan"], ["--times takes numbers"]),
        (["--now", "soon"], ["--now takes numbers", "got 'soon'"]),
        (["--now", "20240131"], ["--now 20240131 would be a time soon after 1970; write a date like 2024-01-31"]),
    ],
)
def test_recommend_refuses_times_that_do_not_fit(cli: Cli, shop: Shop, options: list[str], words: list[str]) -> None:
    refused(cli("recommend", shop.model, "i01", "i02", *options), *words)


def test_recommend_refuses_times_beside_a_file(cli: Cli, shop: Shop, tmp_path: Path) -> None:
    to = tmp_path / "answers.csv"
    refused(cli("recommend", shop.model, "--histories", shop.log, "--to", to, "--times", "1"), "a log has its own")
    refused(cli("recommend", shop.model, "--histories", shop.log, "--to", to, "--now", "time"), "--now takes numbers")


def test_similar(cli: Cli, shop: Shop) -> None:
    found = cli("similar", shop.model, "i01", "-n", "3", "--json").json
    assert [near["id"] for near in found] == [near.id for near in abaca.load(shop.model).similar("i01", 3)]
    shown = cli("similar", shop.model, "i01", "-n", "3").out
    assert "similar to i01" in shown
    assert f"{found[0]['similarity']:.3f}" in shown
    refused(cli("similar", shop.model, "tofu"), "does not know the item 'tofu'")


def test_refit_trains_on_everything_with_the_options_of_a_model(cli: Cli, shop: Shop, tmp_path: Path) -> None:
    made = cli("train", shop.log, tmp_path / "final", "--refit", shop.plain)
    assert made.code == 0
    assert "evaluate" not in made.out
    before, after = (json.loads((place / "model.json").read_text()) for place in (shop.plain, tmp_path / "final"))
    assert after["training"]["everything"]
    assert after["training"]["options"] == before["training"]["options"]
    assert after["training"]["refit_epochs"] == before["training"]["best_epoch"] + 1
    refused(cli("evaluate", tmp_path / "final", shop.log), "refitted on everything")
    refused(cli("train", shop.log, tmp_path / "x", "--refit", shop.plain, "--dim", "4"), "leave out --dim")


def test_train_keeps_the_events_that_are_wanted(cli: Cli, shop: Shop, tmp_path: Path) -> None:
    lines = shop.log.read_text().splitlines()
    views = [f"{line},{'view' if number % 8 == 3 else 'buy'}" for number, line in enumerate(lines[1:])]
    (tmp_path / "log.csv").write_text("\n".join([lines[0] + ",event", *views]) + "\n")
    made = cli("train", tmp_path / "log.csv", tmp_path / "m", "--events", "buy", "--output", "softmax", *QUICK)
    assert made.code == 0
    document = json.loads((tmp_path / "m" / "model.json").read_text())
    assert document["training"]["prepared"]["events"] == ["buy"]
    assert document["training"]["records"][0]["targets"] == 480 - 60 - 3 * 40


def test_train_warns_of_what_makes_a_model_poor_or_slow(
    cli: Cli, shop: Shop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    timeless = tmp_path / "log.csv"
    timeless.write_text("".join(line.rsplit(",", 1)[0] + "\n" for line in shop.log.read_text().splitlines()))
    said = " ".join(cli("train", timeless, tmp_path / "a", "--output", "softmax", *QUICK).err.split())
    assert "warning: no time column was recognised: rows are used in file order" in said
    found = re.search(r"warning: the baseline '(.*)' is better than the model: .* ndcg@10 0\.\d+ against 0\.", said)
    assert found is not None
    assert found[1] in BASELINES
    monkeypatch.setattr("abaca.nn.ops.instructions", lambda: None)
    said = " ".join(cli("train", shop.log, tmp_path / "b", "--output", "softmax", *QUICK).err.split())
    assert "no time column" not in said
    assert "warning: there is no compiled loss" in said


def test_evaluate_takes_somebody_elses_recommendations(cli: Cli, shop: Shop, tmp_path: Path) -> None:
    """Every list has i00 first and the target second; one user has none."""
    last: dict[str, str] = {}
    for line in shop.log.read_text().splitlines()[1:]:
        user, item, _ = line.split(",")
        last[user] = item
    file = tmp_path / "theirs.csv"
    lines = [f"{user},i00,2.0\n{user},{item},1.5" for user, item in last.items() if user != "u7"]
    file.write_text("\n".join(["user_id,item_id,score", *lines]) + "\n")
    shown = cli("evaluate", shop.plain, shop.log, "--against", file, "--json")
    assert "has no list for 1 users, whose targets count as misses: u7" in " ".join(shown.err.split())
    row = next(entry for entry in shown.json["evaluations"] if entry["name"] == "theirs.csv")
    first = sum(item == "i00" for user, item in last.items() if user != "u7")
    found = {name: figure["value"] for name, figure in row["groups"]["all"]["metrics"].items()}
    assert found["hr@10"] == pytest.approx(39 / 40)
    assert found["mrr@10"] == pytest.approx((first + (39 - first) / 2) / 40)
    assert shown.json["comparisons"][0]["a"] == "theirs.csv"
    file.write_text("who,item\n1,2\n")
    refused(cli("evaluate", shop.plain, shop.log, "--against", file), "needs user_id, item_id, and score or rank")


def test_old_flags_keep_working(cli: Cli, shop: Shop, tmp_path: Path) -> None:
    lists = tmp_path / "lists.jsonl"
    lists.write_text('{"user": "a", "seen": ["i01"], "other": ["i02"]}\n')
    for flag in ("--history", "--history-column"):
        to = tmp_path / f"{flag}.jsonl"
        assert cli("recommend", shop.model, "--histories", lists, flag, "seen", "--to", to, "-n", "1").code == 0
        assert json.loads(to.read_text())["user"] == "a"
    assert "--candidate " not in cli("recommend", "--help").out
    refused(cli("export", shop.model, "--to", "tflite"), "--format tflite is not known")


def test_a_simple_rule_is_saved_evaluated_and_asked_like_a_model(cli: Cli, shop: Shop, tmp_path: Path) -> None:
    made = cli("train", shop.log, tmp_path / "m", "--baseline", "personal frequency")
    assert made.code == 0
    assert "rule personal frequency" in made.out
    shown = cli("recommend", tmp_path / "m", "i01", "i02", "i01", "-n", "2")
    assert shown.out.index("i01 ") < shown.out.index("i02 ")
    rows = cli("evaluate", tmp_path / "m", shop.log, "--json").json["evaluations"]
    figures = [row["groups"] for row in rows if row["name"] == "personal frequency"]
    assert len(figures) == 2
    assert figures[0] == figures[1]
    to = tmp_path / "a.jsonl"
    shown = cli("recommend", tmp_path / "m", "--histories", shop.log, "--to", to)
    assert "answers to 40 histories" in shown.out
    assert "no known item" not in shown.out
    refused(
        cli("train", shop.log, tmp_path / "x", "--baseline", "popularity", "--output", "softmax"), "leave those out"
    )
    for command in (["similar", tmp_path / "m", "i01"], ["export", tmp_path / "m"], ["index", tmp_path / "m"]):
        refused(cli(*command), "is a baseline", "train a model without --baseline")


def test_train_prints_what_was_left_out(cli: Cli, tmp_path: Path) -> None:
    rows = [
        f"u{user},i{place % 5},{place},{'view' if place == 9 else 'buy'}" for user in range(9) for place in range(10)
    ]
    (tmp_path / "log.csv").write_text("\n".join(["user,item,time,event", *rows, "u9,i1,1,buy", "u9,,2,buy"]))
    options = ["--events", "buy", "--on-bad-row", "skip"]
    lines = ["left out: events: 9", "left out: min-user: 1", "left out: missing item: 1"]
    for made in (
        cli("prepare", tmp_path / "log.csv", tmp_path / "s", *options),
        cli("train", tmp_path / "log.csv", tmp_path / "m", "--baseline", "popularity", *options),
    ):
        assert [line.strip() for line in made.out.splitlines() if "left out" in line] == lines
    refused(
        cli("train", tmp_path / "log.csv", tmp_path / "n", "--events", "bought", "--on-bad-row", "skip"),
        "column 'event' has buy (82), view (9)",
        "repeat --events for several",
    )
