"""A study as a TOML file: models, data sets and options. Unknown keys are refused.

title = "…"                          seeds = [0, 1]                       outputs = ["softmax", "softmax+C"]
[options]   of every run             [grid]    tried in every combination, chosen on validation
[encoders.gru4rec]                   also = ["repeatnet"], options and grid of this encoder
[[data]]                             name, log (or synthetic), columns, how to prepare, options and grid of this set
[sweep]                              one option at a time around the chosen configuration, for the sensitivity figure
"""

import itertools
import re
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, NamedTuple

from abaca.auto import MODES
from abaca.data.prepare import PrepareOptions
from abaca.data.synthetic import RULES
from abaca.errors import SpecError
from abaca.evaluation.baselines import BASELINES
from abaca.nn.encoders import ENCODERS, EncoderOptions
from abaca.nn.outputs import OutputSpec
from abaca.options import AUTO, DEFAULT_ENCODER, TrainingOptions, sort_options
from abaca.study.toml import Grid, TomlTable, read_toml, refuse_unknown

Options = dict[str, Any]

COLUMNS = ("user", "item", "time", "event", "on_bad_row")
SYNTHETIC = {"rule": str, "users": int, "items": int, "length": int, "seed": int}
PREPARE = tuple(option.name for option in fields(PrepareOptions))
SIZE = "size"
"""An option of studies: the encoder's hidden size; for GRU4Rec that of states and embeddings."""


class RowKey(NamedTuple):
    """A row of a table on one data set."""

    data: str
    encoder: str
    output: str


@dataclass(frozen=True)
class DataSet:
    """A log, its options of preparing, and its own options of training."""

    name: str
    log: Path | None
    """None for a synthetic one."""
    synthetic: Options
    items: Path | None
    columns: Options
    prepare: PrepareOptions
    repeats: bool | None
    """Whether it counts among the sets with repeats; None: if at least 1 % of interactions are repeats."""
    outputs: tuple[str, ...] | None
    """The rows to run on this set; None for all."""
    options: Options
    grid: Grid | None
    """Replaces the study's and the encoder's; empty for no search."""


@dataclass(frozen=True)
class EncoderPlan:
    """The output layers and own options of one encoder."""

    outputs: tuple[str, ...]
    options: Options
    grid: Grid


@dataclass(frozen=True)
class Sweep:
    """Options varied one at a time around the chosen configuration."""

    options: Grid = field(default_factory=dict)
    outputs: tuple[str, ...] | None = None
    data: tuple[str, ...] | None = None

    def covers(self, row: RowKey) -> bool:
        """Whether a row is swept."""
        return (self.outputs is None or row.output in self.outputs) and (self.data is None or row.data in self.data)


@dataclass(frozen=True)
class Study:
    """Models compared on data sets."""

    path: Path
    title: str
    about: str
    seeds: tuple[int, ...]
    """The grid is searched with the first; the chosen configuration is trained with all."""
    baselines: tuple[str, ...]
    against: str
    """The reference of gains and significance marks, for each encoder."""
    time_on: str | None
    """The data set of the times shown; None for the one with most training targets."""
    examples: tuple[str, ...]
    """Output layers whose recommendations are shown side by side."""
    options: Options
    grid: Grid
    sweep: Sweep
    encoders: dict[str, EncoderPlan]
    data: tuple[DataSet, ...]

    def rows(self) -> list[RowKey]:
        """Every row on every data set, in the order of the tables."""
        return [
            RowKey(data.name, encoder, output)
            for data in self.data
            for encoder, plan in self.encoders.items()
            for output in plan.outputs
            if data.outputs is None or output in data.outputs
        ]

    def rows_beside(self, row: RowKey) -> list[RowKey]:
        """The rows with the same encoder on the same data set, itself included."""
        return [each for each in self.rows() if each[:2] == row[:2]]

    def data_set(self, name: str) -> DataSet:
        """A data set by name."""
        return next(data for data in self.data if data.name == name)

    def configurations(self, row: RowKey) -> list[Options]:
        """The options of each run of a row: every combination of its grid."""
        data, encoder = self.data_set(row.data), self.encoders[row.encoder]
        layers = (self.options, encoder.options, data.options)
        grid = self._grid(encoder, data) if data.grid is None else data.grid
        combinations = (dict(zip(grid, values, strict=True)) for values in itertools.product(*grid.values()))
        return [self.merged(row.encoder, *layers, combination) for combination in combinations]

    def _grid(self, encoder: EncoderPlan, data: DataSet) -> Grid:
        """The searched options, without those that the encoder or the data set fixes."""
        wide = {name: values for name, values in self.grid.items() if name not in encoder.options}
        return {name: values for name, values in {**wide, **encoder.grid}.items() if name not in data.options}

    def varied(self, row: RowKey) -> list[str]:
        """The options that differ between a row's configurations."""
        tried = self.configurations(row)
        return [name for name in tried[0] if len({str(options[name]) for options in tried}) > 1]

    @staticmethod
    def merged(encoder: str, *layers: Options) -> Options:
        """Options with later layers first; the size gets the encoder's own names."""
        options: Options = {}
        for layer in layers:
            for name, value in layer.items():
                sizes = ("dim", "hidden") if encoder == "gru4rec" else ("dim",)
                options |= dict.fromkeys(sizes, value) if name == SIZE else {name: value}
        return dict(sorted(options.items()))


