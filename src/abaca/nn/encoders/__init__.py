"""Encoders: what turns the embedded items of a window into states."""

from abaca.nn.encoders.gru4rec import GRU4Rec, GRU4RecOptions
from abaca.nn.encoders.sasrec import SASRec, SASRecOptions

Encoder = GRU4Rec | SASRec
EncoderOptions = GRU4RecOptions | SASRecOptions

ENCODERS: dict[str, tuple[type[Encoder], type[EncoderOptions]]] = {
    "gru4rec": (GRU4Rec, GRU4RecOptions),
    "sasrec": (SASRec, SASRecOptions),
}

__all__ = ["ENCODERS", "Encoder", "EncoderOptions", "GRU4Rec", "GRU4RecOptions", "SASRec", "SASRecOptions"]
