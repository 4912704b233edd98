"""Options of a run: how a model is trained, and the assignment of each given option to its part."""

import difflib
import math
import numbers
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import TYPE_CHECKING, Any

from abaca.data.prepare import PrepareOptions
from abaca.errors import SpecError
from abaca.evaluation.metrics import parse_metric
from abaca.types import whole_number

if TYPE_CHECKING:
    from abaca.nn.encoders import Encoder

AUTO = "auto"
"""A value that follows from the log."""
DEFAULT_ENCODER = "sasrec"
"""The encoder where options are fixed and none is given."""
DEFAULT_OUTPUT = "softmax+CP+habits+followers"
SCHEDULES = ("cosine", "linear", "constant")
STARTS = ("counts", "random")


@dataclass(frozen=True)
class TrainingOptions:
    """How a model is trained; the defaults are those of the ml-1m study, chosen on validation (SASRec has its own)."""

    epochs: int = 30
    """Passes over the training targets at most; cosine and linear schedules end there."""
    lr: float = 3e-3
    """Highest learning rate of Adam."""
    schedule: str = "cosine"
    """How the learning rate falls after the warm-up: cosine, linear or constant."""
    warmup: int = 500
    """Steps in which the learning rate rises from 0; at most half of all."""
    batch_targets: int = 400
    """Approximate number of targets per step."""
    targets: int = 25
    """t: targets that one window trains at most."""
    overlap: int = 25
    """m: leading inputs of a window without loss; t = 1, m = 49 is the paper's protocol."""
    window: int = 50
    """How many items the encoder sees when it ranks."""
    weight_decay: float = 0.0
    """Decoupled weight decay (AdamW) of the item tables."""
    clip: float = 0.0
    """Largest norm of the gradient; 0 for no limit."""
    average: float = 0.9995
    """Decay of a running average of the weights, which is then what is validated and kept; 0 for none."""
    stop_after: int = 0
    """Epochs after which training stops before the end of the schedule; 0 for its end."""
    patience: int = 10
    """Epochs without a better validation figure before training stops; 0 for never."""
    metric: str = "ndcg@10"
    """The validation figure that chooses the best epoch."""
    share: float = 1.0
    """Share of the items outside the batch that the loss of a step reads, the rest estimated from it; 1 for all."""
    ahead: float = 0.0
    """Share of the targets that are one of the three items after the next instead, the nearer the more often."""
    event_weights: str = ""
    """Weights of types of events in the loss: view=0.2,buy=1; or auto, counted in the log. Others have weight 1 if they
    are targets, else 0."""
    start: str = "random"
    """Where the item table begins: counts, vectors of items that occur together; random, as in the paper."""
    features: str = ""
    """Columns of the item table that describe items, as in brand,price,title; empty for none."""
    feature_dropout: float = 0.2
    """Share of the items whose own vectors are dropped in a step, so that features alone predict them."""
    seed: int = 0
    """Seed of weights, dropout and the order of windows."""
    checkpoint_minutes: float = 5.0
    """How often the state is saved within an epoch; it is saved after each epoch anyway."""

    def __post_init__(self) -> None:
        if self.schedule not in SCHEDULES:
            raise SpecError(f"schedule '{self.schedule}' is not one of {', '.join(SCHEDULES)}")
        for field in fields(self):
            if field.type is float and not math.isfinite(getattr(self, field.name)):
                raise SpecError(f"{field.name} must be a number, got {getattr(self, field.name)}")
        if self.start not in STARTS:
            raise SpecError(f"start '{self.start}' is not one of {', '.join(STARTS)}")
        if not 0 <= self.seed < 1 << 63:
            raise SpecError(f"seed must be from 0 to 2⁶³ − 1, got {self.seed}")
        for name in ("epochs", "lr", "batch_targets", "targets", "window"):
            if getattr(self, name) <= 0:
                raise SpecError(f"{name} must be above 0, got {getattr(self, name)}")
        for name in ("warmup", "overlap", "weight_decay", "clip", "stop_after", "patience", "checkpoint_minutes"):
            if getattr(self, name) < 0:
                raise SpecError(f"{name} must not be negative, got {getattr(self, name)}")
        for name in ("epochs", "warmup", "batch_targets", "targets", "overlap", "window", "stop_after", "patience"):
            if getattr(self, name) >= 1 << 31:
                raise SpecError(f"{name} must be below 2³¹, got {getattr(self, name)}")
        if not 0 < self.share <= 1:
            raise SpecError(f"share must be above 0 and at most 1, got {self.share}")
        for name in ("ahead", "feature_dropout", "average"):
            if not 0 <= getattr(self, name) < 1:
                raise SpecError(f"{name} must be in [0, 1), got {getattr(self, name)}")
        parse_weights(self.event_weights)
        try:
            parse_metric(self.metric)
        except ValueError:
            raise SpecError(f"metric '{self.metric}' is not like ndcg@10, hr@10 or mrr@10") from None


