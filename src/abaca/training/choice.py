"""What a fit trains: an encoder, an output layer and their options. Those that were given stay, others suit the log."""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import fields, replace
from typing import Any, NamedTuple

from abaca.auto import Shape, suited, suited_encoder
from abaca.data.prepare import PrepareOptions
from abaca.data.sequences import Sequences
from abaca.errors import SpecError
from abaca.nn.encoders import encoder_class
from abaca.nn.outputs import make_output
from abaca.options import AUTO, DEFAULT_ENCODER, TrainingOptions, rule_options, sort_options
from abaca.plugins import encoder_name, output_layer, output_name, saved_options
from abaca.training.checkpoint import RULE
from abaca.training.run import Run


class Choice(NamedTuple):
    """An encoder and an output layer, their options, and those of training."""

    encoder: str
    """Its name, or RULE for a baseline."""
    output: str
    """The output layer, or the name of the baseline."""
    encoder_options: dict[str, Any]
    output_options: dict[str, Any]
    training: TrainingOptions
    chosen: dict[str, Any]
    """The options that were not given, where they follow from the log or from a search."""

    @property
    def run(self) -> Run:
        """The run that trains it, with the encoder's options for the longest window of training or ranking."""
        sizes: dict[str, Any] = {}
        if self.encoder != RULE:
            longest = max(self.training.window, self.training.targets + self.training.overlap)
            sizes = encoder_class(self.encoder).sized(self.encoder_options, longest)
        return Run(self.encoder, self.output, sizes, self.training, output_options=self.output_options)


class Given(NamedTuple):
    """What a fit never changes, and whether it chooses the rest."""

    options: dict[str, Any]
    encoder: bool
    """Whether an encoder was given."""
    auto: bool
    """Whether options that were not given are to suit the log; else they have the same values for every log."""


def as_given(encoder: Any, output: Any, options: dict[str, Any], *, auto: bool) -> tuple[Choice, Given, PrepareOptions]:
    """What is trained before a log is known: what was given, and the encoder's defaults."""
    any_encoder = encoder == AUTO
    encoder, sizes = encoder_name(DEFAULT_ENCODER if any_encoder else encoder)
    output, of_output = output_name(output)
    output_options = saved_options(output, of_output)
    options = {name: value for name, value in sizes.items() if name != "window"} | options
    training, sizes, prepare = sort_options(encoder, encoder_class(encoder).Options, options)
    choice = Choice(encoder, output, saved_options(encoder, sizes), output_options, training, {})
    return choice, Given(options, not any_encoder, auto), prepare


def rule_as_given(baseline: str, options: dict[str, Any]) -> tuple[Choice, Given, PrepareOptions]:
    """The same for a baseline, which has no options but those of preparing a log."""
    choice = Choice(RULE, baseline, {}, {}, TrainingOptions(), {})
    return choice, Given(options, encoder=True, auto=False), rule_options(baseline, options)


def suited_to(sequences: Sequences, choice: Choice, given: Given) -> Choice:
    """The choice with the options that suit a log, and with the encoder that does, where none was given."""
    if not given.auto:
        return choice._replace(chosen={})
    shape = Shape.of(sequences)
    if not given.encoder and suited_encoder(shape) != choice.encoder:
        with suppress(SpecError):  # it lacks an option that was given
            choice = with_encoder(choice, suited_encoder(shape), given)
    sampled = make_output(output_layer(choice.output, choice.output_options)).can_sample
    found = suited(choice.encoder, shape, sampled=sampled)
    chosen = {name: value for name, value in found.items() if name not in given.options}
    training, sizes = changed(choice.training, choice.encoder_options, chosen)
    return choice._replace(training=training, encoder_options=sizes, chosen=chosen)


def with_encoder(choice: Choice, encoder: str, given: Given) -> Choice:
    """The choice with another encoder and its defaults; refused if that lacks an option that was given."""
    training, sizes, _ = sort_options(encoder, encoder_class(encoder).Options, given.options)
    return choice._replace(encoder=encoder, encoder_options=saved_options(encoder, sizes), training=training)


def changed(
    training: TrainingOptions, sizes: dict[str, Any], changes: Mapping[str, Any]
) -> tuple[TrainingOptions, dict[str, Any]]:
    """Options of training and of an encoder, with changes to either."""
    known = {field.name for field in fields(TrainingOptions)}
    of_training = {name: value for name, value in changes.items() if name in known}
    return replace(training, **of_training), sizes | {name: changes[name] for name in changes if name not in known}
