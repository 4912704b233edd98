"""`abaca compare`: a study like the paper's, from a TOML file to tables, figures and a page."""

import os
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from abaca.cli import show
from abaca.durable import locked
from abaca.errors import SpecError
from abaca.extra import needs
from abaca.study.jobs import Place, run_study
from abaca.study.margins import margin_sentences
from abaca.study.report import KEY, cases, publish, summary_sentences
from abaca.study.state import StudyState
from abaca.study.work import Message


def command(
    study: Annotated[Path, typer.Argument(metavar="STUDY.toml", help="Models, data and options; see docs/study.md.")],
    to: Annotated[
        Path | None, typer.Option("--to", metavar="DIR", help="Folder for results; by default the study's own.")
    ] = None,
    data: Annotated[
        Path | None,
        typer.Option("--data", metavar="FOLDER", help="Folder of the logs; by default the study's own."),
    ] = None,
    jobs: Annotated[int, typer.Option("--jobs", help="Processes; 0: one per core.")] = 0,
    threads: Annotated[int, typer.Option("--threads", help="CPU threads of each process.")] = 1,
    examples: Annotated[
        bool, typer.Option("--examples", help="Print the same histories under several models.")
    ] = False,
    only_report: Annotated[
        bool, typer.Option("--only-report", help="Write tables, figures and page from the results; train nothing.")
    ] = False,
) -> None:
    """Train and test every row of a study, and write its tables, figures and page.

    Encoders × output layers × data sets × seeds × grid. The configuration of each row is chosen on validation NDCG@10,
    and only the chosen one is tested. After an interruption the same command continues and repeats nothing. Several
    commands, also on machines with a common folder, share the work.

    Example: [bold]abaca compare studies/small/study.toml[/]
    """
    if jobs < 0 or threads < 1:
        raise SpecError(f"--jobs {jobs} --threads {threads}: jobs are 0 or more, threads at least 1")
    needs("matplotlib", "study")
    place = Place(study, data, to or study.parent)
    try:
        with Board() as board:
            work = place.work() if only_report else run_study(place, jobs or cores(), threads, board.show)
    except KeyboardInterrupt:
        show.errors_to().print("stopped; the same command continues", soft_wrap=True)
        raise typer.Exit(130) from None
    if not work.state.data:
        raise SpecError(f"{work.results.path} has no results yet; run the study without --only-report")
    with locked(work.workspace.path / "publish.lock"):
        written = publish(work.state, work.folder)
    if examples:
        _print_examples(work.state)
    _print_end(work.state, written)


def cores() -> int:
    """The number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _print_examples(state: StudyState) -> None:
    out = show.console()
    for name, found in cases(state).items():
        out.print(f"\n[bold]{escape(name)}[/]: {KEY}", soft_wrap=True)
        for case in found:
            show.case(case, "user")


def _print_end(state: StudyState, written: list[Path]) -> None:
    out = show.console()
    rows = state.study.rows()
    tested = sum(1 for row in rows if state.tests(row))
    out.print(f"\n[bold]{escape(state.study.title)}[/]: {tested} of {len(rows)} rows tested", soft_wrap=True)
    failed = [entry for entry in state.results.all("run") if "error" in entry]
    if failed:
        out.print(f"{len(failed)} runs diverged, such as {failed[0]['id']}", soft_wrap=True)
    for row in rows:
        gone = [run.seed for run in state.seeds(row) if "error" in (state.results.get("run", run.id) or {})]
        if gone:
            seeds = ", ".join(map(str, gone))
            out.print(f"{' '.join(row)} is in no table: it diverged with seed {seeds}", markup=False, soft_wrap=True)
    for sentence in [*summary_sentences(state), *margin_sentences(state)]:
        out.print(f"  {sentence}", markup=False, soft_wrap=True)
    for path, words in zip(written, ("the page", "tables", "figures", "results"), strict=True):
        out.print(f"{words:>8}: {path}", markup=False, soft_wrap=True)


class Board:
    """The progress of the workers: a line for each, and one for every finished task."""

    def __init__(self) -> None:
        self.console = show.errors_to()
        self.progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=20),
            TextColumn("{task.fields[details]}"),
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

    def show(self, message: Message) -> None:
        """Show the progress of a worker."""
        if message.kind == "began" or message.worker not in self.lines:
            if message.worker in self.lines:
                self.progress.remove_task(self.lines[message.worker])
            self.lines[message.worker] = self.progress.add_task(escape(message.task), total=1.0, details="")
        self.progress.update(self.lines[message.worker], completed=message.share, details=message.details)
        if message.kind == "done":
            self.console.print(f"{message.task}: {message.details}", markup=False, soft_wrap=True)


def add_to(app: typer.Typer) -> None:
    app.command("compare")(command)
