"""Encoders: from windows to states."""

from abaca.errors import SpecError
from abaca.nn.encoders.encoder import Encoder, EncoderOptions, Inputs
from abaca.nn.encoders.gru4rec import GRU4Rec, GRU4RecOptions
from abaca.nn.encoders.hstu import HSTU, HSTUOptions
from abaca.nn.encoders.sasrec import SASRec, SASRecOptions

__all__ = [
    "ENCODERS",
    "Encoder",
    "EncoderOptions",
    "GRU4RecOptions",
    "HSTUOptions",
    "Inputs",
    "SASRecOptions",
    "encoder_class",
]

ENCODERS: dict[str, type[Encoder]] = {"gru4rec": GRU4Rec, "sasrec": SASRec, "hstu": HSTU}


def encoder_class(encoder: str | Encoder) -> type[Encoder]:
    """The class of an encoder that is given by name or as an object."""
    if isinstance(encoder, Encoder):
        return type(encoder)
    if not isinstance(encoder, str) or encoder not in ENCODERS:
        raise SpecError(f"encoder {encoder!r} is not one of {', '.join(ENCODERS)}")
    return ENCODERS[encoder]
