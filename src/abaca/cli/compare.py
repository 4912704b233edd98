"""`abaca compare`: the paper's kind of study, from a TOML file to tables, figures and a page."""

import os
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from abaca.cli import show
from abaca.durable import locked
from abaca.errors import SpecError
from abaca.study.extra import needs
from abaca.study.jobs import Place, run_study
from abaca.study.standing import Standing
from abaca.study.study_report import cases, publish, summary_sentences
from abaca.study.work import Message


def command(
    study: Annotated[Path, typer.Argument(metavar="STUDY.toml", help="What is compared; docs/study.md explains it.")],
    to: Annotated[
        Path | None, typer.Option("--to", metavar="DIR", help="Where results go; the study's folder if not given.")
    ] = None,
    data: Annotated[
        Path | None, typer.Option("--data", metavar="FOLDER", help="Where the study's logs are; else beside it.")
    ] = None,
    jobs: Annotated[int, typer.Option("--jobs", help="Processes; 0: one per core.")] = 0,
    threads: Annotated[int, typer.Option("--threads", help="CPU threads of each process.")] = 1,
    examples: Annotated[
        bool, typer.Option("--examples", help="Show the same histories under several models side by side.")
    ] = False,
    only_report: Annotated[
        bool, typer.Option("--only-report", help="Train nothing: write tables, figures and page from the results.")
    ] = False,
) -> None:
    """Train and test every row of a study, and write its tables, figures and page.

    Encoders × output layers × data sets × seeds × grid; the configuration of each row is chosen on validation NDCG@10,
    and only the chosen ones see the test targets. Stop it whenever you like, or kill it: the same command goes on
    where it was and redoes nothing. Several of them, also on machines with a common folder, share the work.

    Example: [bold]abaca compare studies/small/study.toml[/]
    """
    if jobs < 0 or threads < 1:
        raise SpecError(f"--jobs {jobs} --threads {threads}: jobs are 0 or more, threads at least 1")
    needs("matplotlib", "study")
    place = Place(study, data, to or study.parent)
    try:
        with Board() as board:
            work = place.work() if only_report else run_study(place, jobs or cores(), threads, board.tell)
    except KeyboardInterrupt:
        show.errors_to().print("stopped; the same command goes on", soft_wrap=True)
        raise typer.Exit(130) from None
    if not work.standing.data:
        raise SpecError(f"{work.results.path} has no results yet; leave --only-report out to make them")
    with locked(work.workshop.path / "publish.lock"):
        written = publish(work.standing, work.folder)
    if examples:
        _print_examples(work.standing)
    _print_end(work.standing, written)


def cores() -> int:
    """How many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _print_examples(standing: Standing) -> None:
    out = show.console()
    for name, found in cases(standing).items():
        out.print(f"\n[bold]{escape(name)}[/]: ↻ in the history · ✓ what came next · ○ came later", soft_wrap=True)
        for case in found:
            show.case(case, "user")


def _print_end(standing: Standing, written: list[Path]) -> None:
    out = show.console()
    rows = standing.study.rows()
    tested = sum(1 for row in rows if standing.tests(row))
    out.print(f"\n[bold]{escape(standing.study.title)}[/]: {tested} of {len(rows)} rows tested", soft_wrap=True)
    failed = [entry for entry in standing.results.all("run") if "error" in entry]
    if failed:
        out.print(f"{len(failed)} runs diverged and could not be chosen, such as {failed[0]['id']}", soft_wrap=True)
    for row in rows:
        gone = [run.seed for run in standing.seeds(row) if "error" in (standing.results.get("run", run.id) or {})]
        if gone:
            seeds = ", ".join(map(str, gone))
            out.print(f"{' '.join(row)} is in no table: it diverged with seed {seeds}", markup=False, soft_wrap=True)
    for sentence in summary_sentences(standing):
        out.print(f"  {sentence}", markup=False, soft_wrap=True)
    for path, words in zip(written, ("the page", "tables", "figures", "results"), strict=True):
        out.print(f"{words:>8}: {path}", markup=False, soft_wrap=True)


class Board:
    """What the workers do: a line for each, and one for every run that is done."""

    def __init__(self) -> None:
        self.console = show.errors_to()
        self.progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=20),
            TextColumn("{task.fields[news]}"),
            TimeElapsedColumn(),
            console=self.console,
            transient=True,
            disable=not self.console.is_terminal,
        )
        self.lines: dict[int, TaskID] = {}

    def __enter__(self) -> "Board":
        self.progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.progress.stop()

    def tell(self, message: Message) -> None:
        """Show what a worker said."""
        if message.kind == "began" or message.worker not in self.lines:
            if message.worker in self.lines:
                self.progress.remove_task(self.lines[message.worker])
            self.lines[message.worker] = self.progress.add_task(escape(message.task), total=1.0, news="")
        self.progress.update(self.lines[message.worker], completed=message.share, news=message.news)
        if message.kind == "done":
            self.console.print(f"{message.task}: {message.news}", markup=False, soft_wrap=True)


def add_to(app: typer.Typer) -> None:
    app.command("compare")(command)
