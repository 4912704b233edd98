"""`abaca recommend`: the next items after a history, or after each history of a file."""

import time as clock
from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer
from rich.markup import escape

from abaca.batch import BatchReport, recommend_file
from abaca.cli import rules, show
from abaca.cli.columns import Engine, Item, Json, OnBadRow, Settings, Time, User, on_spark
from abaca.data.moments import parse_moment
from abaca.data.queries import HistorySource
from abaca.errors import QueryError
from abaca.policy import Policy
from abaca.recommender import Recommender, load

OF_FILES = "A file of histories"


def command(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="A model directory.")],
    history: Annotated[list[str] | None, typer.Argument(metavar="[ID …]", help="The history, oldest first.")] = None,
    n: Annotated[int, typer.Option("-n", help="Number of items.")] = 10,
    repeats: rules.Repeats = "auto",
    max_repeat_share: rules.MaxRepeatShare = 1.0,
    max_repeats: rules.MaxRepeats = None,
    min_new: rules.MinNew = 0,
    min_cold: rules.MinCold = 0,
    exclude: rules.Exclude = None,
    candidates: rules.Candidates = None,
    candidate: rules.OldCandidates = None,
    cooldown: rules.CooldownOption = None,
    at_most: rules.AtMost = None,
    at_least: rules.AtLeast = None,
    boost: rules.BoostOption = None,
    boost_category: rules.BoostCategory = None,
    diversity: rules.Diversity = 0.0,
    explain_rules: rules.ExplainRules = False,
    times: Annotated[
        str | None,
        typer.Option("--times", help="Times of the history's ids, as 1,2,3: numbers as in the log, or ISO dates."),
    ] = None,
    types: Annotated[
        str | None, typer.Option("--types", help="Types of the history's events, as view,cart; as in the log.")
    ] = None,
    now: Annotated[
        str | None,
        typer.Option(
            "--now",
            help="The moment of the query: a number as in the log, or an ISO date. With lists of --histories it is "
            "that of the rows without one, or the name of the column that holds it (by default: now).",
        ),
    ] = None,
    exact: Annotated[bool, typer.Option("--exact", help="Score every item, even if the model has an index.")] = False,
    histories: Annotated[
        str | None,
        typer.Option(
            "--histories", rich_help_panel=OF_FILES, help="A log, or Parquet or JSON lines with lists of ids."
        ),
    ] = None,
    to: Annotated[
        str | None, typer.Option("--to", rich_help_panel=OF_FILES, help="The file to write: .parquet, .jsonl or .csv.")
    ] = None,
    column: Annotated[
        str | None,
        typer.Option(
            "--history-column", rich_help_panel=OF_FILES, help="Column of lists; detected if it is the only one."
        ),
    ] = None,
    old_column: Annotated[
        str | None, typer.Option("--history", hidden=True, help="The old name of --history-column.")
    ] = None,
    user: User = None,
    item: Item = None,
    time: Time = None,
    on_bad_row: OnBadRow = None,
    resume: Annotated[
        bool, typer.Option("--resume", rich_help_panel=OF_FILES, help="Continue a run that was stopped.")
    ] = False,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", rich_help_panel=OF_FILES, help="Replace the file to write.")
    ] = False,
    engine: Engine = "duckdb",
    spark: Settings = None,
    json: Json = False,
) -> None:
    """Recommend the next items after a history of ids, or after each history of a file, with reasons.

    Example: [bold]abaca recommend model/ milk bread milk -n 5 --repeats exclude[/]

    With times: [bold]abaca recommend model/ milk bread --times 2024-01-29,2024-01-31 --now 2024-02-05T18:30[/]

    For a file: [bold]abaca recommend model/ --histories log.parquet --to answers.parquet[/]
    The file is a log (one answer per user; read like the training log), or has one history per row in a list
    column. It is streamed. The same command with --resume continues a run that was stopped, even by kill -9.
    With --engine spark both are paths that Spark reads and writes, and the answers are a folder of Parquet files.
    """
    _check(history, histories, to, times or types)
    column = column or old_column
    if histories is None:
        of_files: dict[str, Any] = {
            "--history-column": column,
            "--user": user,
            "--item": item,
            "--time": time,
            "--on-bad-row": on_bad_row,
        }
        of_files |= {"--engine": engine != "duckdb", "--resume": resume, "--overwrite": overwrite}
        given = [name for name, value in of_files.items() if value]
        if given:
            raise QueryError(f"{', '.join(given)} needs --histories FILE and does not apply to a history of ids")
    recommender = load(model, exact=exact)
    assert recommender.saved is not None
    policy = Policy(
        n=n,
        repeats=repeats,
        max_repeat_share=max_repeat_share,
        max_repeats=max_repeats,
        min_new=min_new,
        min_cold=min_cold,
        exclude=rules.ids(exclude) or (),
        candidates=rules.stock((candidates or []) + (candidate or []) or None),
        cooldown=cooldown or (),
        at_most=at_most or (),
        at_least=at_least or (),
        boost=boost or (),
        boost_category=boost_category or (),
        diversity=diversity,
        explain_rules=explain_rules,
    )
    rules.warn_of_commas(recommender.saved.catalogue.index, policy)
    if histories is None or to is None:
        return _one(recommender, history or [], policy, _Beside(times, now, types), json)
    if on_bad_row not in (None, "error", "skip"):
        raise QueryError(f"--on-bad-row is error or skip, got {on_bad_row!r}")
    if on_spark(engine, spark):
        if resume:
            raise QueryError(
                "--resume continues a run of one machine; Spark repeats lost tasks itself, so leave it out"
            )
        from abaca.spark.recommending import recommend_path

        report = recommend_path(
            model, histories, to, policy, history=column, now=now, exact=exact, overwrite=overwrite,
            user=user, item=item, time=time, on_bad_row=on_bad_row,
        )  # fmt: skip
    else:
        source = HistorySource(Path(histories), user, item, time, column, on_bad_row, now=now)  # type: ignore[arg-type]
        given_run = {"resume": resume, "overwrite": overwrite}
        with _Count() as progress:
            report = recommend_file(recommender, source, Path(to), policy, progress=progress, **given_run)
    return show.as_json(asdict(report)) if json else _tell(report, to)


