"""The command line: the only place that prints, parses arguments or exits."""

import os
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


def _version(wanted: bool) -> None:
    if wanted:
        from abaca import __version__
        from abaca.nn import native

        typer.echo(f"abaca {__version__} (loss: {native.mode() or 'plain torch'})")
        raise typer.Exit


@app.callback()
def abaca(
    version: Annotated[
        bool,
        typer.Option(
            "--version",
            callback=_version,
            is_eager=True,
            help="Say which release and which form of the loss is in use.",
        ),
    ] = False,
) -> None:
    """Next-item recommendation that learns when to repeat and when to explore.

    From an interaction log (user, item, time) to recommendations:

    [bold]abaca demo[/]                     see it work on grocery data

    [bold]abaca inspect[/] LOG              what is in the log
    [bold]abaca train[/] LOG MODEL          learn from it
    [bold]abaca evaluate[/] MODEL LOG       honest numbers, repeats and new items apart
    [bold]abaca recommend[/] MODEL ID ID …  what comes next
    [bold]abaca index[/] MODEL              search a large catalogue faster
    [bold]abaca export[/] MODEL             take it to where there is no torch
    """


def main() -> None:
    """Run a command; 2 for the user's mistake, with one message, 1 for ours."""
    from abaca.cli import demo, evaluate, export, index, inspect, prepare, recommend, train
    from abaca.cli.show import errors_to
    from abaca.errors import UserError

    for module in (demo, inspect, prepare, train, evaluate, recommend, index, export):
        module.add_to(app)
    try:
        app()
    except UserError as error:
        errors_to().print(f"[bold red]error:[/] {_escaped(str(error))}", highlight=False, soft_wrap=True)
        sys.exit(2)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except OSError as error:
        errors_to().print(f"[bold red]error:[/] {_escaped(str(error))}", highlight=False, soft_wrap=True)
        sys.exit(2)
    except Exception:
        traceback.print_exc()
        errors_to().print("[bold red]this is a mistake of abaca's, not yours;[/] the lines above say where")
        sys.exit(1)


def _escaped(text: str) -> str:
    from rich.markup import escape

    return escape(text)
