"""The runs that a search within a budget compares, and the choice that it makes."""

from collections.abc import Container, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from itertools import zip_longest
from typing import Any

from abaca.auto import around
from abaca.data.sequences import Sequences
from abaca.errors import SpecError
from abaca.options import TrainingOptions
from abaca.training.checkpoint import Saved
from abaca.training.choice import Choice, Given, changed, suited_to, with_encoder
from abaca.training.halving import LONGEST, Search
from abaca.training.run import Run

SEARCHED_ENCODERS = ("sasrec", "gru4rec")
"""The encoders that a search compares, where none is given."""


def search_of(run: Run, sequences: Sequences, choice: Choice, given: Given) -> Search:
    """The search that begins with the run of a choice; options that were given stay."""
    longest = run.options.epochs if "epochs" in given.options else LONGEST
    others = [replace(other.run, ledger=run.ledger) for other in rivals(sequences, choice, given)]
    return Search(candidates([run, *others], given.options), longest)


def rivals(sequences: Sequences, choice: Choice, given: Given) -> list[Choice]:
    """The choices with other encoders, where none was given; one that lacks an option that was given is left out."""
    found = []
    for name in () if given.encoder else SEARCHED_ENCODERS:
        if name != choice.encoder:
            with suppress(SpecError):
                other = with_encoder(choice, name, given)
                found.append(suited_to(sequences, other, given._replace(encoder=True)))
    return found


def candidates(runs: Sequence[Run], fixed: Container[str]) -> tuple[Run, ...]:
    """Each run as it is, then each with other options, one change at a time; fixed options stay."""
    groups = []
    for run in runs:
        changes = around({**asdict(run.options), **run.encoder_options}, fixed)
        groups.append([_changed(run, change) for change in changes])
    return tuple(run for row in zip_longest(*groups) for run in row if run is not None)


def _changed(run: Run, change: dict[str, Any]) -> Run:
    options, sizes = changed(run.options, run.encoder_options, change)
    return replace(run, options=options, encoder_options=sizes)


def found_by(saved: Saved, choice: Choice, given: Given) -> Choice:
    """The encoder and the options of the model that a search found."""
    values = saved.training["options"] | saved.encoder_options
    of_trials = (name for trial in saved.training["budget"]["trials"] for name in trial["options"])
    tried = {"epochs", *choice.chosen, *of_trials}
    return choice._replace(
        encoder=saved.encoder,
        encoder_options=saved.encoder_options,
        training=TrainingOptions(**saved.training["options"]),
        chosen={name: values[name] for name in values if name in tried and name not in given.options},
    )
