"""Recommending for a file of histories: streamed, in parts, so that a stopped run can be resumed."""

import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any, cast

import pyarrow
import pyarrow.compute

from abaca.batch.answers import WRITERS, schema_of, table_of
from abaca.batch.parts import Parts
from abaca.data.catalogue import check_id
from abaca.data.folder import check_apart
from abaca.data.queries import HistorySource, Queries, Query
from abaca.errors import ModelError, QueryError
from abaca.policy import Boost, Cooldown, Policy
from abaca.policy.spelling import ITEM
from abaca.recommender import Recommender
from abaca.training.checkpoint import Saved
from abaca.types import Id

FORMAT = 1
PART = 8192
"""Histories of a part: the work that a crash may lose, and the histories in memory."""

Progress = Callable[[int, int], None]
Cooldowns = tuple[Cooldown, ...]


@dataclass(frozen=True)
class BatchReport:
    """What was done."""

    histories: int
    resumed: int
    """Histories that an earlier run had answered already."""
    unknown: int
    """Ids of the histories that the model does not know, each once a history."""
    with_unknown: int
    """Histories with such ids."""
    without_known: int
    """Histories without any item that the model knows: answered with popular items."""
    examples: tuple[str, ...]
    """Some of the unknown ids."""
    unknown_in_lists: tuple[Id, ...]
    """Unknown ids of the exclude or the candidate list."""
    bad_rows: dict[str, int]
    """Rows of the log that were left out, by what was wrong with them."""


def recommend_file(
    recommender: Recommender,
    source: HistorySource,
    to: str | Path,
    policy: Policy,
    *,
    resume: bool = False,
    overwrite: bool = False,
    progress: Progress | None = None,
) -> BatchReport:
    """Recommend for every history of a file or folder, and write the answers to a Parquet, JSON lines or CSV file.

    The answers are in the order of a log's users, by id, or of the lists' rows.
    """
    if recommender.saved is None:
        raise ModelError("this recommender is not trained yet; call fit, or load a saved one with abaca.load")
    to, source = Path(to), recommender.as_learned(source)
    check_apart(to, source.path)
    if to.suffix not in WRITERS:
        raise QueryError(f"{to}: the answers are written as {', '.join(WRITERS)}; give the file such an ending")
    policy, missing = known_lists(recommender.saved, policy)
    run = {
        "kind": "abaca batch", "format": FORMAT, "model": _model_digest(recommender.saved), "part": PART,
        "histories": source.fingerprint(), "policy": asdict(policy),
    }  # fmt: skip
    parts = Parts(to, json.loads(json.dumps(run)))
    if resume and parts.finished():
        return _report(parts.answers(), missing, None, {})
    parts.check(resume=resume, overwrite=overwrite)
    histories = source.open()
    with parts.begun(resume=resume):
        done, tell = min(parts.done * PART, histories.total), progress or _silent
        tell(done, histories.total)
        for answers in _answered(recommender, histories, policy, done):
            parts.add(answers)
            tell(min(parts.done * PART, histories.total), histories.total)
        report = _report(parts.answers(), missing, done, histories.bad_rows)
        parts.finish(schema_of(recommender.saved.catalogue, histories.key, histories.key_kind))
    return report


def _silent(done: int, total: int) -> None:
    """No progress."""


def _answered(recommender: Recommender, histories: Queries, policy: Policy, start: int) -> Iterator[pyarrow.Table]:
    """The answers from history number `start` on, a table per part."""
    assert recommender.saved is not None
    schema = schema_of(recommender.saved.catalogue, histories.key, histories.key_kind)
    rest = histories.read(start)
    while part := list(islice(rest, PART)):
        yield answers_to(recommender, part, policy, schema)


def answers_to(recommender: Recommender, part: list[Query], policy: Policy, schema: pyarrow.Schema) -> pyarrow.Table:
    """The answers to some queries under a policy and their own rules, a row each."""
    policies = [_own(policy, query) for query in part]
    for query, own in zip(part, policies, strict=True):
        if query.ids and query.times is None and any(rule.unit != ITEM for rule in cast(Cooldowns, own.cooldown)):
            raise QueryError(
                f"the history of {query.key!r} has no times, which its cool-down needs; give them, or one in items"
            )
    times, now = [query.times for query in part], [query.now for query in part]
    types = [query.types for query in part] if any(query.types for query in part) else None
    histories = [query.ids for query in part]
    answers = recommender.recommend_many(histories, policy=policies, times=times, now=now, types=types)
    return table_of(part, answers, schema)