def read_study(path: Path, data: Path | None = None) -> Study:
    """Read and check a study; paths of logs are relative to `data`, or else to the study's folder."""
    document = read_toml(path, "docs/study.md shows what a study looks like")
    try:
        return _study(path, document, data or path.parent)
    except SpecError as error:
        raise SpecError(f"{path}: {error}") from error


_TOP = (
    "title", "about", "seeds", "baselines", "against", "time_on", "examples", "outputs", "options", "grid", "sweep",
    "encoders", "data",
)  # fmt: skip


def _study(path: Path, document: Options, folder: Path) -> Study:
    top = TomlTable(document, "the study", _TOP)
    outputs = top.specs("outputs", ()) or ()
    encoders = {
        name: _encoder(name, values, outputs) for name, values in top.take("encoders", dict, {"sasrec": {}}).items()
    }
    against = str(OutputSpec.parse(top.take("against", str, "softmax")))
    study = Study(
        path=path,
        title=top.take("title", str, path.stem),
        about=top.take("about", str, ""),
        seeds=top.many("seeds", int, (0,)) or (0,),
        baselines=top.many("baselines", str, BASELINES) or (),
        against=against,
        time_on=top.take("time_on", str),
        examples=top.specs("examples", ("softmax", "softmax+nodup", "repeatnet", "softmax+CPR:100+Mi")) or (),
        options=top.take("options", dict, {}),
        grid=top.grid("grid"),
        sweep=_sweep(top.take("sweep", dict, {})),
        encoders=encoders,
        data=tuple(_data(values, folder) for values in top.take("data", list, [])),
    )
    _check(study)
    every = {row.output for row in study.rows()}
    for key, named in (("against", (against,)), ("examples", study.examples)):
        refuse_unknown(named if key in document else (), every, key)
    return study


def _encoder(name: str, values: Options, outputs: tuple[str, ...]) -> EncoderPlan:
    refuse_unknown((name,), (AUTO, *ENCODERS), "encoders")
    table = TomlTable(values, f"encoders.{name}", ("also", "options", "grid"))
    also = table.specs("also", ()) or ()
    return EncoderPlan(tuple(dict.fromkeys(outputs + also)), table.take("options", dict, {}), table.grid("grid"))


def _sweep(values: Options) -> Sweep:
    table = TomlTable({"options": {}, **values}, "sweep", ("options", "outputs", "data"))
    return Sweep(table.grid("options"), table.specs("outputs"), table.many("data", str))


