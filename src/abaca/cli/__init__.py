"""The command line: the only place that prints, parses arguments or exits."""

import importlib
import os
import re
import sys
import traceback
from typing import Annotated

import typer

# OpenMP threads that wait should sleep: where cores are shared, threads that spin make two slower than one.
# It is read when torch is loaded, so every import of torch comes later.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

app = typer.Typer(
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)


COMMANDS = {
    "demo": "Learn from groceries when to repeat and when to explore, and show the result.",
    "fetch": "Fetch one of the paper's data sets and turn it into a log that `prepare` and `train` read.",
    "inspect": "Report the contents of a log: users, items, repeats, times and bad rows.",
    "prepare": "Turn a log into sequences: filtered, in order, split; memory-mapped arrays with a manifest.",
    "encode": "Encode the texts of an item table with a sentence encoder, as a column of vectors for --features.",
    "train": "Train a model on a log, keeping the epoch that validates best.",
    "runs": "Show the runs of a folder side by side: options that differ, figures and curves.",
    "evaluate": "Rank every held-out target against the whole catalogue, and split the numbers by repeat and new.",
    "card": "Write and print the card of a model: data, options, figures, and what it must not be used for.",
    "update": "Take new events into a model: counted in seconds, or trained on with --train.",
    "recommend": "Recommend the next items after a history of ids, or after each history of a file, with reasons.",
    "similar": "Show the items that are most similar to an item, by the cosine of their vectors.",
    "serve": "Serve a model over HTTP, with a page at / that shows what it recommends and why.",
    "store": "Work with the store of a server: check, back up, restore, export or erase a user, prune, report.",
    "index": "Build a search index, so that a recommendation does not score every item of a large catalogue.",
    "export": "Write encoder, output layer, evidence and top-n as one ONNX file, and the ids beside it as JSON.",
    "tune": "Search learning rate, dropout, batch and size for the best validation NDCG@10, with Optuna.",
    "compare": "Train and test every row of a study, and write its tables, figures and page.",
    "bench": "Measure the speed of this machine: CPU time, wall time and peak memory.",
}
"""Each is a module of this package; the summary is the first line of its help."""

PLUGINS = "ABACA_PLUGINS"
"""Classes of one's own that every command may use, as in my_encoder:Convolution,my_output:Bonus."""

COMPLETION = "_ABACA_COMPLETE"
"""Set when a shell requests completions."""


def _version(wanted: bool) -> None:
    if wanted:
        from abaca import __version__
        from abaca.nn import ops

        typer.echo(f"abaca {__version__} (loss: {ops.instructions() or 'plain torch'})")
        raise typer.Exit


@app.callback()
def abaca(
    version: Annotated[
        bool,
        typer.Option(
            "--version",
            callback=_version,
            is_eager=True,
            help="Print the version and the implementation of the loss.",
        ),
    ] = False,
) -> None:
    """Next-item recommendation that learns when to repeat and when to explore.

    From an interaction log (user, item, time) to recommendations:

    [bold]abaca demo[/]                     see it work on grocery data

    [bold]abaca fetch[/] NAME               a public data set, as a log
    [bold]abaca inspect[/] LOG              what is in the log
    [bold]abaca prepare[/] LOG FOLDER       sequences that several models train on
    [bold]abaca encode[/] ITEMS FILE        texts of items as vectors
    [bold]abaca train[/] LOG MODEL          learn from it
    [bold]abaca runs[/] FOLDER              runs side by side
    [bold]abaca evaluate[/] MODEL LOG       metrics of repeat and new items
    [bold]abaca card[/] MODEL [LOG]         what it is, and what it must not be used for
    [bold]abaca update[/] MODEL LOG NEW     take new events into it
    [bold]abaca recommend[/] MODEL ID ID …  what comes next
    [bold]abaca similar[/] MODEL ID         items like this one
    [bold]abaca serve[/] MODEL              the same over HTTP, with a page
    [bold]abaca store[/] backup STORE …     its store: copies, a user's data, reports
    [bold]abaca index[/] MODEL              search a large catalogue faster
    [bold]abaca export[/] MODEL             run it without torch

    [bold]abaca tune[/] LOG FOLDER          search for good options
    [bold]abaca compare[/] STUDY.toml       models × data sets × seeds: tables, figures, a page
    [bold]abaca bench[/]                    the speed of this machine
    """


def main() -> None:
    """Run a command; 2 for the user's mistake, with one message, 1 for ours."""
    from abaca.cli.show import errors_to
    from abaca.errors import UserError
    from abaca.memory import keep_memory

    keep_memory()
    _add_commands(sys.argv[1:])
    try:
        _register_plugins(os.environ.get(PLUGINS, ""))
        app()
    except UserError as error:
        if not error.reported:
            shown = _escaped(with_flags(str(error)))
            errors_to().print(f"[bold red]error:[/] {shown}", highlight=False, soft_wrap=True)
        sys.exit(2)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except OSError as error:
        errors_to().print(f"[bold red]error:[/] {_escaped(str(error))}", highlight=False, soft_wrap=True)
        sys.exit(2)
    except Exception as error:
        if isinstance(error, MemoryError) or "can't allocate memory" in str(error):
            errors_to().print("[bold red]error:[/] the memory is full; lower --dim, --batch-targets or --window")
            sys.exit(2)
        traceback.print_exc()
        errors_to().print("[bold red]this is a bug in abaca;[/] the lines above show where")
        sys.exit(1)


def _add_commands(arguments: list[str]) -> None:
    """Import only the requested command, so that help does not load torch; the others are added by name only."""
    asked = next((word for word in arguments if not word.startswith("-")), None)
    everything = COMPLETION in os.environ
    for name, summary in COMMANDS.items():
        if everything or name == asked:
            importlib.import_module(f"abaca.cli.{name}").add_to(app)
        else:
            app.command(name, help=summary)(lambda: None)


def _register_plugins(classes: str) -> None:
    """Register encoders and output layers of one's own, which the caller names as module:Class, with commas."""
    if not classes:
        return
    from abaca.errors import SpecError
    from abaca.plugins import register

    sys.path.insert(0, os.getcwd())
    for path in classes.split(","):
        module, _, name = path.strip().partition(":")
        try:
            kind = getattr(importlib.import_module(module), name)
        except (ImportError, AttributeError, ValueError) as error:
            raise SpecError(f"{PLUGINS}: {path!r} cannot be imported ({error}); write module:Class") from error
        register(kind)


def with_flags(message: str) -> str:
    """Options in backquotes as a shell spells them: `min_user=3` is --min-user 3, `overwrite=True` is --overwrite."""

    def flag(match: re.Match[str]) -> str:
        option, value = match[1].replace("_", "-"), (match[2] or "").strip("'")
        return f"--{option}" + (f" {value}" if value not in ("", "True") else "")

    return re.sub(r"`([a-z_]+)(?:=([^`]*))?`", flag, message)


def _escaped(text: str) -> str:
    from rich.markup import escape

    return escape(text)
