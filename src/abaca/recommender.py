"""The public interface: fit, recommend, evaluate, save, load."""

import copy
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pyarrow

from abaca.auto import MODES
from abaca.data.ledger import as_log, rows_of
from abaca.data.log import Log, read_log
from abaca.data.moments import Moment, Now, Times
from abaca.data.prepare import PrepareOptions
from abaca.data.queries import HistorySource
from abaca.data.reading.columns import Columns
from abaca.data.reading.tables import is_table, to_arrow
from abaca.data.sequences import Sequences, is_prepared
from abaca.display import RecommendationBatch, html_table
from abaca.errors import ModelError, QueryError, SpecError
from abaca.evaluation.baselines import Baseline
from abaca.evaluation.evaluate import Evaluation, evaluate
from abaca.evaluation.ranker import ModelRanker
from abaca.histories import TypeNames
from abaca.nn.device import choose_device
from abaca.nn.encoders import Encoder
from abaca.nn.outputs import Output
from abaca.options import AUTO, DEFAULT_OUTPUT, check_names
from abaca.plugins import output_layer, register
from abaca.policy import Policy
from abaca.recommendation import Advisor, Recommendations
from abaca.search.answer import IndexSearch
from abaca.similar import SimilarItem, similar_items
from abaca.training.budget import Clock, seconds_of
from abaca.training.callbacks import Callback
from abaca.training.candidates import found_by, search_of
from abaca.training.checkpoint import RULE, Saved, load_model, save_model
from abaca.training.choice import Choice, as_given, rule_as_given, suited_to
from abaca.training.document import options_of
from abaca.training.group import Group, current
from abaca.training.halving import Search, leave_search
from abaca.training.newitems import checked_items, with_items
from abaca.training.opening import check_not_prepared, check_place, opened_together, prepared, verified
from abaca.training.progress import with_progress
from abaca.training.run import Run, check_held_out
from abaca.training.state import locked_run
from abaca.training.update import (
    UpdateOptions,
    check_types,
    counted,
    further_run,
    keep_columns,
    new_rows,
    prepare_options,
    recorded,
    with_cold_items,
)
from abaca.types import Id

Histories = Sequence[Sequence[Id]] | Mapping[Id, Sequence[Id]]