def parse_weights(text: str) -> dict[str, float]:
    """Weights by type of event, as in view=0.2,buy=1; none for auto."""
    found: dict[str, float] = {}
    for part in text.split(",") if text and text != AUTO else ():
        name, _, number = part.strip().rpartition("=")
        if name in found:
            raise SpecError(f"event_weights has two weights of '{name}'; give one")
        try:
            found[name] = float(number)
        except ValueError:
            found[name] = math.nan
        if not name or not 0 <= found[name] < math.inf:
            raise SpecError(f"event_weights '{part}' is not like buy=1: a type and a number of at least 0; or auto")
    return found


def training_defaults(encoder: "str | Encoder") -> TrainingOptions:
    """The options of training that suit an encoder."""
    from abaca.nn.encoders import encoder_class  # late: it imports torch

    return TrainingOptions(**encoder_class(encoder).training_defaults)


def sort_options(
    encoder: str, sizes_type: type[Any], options: dict[str, Any]
) -> tuple[TrainingOptions, dict[str, Any], PrepareOptions]:
    """Hand each option to the part it belongs to; an unknown one is refused with the nearest name."""
    kinds = (TrainingOptions, sizes_type, PrepareOptions)
    names = [{field.name: field.default for field in fields(kind)} for kind in kinds]
    defaults = names[0] | names[1] | names[2]
    check_names(encoder, options, defaults)
    if isinstance(options.get("event_weights"), Mapping):
        pairs = options["event_weights"].items()
        options = {**options, "event_weights": ",".join(f"{name}={value}" for name, value in pairs)}
    if options.get("event_weights"):
        options = {"types": True, **options}
    if isinstance(options.get("features"), list | tuple):
        options = {**options, "features": ",".join(map(str, options["features"]))}
    options = {name: _typed(name, value, defaults[name]) for name, value in options.items()}
    training, sizes, prepared = ({key: options[key] for key in options if key in known} for known in names)
    sizes.pop("window", None)  # follows from the training's
    return replace(training_defaults(encoder), **training), asdict(sizes_type(**sizes)), PrepareOptions(**prepared)


def rule_options(baseline: str, options: dict[str, Any]) -> PrepareOptions:
    """The options of a baseline, which are those of preparing a log."""
    from abaca.evaluation.baselines import BASELINES  # late: it imports torch

    if baseline not in BASELINES:
        raise SpecError(f"baseline {baseline!r} is not one of {', '.join(BASELINES)}")
    defaults = {field.name: field.default for field in fields(PrepareOptions)}
    check_names(baseline, options, defaults)
    return PrepareOptions(**{name: _typed(name, value, defaults[name]) for name, value in options.items()})


def check_names(owner: str, given: Iterable[str], known: Iterable[str], fault: str = "has no option") -> None:
    """Refuse a name that is not known, with the nearest one that is."""
    every = sorted(known)
    for name in given:
        if name not in every:
            near = difflib.get_close_matches(name, every, n=1)
            hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(every)}"
            raise SpecError(f"{owner} {fault} '{name}'; {hint}")


def _float(value: Any) -> float | None:
    """The number as a float; None if it is too large for one."""
    try:
        return float(value)
    except OverflowError:
        return None


def _typed(name: str, value: Any, default: Any) -> Any:
    """The value in Python's own type; refused if it is not of its default's kind: a word for a number, say."""
    made: Any
    if isinstance(default, bool):
        made, wanted = (value if isinstance(value, bool) else None), "true or false"
    elif isinstance(default, int):
        made, wanted = whole_number(value), "a whole number"
    elif isinstance(default, float):
        is_number = isinstance(value, numbers.Real) and not isinstance(value, bool)
        made, wanted = (_float(value) if is_number else None), "a number"
    elif isinstance(default, str):
        made, wanted = (value if isinstance(value, str) else None), "text"
    else:
        return value
    if made is None:
        raise SpecError(f"{name} must be {wanted}, got {value!r}")
    return made