def _own(policy: Policy, query: Query) -> Policy:
    """The policy with the rules of the query itself.

    It excludes more, and has its candidates among the policy's; any other rule replaces the policy's.
    """
    if query.exclude is None and query.candidates is None and query.rules is None:
        return policy
    both = query.candidates
    if both is not None and policy.candidates is not None:
        allowed = {str(id) for id in _listed(policy.candidates)}  # ids may be spelled as text or as integers
        both = [id for id in both if str(id) in allowed]
    only = policy.candidates if both is None else both
    excluded = [*_listed(policy.exclude), *(query.exclude or ())]
    try:
        return replace(policy, exclude=excluded, candidates=only, **_as_counted(query.rules or {}))
    except QueryError as error:
        raise QueryError(f"the rules of {query.key!r}: {error}") from error


def _as_counted(rules: dict[str, Any]) -> dict[str, Any]:
    """Rules with whole numbers where a file has 3.0, as tables with empty cells do."""
    whole = {name: int(cell) for name, cell in rules.items() if isinstance(cell, float) and cell.is_integer()}
    return rules | {name: count for name, count in whole.items() if name in ("max_repeats", "min_new", "min_cold")}


def _report(
    tables: Iterator[pyarrow.Table], missing: tuple[Id, ...], resumed: int | None, bad_rows: dict[str, int]
) -> BatchReport:
    """Counts over all answers; `resumed` is None where all of them were there already."""
    counts = dict.fromkeys(("histories", "unknown", "with_unknown", "without_known"), 0)
    examples: dict[str, None] = {}
    for table in tables:
        lengths = pyarrow.compute.list_value_length(table["unknown"]).to_numpy()
        counts["histories"] += table.num_rows
        counts["unknown"] += int(lengths.sum())
        counts["with_unknown"] += int((lengths > 0).sum())
        first = pyarrow.compute.list_flatten(pyarrow.compute.list_slice(table["reasons"], 0, 1))
        counts["without_known"] += pyarrow.compute.match_substring(first, "popular: ").to_pylist().count(True)
        if len(examples) < 5:
            examples.update(dict.fromkeys(pyarrow.compute.list_flatten(table["unknown"])[:5].to_pylist()))
    return BatchReport(
        **counts,
        resumed=counts["histories"] if resumed is None else resumed,
        examples=tuple(examples)[:5],
        unknown_in_lists=missing,
        bad_rows=bad_rows,
    )


def known_lists(saved: Saved, policy: Policy) -> tuple[Policy, tuple[Id, ...]]:
    """The policy with the known ids of its lists only, and those that are not known."""
    missing: dict[Id, None] = {}

    def known(ids: Sequence[Id]) -> tuple[Id, ...]:
        found = {id: saved.catalogue.index(id) for id in map(check_id, ids)}
        missing.update(dict.fromkeys(id for id, item in found.items() if item is None))
        return tuple(saved.catalogue.ids[item] for item in found.values() if item is not None)

    candidates = None if policy.candidates is None else known(_listed(policy.candidates))
    boosts = cast(tuple[Boost, ...], policy.boost)
    heard = set(map(str, known([boost.value for boost in boosts])))
    kept = [boost for boost in boosts if str(boost.value) in heard]
    return replace(policy, exclude=known(_listed(policy.exclude)), candidates=candidates, boost=kept), tuple(missing)


def _listed(ids: Sequence[Id] | Path | None) -> tuple[Id, ...]:
    """The ids of a policy's list, which it has read already."""
    return cast(tuple[Id, ...], ids)


def _model_digest(saved: Saved) -> str:
    """Names a model by its shape, weights and ids."""
    window = saved.training["options"]["window"]
    index = "exact" if saved.index is None else saved.index.path.name
    digest = hashlib.sha256(f"{saved.encoder} {saved.output} {saved.encoder_options} {window} {index}".encode())
    for name, tensor in sorted(saved.tensors().items()):
        digest.update(name.encode())
        digest.update(tensor.cpu().contiguous().numpy().data)
    digest.update(json.dumps(saved.catalogue.ids).encode())
    return digest.hexdigest()