class Recommender:
    """A model that learns from a log when to repeat and when to explore.

    `encoder` is gru4rec, sasrec, hstu, or auto for the one that suits the log, `output` an output layer such as
    softmax+CPR:100+Mi. Both may be objects of one's own classes. Options are those of training (`epochs`, `lr`,
    `seed`, …), of the encoder (`dim`, `dropout`, …) and of preparing a log (`min_user`, `split`, …). With
    `options="auto"` those that are not given are chosen by the size of the log when it is fitted; with "fixed" they
    have the same values for every log, and an encoder that is not given is sasrec. `device` is cpu, cuda, or auto for a
    GPU where there is one. With `baseline` it is a baseline instead, such as "personal frequency"; its only options
    are those of preparing a log.
    """

    def __init__(
        self,
        encoder: "str | Encoder | type[Encoder]" = AUTO,
        output: "str | Output | type[Output]" = DEFAULT_OUTPUT,
        *,
        baseline: str | None = None,
        options: str = "auto",
        device: str = "auto",
        **given: Any,
    ) -> None:
        if options not in MODES:
            raise SpecError(f"options '{options}' is not one of {', '.join(MODES)}")
        if baseline is None:
            choice, self._given, self.prepare = as_given(encoder, output, given, auto=options == "auto")
        else:
            choice, self._given, self.prepare = rule_as_given(baseline, given)
        self._take(choice)
        self.device = choose_device(device)
        self.saved: Saved | None = None
        self._items: Any = None
        self.sequences: Sequences | None = None
        self._advisor: Advisor | None = None

    def __repr__(self) -> str:
        state = "not trained" if self.saved is None else f"{self.saved.catalogue.size:,} items"
        return f"Recommender({self.encoder} {self.output}, {state})"

    def _repr_html_(self) -> str:
        rows = {"encoder": self.encoder, "output layer": self.output}
        if self.saved is not None and self.saved.training.get("best") is not None:
            rows[f"validation {self.training.metric}"] = f"{self.saved.training['best']:.4f}"
        return html_table(repr(self), ("", ""), rows.items())

    def fit(
        self,
        data: Any,
        *,
        refit: bool = False,
        folder: str | Path | None = None,
        resume: bool = False,
        overwrite: bool = False,
        budget: str | None = None,
        callback: Callback | Sequence[Callback] | None = None,
        progress: bool | None = None,
        items: Any = None,
        updatable: bool = False,
    ) -> "Recommender":
        """Train on a log, a table, or a prepared folder, keeping the epoch that validates best.

        With `refit` it trains on everything, held-out targets included, for as many epochs as the earlier fit found
        best; such a model cannot be evaluated on the same data. With `folder` the run's state is kept there and
        the finished model is saved there; `resume` continues a stopped run, `overwrite` replaces what is there.
        With `budget`, a time such as "20m", it searches encoders and options that were not given, and trains the best.
        `callback` is one `Callback` or several. `progress` shows a bar; by default only in a terminal or a notebook,
        and when no `callback` is given. With `updatable` the model keeps a copy of the log, so that `update` needs new
        rows only. Processes that `torch.distributed` has connected train together, if all of them call it; the first
        has the folder, the callbacks and the progress.
        """
        if resume and overwrite:
            raise SpecError("resume continues the run that is there, overwrite replaces it: give one of them")
        group = current()
        where = None if folder is None or group.rank else Path(folder)
        clock = None if budget is None else self._clock(budget, refit)
        check_place(data, where, self._given.options)
        self._run(refit)  # refuses a refit without a fit
        self._items = self._item_table(refit) if items is None else items
        callbacks = with_progress(callback, progress)
        with ExitStack() as stack:
            keep = not (resume or overwrite or group.restarted)
            group.first(lambda: None if where is None else stack.enter_context(locked_run(where, keep=keep)))
            if updatable:
                data = group.lead(lambda: self._log(data)) or data
            table = items if is_prepared(data) else self._items
            sequences = opened_together(group, lambda: self.open(data, table))
            if not refit and self.encoder != RULE:
                self._take(suited_to(sequences, self._choice, self._given))
            run = replace(self._run(refit), ledger=rows_of(data) if updatable and not group.rank else None)
            search = None if clock is None else search_of(run, sequences, self._choice, self._given)
            resume = group.first(lambda: resume or _goes_on(search or run, sequences, where, group, overwrite))
            if search is not None and clock is not None:
                saved = search.train(sequences, self.device, clock, where, resume=resume, callbacks=callbacks)
                self._take(found_by(saved, self._choice, self._given))
            else:
                group.first(lambda: None if where is None else leave_search(where, resume=resume))
                saved = run.train(sequences, self.device, where, resume=resume, callbacks=callbacks)
        self.sequences = sequences
        return self._adopt(saved)

    def update(
        self,
        data: Any,
        *,
        callback: Callback | Sequence[Callback] | None = None,
        progress: bool | None = None,
        **options: Any,
    ) -> "Recommender":
        """Take the rows of a log that are later than those the model knows, in seconds, without training.

        Followers, item counts and the catalogue become those of the whole log. New items enter with vectors folded in
        from the items near them. The options are those of `UpdateOptions`: `train`, `whole`, `retire`, `epochs`, `lr`,
        `replay` and `items`. With `train` the weights are trained on, on new and old rows, and evidence is fitted
        again.
        """
        saved = self._trained()
        check_names("update", options, [field.name for field in fields(UpdateOptions)])
        given = UpdateOptions(**options)
        rows = new_rows(saved, self._log(data), given)
        table = self._item_table(refit=True) if given.items is None else given.items
        how = prepare_options(saved, train=given.train)
        sequences = self.open(as_log(rows.table), table, options=how)
        check_types(saved, sequences)
        if given.items is not None:
            keep_columns(saved.catalogue, sequences.catalogue)
        if not given.train:
            self.sequences = None
            return self._adopt(recorded(saved, counted(saved, sequences), rows, sequences, given))
        run = further_run(self._run(refit=False), saved, sequences, rows, given)
        trained = run.train(sequences, self.device, callbacks=with_progress(callback, progress))
        trained = with_cold_items(saved, trained)
        self.sequences = sequences
        return self._adopt(recorded(saved, trained, rows, sequences, replace(given, lr=run.options.lr)))

    def add_items(self, items: Any) -> "Recommender":
        """Know further items by their features: a table or a list of mappings, with `id` and the item table's columns.

        The model must have features. Nothing is trained: the vectors of the items come from their columns.
        """
        saved = self._trained()
        rows = to_arrow(items).to_pylist() if is_table(items) else items
        return self._adopt(with_items(saved, checked_items(saved, rows)))

    def recommend(
        self,
        history: Sequence[Id],
        n: int = 10,
        *,
        times: Sequence[Moment] | None = None,
        now: Moment | None = None,
        types: Sequence[str | None] | None = None,
        **policy: Any,
    ) -> Recommendations:
        """The next items after one history of raw ids, oldest first.

        `times` holds the time of each interaction and `now` is the moment of the query: numbers in the unit of the
        log's times or, where these count from 1970, ISO dates or datetimes. `types` holds the type of each event.
        All other arguments are rules, the fields of `Policy`: `repeats="exclude"`, `candidates=[…]`, and others.
        """
        beside = {"times": times, "now": now, "types": types}
        one_each: dict[str, Any] = {name: [given] for name, given in beside.items() if given is not None}
        return self.recommend_many([history], n, **one_each, **policy)[0]

    def recommend_many(
        self,
        histories: Histories,
        n: int = 10,
        *,
        policy: Policy | Sequence[Policy] | Mapping[Id, Policy] | None = None,
        times: Times = None,
        now: Now = None,
        types: TypeNames = None,
        **rules: Any,
    ) -> RecommendationBatch[Recommendations]:
        """The next items after each of many histories: a list of them, or a mapping from users to histories.

        The rules are those of `recommend`; `times`, `now` and `types` have an entry for each history, None where
        it is not known. Instead of `n` and rules, `policy` takes one `Policy` for all histories, a list with one for
        each, or a mapping from users.
        """
        self._trained()
        assert self._advisor is not None
        check_names("recommend", rules, [field.name for field in fields(Policy) if field.name != "n"])
        if policy is not None and rules:
            raise QueryError(f"{', '.join(rules)} belongs to the policy: give `policy` or rules, not both")
        policy = Policy(n=n, **rules) if policy is None else policy
        if hasattr(histories, "to_dict"):  # a pandas series: its index names the users
            histories = histories.to_dict()
        if isinstance(policy, Mapping):
            if not isinstance(histories, Mapping) or set(policy) != set(histories):
                raise QueryError("policies by user need histories by user: one policy for each user, and no other")
            policy = [policy[user] for user in histories]
        if isinstance(histories, Mapping):
            answers = self._advisor.recommend(list(histories.values()), policy, times, now, types)
            return RecommendationBatch(answers, histories)
        answers = self._advisor.recommend(histories, policy, times, now, types)
        return RecommendationBatch(answers, range(len(answers)))

    def similar(self, item: Id, n: int = 10) -> list[SimilarItem]:
        """The n items nearest to an item, by the cosine of their vectors."""
        saved = self._trained()
        retired = set(saved.retired)
        found = similar_items(saved.model.table, saved.catalogue, item, n + len(retired) if retired else n)
        return [one for one in found if one.id not in retired][:n]

    def evaluate(
        self,
        data: Any = None,
        *,
        targets: str = "test",
        cutoffs: Sequence[int] = (10,),
        progress: Callable[[int, int], None] | None = None,
        now: bool = False,
    ) -> Evaluation:
        """Rank every held-out target against the whole catalogue; without `data`, of what it was fitted on.

        With `now` the model is told the time of each target, as if it was asked at that moment.
        """
        saved = self._trained()
        sequences = self.sequences if data is None else self.open(data, options=self.learned)
        if sequences is None:
            raise ModelError("a loaded model does not carry its data; pass the log or the prepared folder to evaluate")
        check_held_out(saved.training, sequences)
        ranker = saved.ranks if isinstance(saved.ranks, Baseline) else self.ranker()
        return evaluate(ranker, sequences, targets, cutoffs, progress, now)

    def ranker(self) -> ModelRanker:
        """The trained model as something that ranks, beside baselines; it scores every item."""
        saved, name = self._trained(), f"{self.encoder} {self.output}"
        return ModelRanker(saved.model, self.training.window, name, evidence=saved.evidence)

    def save(self, folder: str | Path) -> None:
        """Write a model directory: safetensors and JSON, ids inside; a model that is there is replaced."""
        saved = self._trained()
        check_not_prepared(Path(folder))
        with locked_run(Path(folder), keep=False):
            save_model(Path(folder), saved)

    @classmethod
    def load(
        cls,
        folder: str | Path,
        device: str = "cpu",
        *,
        exact: bool = False,
        encoder: type[Encoder] | None = None,
        output: type[Output] | None = None,
    ) -> "Recommender":
        """Read a model directory; with `exact` a search index in it is not used.

        `encoder` and `output` are the classes of a model with custom parts.
        """
        for kind in filter(None, (encoder, output)):
            register(kind)
        found = load_model(folder)
        training, prepare = options_of(Path(folder), found.training)
        saved = replace(found, index=None) if exact else found
        layer = output_layer(saved.output, saved.output_options)
        rule = saved.encoder == RULE
        recommender = cls(baseline=saved.output, device=device) if rule else cls(saved.encoder, layer, device=device)
        recommender._given = recommender._given._replace(auto=False)  # a model that is fitted again keeps its options
        recommender.training, recommender.prepare = training, prepare
        recommender.encoder_options = saved.encoder_options
        return recommender._adopt(saved)

    def with_model(self, saved: Saved) -> "Recommender":
        """The same recommender with another model."""
        return copy.copy(self)._adopt(saved)

    def open(self, data: Any, items: Any = None, options: PrepareOptions | None = None) -> Sequences:
        """What training reads: a prepared folder as it is, anything else prepared first."""
        if is_prepared(data):
            return verified(data, items)
        return prepared(self._log(data), items, options or self.prepare)

    @property
    def reading(self) -> dict[str, Any]:
        """How the log that it was trained on was read, as arguments of `read_log`; nothing before a fit."""
        source = self.saved.training.get("source") if self.saved is not None else None
        return {"like": Columns(**source["columns"]), "on_bad_row": source.get("on_bad_row", "error")} if source else {}

    @property
    def time_unit(self) -> str | None:
        """The unit of the log's times, such as seconds, where they count from 1970; else None."""
        return None if self.saved is None else self.saved.training.get("time_unit")

    def as_learned(self, source: HistorySource) -> HistorySource:
        """The same histories, read as the log that it was trained on: columns, bad rows, events, order, unit."""
        return replace(source, like=self.reading, options=self.learned, time_unit=self.time_unit)

    @property
    def learned(self) -> PrepareOptions:
        """How the log that it was trained on was prepared; before a fit, how one would be."""
        return self.prepare if self.saved is None else PrepareOptions(**self.saved.training["prepared"])

    @property
    def _choice(self) -> Choice:
        """What a fit trains."""
        return Choice(self.encoder, self.output, self.encoder_options, self.output_options, self.training, self.chosen)

    def _take(self, choice: Choice) -> None:
        self.encoder, self.output, self.encoder_options, self.output_options, self.training, self.chosen = choice

    def _clock(self, budget: str, refit: bool) -> Clock:
        """The time of a search; refused where there is nothing to search."""
        if refit or self.encoder == RULE:
            what = "a refit has the options of the earlier fit" if refit else "a baseline has no options to search"
            raise SpecError(f"`budget`: {what}; leave it out")
        return Clock(seconds_of(budget))

    def _log(self, data: Any) -> Log:
        """Data as a log, read as the log that it was trained on."""
        if is_prepared(data):
            raise SpecError("an update needs a log: a prepared folder has left rows out; give the log it was made of")
        return data if isinstance(data, Log) else read_log(data, **self.reading)

    def _item_table(self, refit: bool) -> Any:
        """The item table of an earlier fit; a refit of a loaded model takes the columns that it carries."""
        columns = self.saved.catalogue.columns if refit and self.saved is not None else {}
        if self._items is not None or not columns:
            return self._items
        return pyarrow.table({"id": self.saved.catalogue.ids, **columns})  # type: ignore[union-attr]

    def _run(self, refit: bool) -> Run:
        """What is trained; a refit takes as many epochs as the earlier fit found best."""
        run = self._choice.run
        if not refit or self.encoder == RULE:
            return replace(run, refit_epochs=0) if refit else run
        best = self.saved.training.get("best_epoch") if self.saved else None
        if best is None or self.saved is None:
            raise ModelError("refit needs an earlier fit to know how many epochs are best; call fit(log) first")
        return replace(run, refit_epochs=best + 1, fitted=self.saved.evidence)

    def _adopt(self, saved: Saved) -> "Recommender":
        self.saved = saved
        if isinstance(saved.ranks, Baseline):
            self._advisor = Advisor(saved.ranks, saved.catalogue, self.time_unit, types=saved.types)
            return self
        saved.ranks.to(self.device)
        ranker = self.ranker()
        if saved.index is not None:
            ranker.search = IndexSearch(saved.index, saved.model.table)
        counts, retired = saved.popularity, saved.retired
        self._advisor = Advisor(ranker, saved.catalogue, self.time_unit, counts, retired, saved.types)
        return self

    def _trained(self) -> Saved:
        if self.saved is None:
            raise ModelError("this recommender is not trained yet; call fit, or load a saved one with abaca.load")
        return self.saved


def _goes_on(run: Run | Search, sequences: Sequences, where: Path | None, group: Group, overwrite: bool) -> bool:
    """Whether processes that torchrun has started again continue what is in the folder."""
    return where is not None and group.restarted and (not overwrite or run.is_in(where, sequences))


load = Recommender.load