def _data(values: Any, folder: Path) -> DataSet:
    known = {"name", "log", "synthetic", "items", "repeats", "outputs", "options", "grid", *COLUMNS, *PREPARE}
    where = f"data '{values['name']}'" if isinstance(values, dict) and "name" in values else "data"
    table = TomlTable(values, where, known)
    name, log = table.take("name", str), table.take("log", str)
    if not re.fullmatch(r"[A-Za-z0-9._-]+", name or ""):
        raise SpecError(f"{where}: each data set needs a name of letters, digits, '.', '_' and '-', got {name!r}")
    if (log is None) == ("synthetic" not in values):
        raise SpecError(f"{where}: give either a log (a file or folder) or synthetic = {{rule = …}}")
    items = table.take("items", str)
    prepared = {key: tuple(value) if isinstance(value, list) else value for key, value in values.items()}
    return DataSet(
        name=name,
        log=None if log is None else folder / log,
        synthetic=_synthetic(table.take("synthetic", dict), where) if "synthetic" in values else {},
        items=None if items is None else folder / items,
        columns={key: table.take(key, str) for key in COLUMNS if key in values},
        prepare=sort_options("sasrec", EncoderOptions, {key: prepared[key] for key in PREPARE if key in values})[2],
        repeats=table.take("repeats", bool),
        outputs=table.specs("outputs"),
        options=table.take("options", dict, {}),
        grid=table.grid("grid") if "grid" in values else None,
    )


def _synthetic(values: Options, where: str) -> Options:
    table = TomlTable(values, f"{where}: synthetic", SYNTHETIC)
    defaults = {"rule": "mixed", "users": 500, "items": 500, "length": 40, "seed": 0}
    found = {key: table.take(key, kind, defaults[key]) for key, kind in SYNTHETIC.items()}
    refuse_unknown((found["rule"],), RULES, f"{where}: synthetic: rule")
    if min(found["users"], found["items"], found["length"]) < 1 or found["seed"] < 0:
        raise SpecError(f"{where}: synthetic: sizes must be above 0 and the seed must not be negative, got {found}")
    return found


def _check(study: Study) -> None:
    """Refuse what would fail hours later: unknown options and names."""
    names = [data.name for data in study.data]
    if not names:
        raise SpecError("it has no data; add a table [[data]] with a name and a log")
    if len(set(names)) < len(names):
        raise SpecError(f"two data sets have the same name: {', '.join(names)}")
    refuse_unknown(study.baselines, BASELINES, "baselines")
    every = {output for plan in study.encoders.values() for output in plan.outputs}
    for data in study.data:
        refuse_unknown(data.outputs or (), every, f"data '{data.name}': outputs")
    refuse_unknown(study.sweep.outputs or (), every, "sweep: outputs")
    refuse_unknown(study.sweep.data or (), names, "sweep: data")
    refuse_unknown((study.time_on,) if study.time_on else (), names, "time_on")
    for seed in study.seeds:
        TrainingOptions(seed=seed)
    rows = study.rows()
    if not rows:
        raise SpecError('it has no rows; name output layers, as in outputs = ["softmax", "softmax+C"]')
    for row in rows:
        _check_options(study, row)


def _check_options(study: Study, row: RowKey) -> None:
    fixed = {"seed": "seeds = [0, 1]", "metric": "nothing: runs are chosen on validation NDCG@10"}
    for options in study.configurations(row):
        single = ({name: value} for name, values in study.sweep.options.items() for value in values)
        for change in ({}, *(single if study.sweep.covers(row) else ())):
            merged = study.merged(row.encoder, options, change)
            mode = merged.pop("options", "fixed")
            if mode not in MODES:
                raise SpecError(f"'options' is one of {', '.join(MODES)}")
            if row.encoder == AUTO and mode != AUTO:
                raise SpecError("[encoders.auto] needs options = 'auto' in the table [options]")
            for name in merged:
                if name in fixed:
                    raise SpecError(f"'{name}' cannot be an option of a study; use {fixed[name]}")
                if name in PREPARE:
                    raise SpecError(f"'{name}' is an option of preparing; write it into the table [[data]]")
            encoder = DEFAULT_ENCODER if row.encoder == AUTO else row.encoder
            sort_options(encoder, ENCODERS[encoder].Options, merged)