class _Beside(NamedTuple):
    """The options --times, --now and --types of one history."""

    times: str | None
    now: str | None
    types: str | None

    def parsed(self, unit: str | None) -> dict[str, Any]:
        """As arguments of `recommend_many`."""
        times = None if self.times is None else [parse_moment(text, "--times", unit) for text in self.times.split(",")]
        now = None if self.now is None else parse_moment(self.now, "--now", unit)
        types = None if self.types is None else [[name.strip() for name in self.types.split(",")]]
        return {"times": [times], "now": [now], "types": types}


def _check(history: list[str] | None, histories: str | None, to: str | None, beside: str | None) -> None:
    """One history or a file of them, not both; --histories needs --to."""
    if beside is not None and histories is not None:
        raise QueryError(
            "--times and --types belong to a history of ids; a log has its own, lists have theirs in columns of "
            "these names"
        )
    if history and histories is not None:
        raise QueryError("give a history of ids or --histories FILE, not both")
    if (histories is None) != (to is None):
        missing = "--to FILE, the answers' file" if to is None else "--histories FILE, a log or lists of ids"
        raise QueryError(f"--histories and --to go together; add {missing}")
    if histories is None and not history:
        raise QueryError("there is no history; give ids, oldest first, or --histories FILE --to FILE")


def _one(recommender: Recommender, history: list[str], policy: Policy, moments: _Beside, json: bool) -> None:
    answer = recommender.recommend_many([history], policy=policy, **moments.parsed(recommender.time_unit))[0]
    if json:
        show.as_json(answer.to_json())
        return
    out = show.console()
    if answer.unknown:
        out.print(f"[yellow]not known to the model:[/] {escape(', '.join(map(str, answer.unknown)))}")
    if answer.items:
        out.print(show.recommendations(answer, f"after {escape(' '.join(history))}"))
    else:
        out.print("nothing to recommend: the policy leaves no item (repeats, exclude, candidates, cool-down, caps)")
    if policy.explain_rules:
        out.print(rules.effects(answer) if answer.rules else "no rule changed the list")
    else:
        for effect in answer.rules:
            if effect.note or effect.short:
                out.print(f"[yellow]rule:[/] {escape(str(replace(effect, removed=(), moved=())))}", soft_wrap=True)
    if answer.repeat_probability is not None:
        out.print(f"probability that the next item is one of the history: {answer.repeat_probability:.1%}")


class _Count:
    """Number of answered histories and time left: a bar, or one line per minute without a terminal."""

    def __init__(self) -> None:
        self.bar = show.counting("recommending")
        self.console = show.errors_to()
        self.first: tuple[float, int] | None = None
        self.told = 0.0

    def __enter__(self) -> "_Count":
        self.update: Any = self.bar.__enter__() if self.console.is_terminal else self._line
        return self

    def __exit__(self, *error: Any) -> None:
        if self.console.is_terminal:
            self.bar.__exit__(*error)

    def __call__(self, done: int, total: int) -> None:
        self.update(done, total)

    def _line(self, done: int, total: int) -> None:
        now = clock.monotonic()
        self.first = self.first or (now, done)
        since, before = self.first
        if done == before or now - self.told < 60:
            return
        self.told = now
        left = (now - since) / (done - before) * (total - done)
        self.console.print(f"{done:,} of {total:,} histories, {show.duration(left)} left")


def _tell(report: BatchReport, to: str) -> None:
    out = show.console()
    resumed = f" ({report.resumed:,} of them by an earlier run)" if report.resumed else ""
    out.print(f"[bold]{escape(to)}[/]: answers to {report.histories:,} histories{resumed}")
    if report.unknown:
        out.print(
            f"[yellow]not known to the model:[/] {report.unknown:,} ids in {report.with_unknown:,} histories, "
            f"such as {escape(', '.join(report.examples))}"
        )
    for fault, count in report.bad_rows.items():
        out.print(f"left out: {fault}: {count:,}")
    if report.without_known:
        out.print(f"{report.without_known:,} histories hold no known item and are answered with popular ones")
    if report.unknown_in_lists:
        unknown = escape(", ".join(map(str, report.unknown_in_lists)))
        out.print(f"[yellow]unknown in --exclude, --candidates or --boost:[/] {unknown}")


def add_to(app: typer.Typer) -> None:
    app.command("recommend")(command)
