"""A share of the users for each model: a hash of the user chooses, so a person stays with one model."""

import hashlib
import math
from collections.abc import Mapping, Sequence

from abaca.errors import UserError


class Split:
    """Shares of models, which add up to 1."""

    def __init__(self, shares: Mapping[str, float]) -> None:
        self.shares = dict(shares)
        self._salt = ",".join(sorted(shares))

    def model_for(self, user: str) -> str:
        """The model of a user. A change of the shares moves only as many users as it must, between neighbours."""
        digest = hashlib.sha256(f"{self._salt}\n{user}".encode("utf-8", "surrogatepass")).digest()
        place, end = int.from_bytes(digest[:8]) / 2**64, 0.0
        for name, share in self.shares.items():
            end += share
            if place < end:
                return name
        return name


def parse_split(text: str, names: Sequence[str]) -> Split:
    """Shares as in `a=0.9,b=0.1`, of models that are served."""
    shares: dict[str, float] = {}
    for part in text.split(","):
        name, separator, share = part.strip().rpartition("=")
        if not separator or name not in names:
            raise UserError(f"--split: '{part}' names no model; write NAME=SHARE of {', '.join(names)}, with commas")
        if name in shares:
            raise UserError(f"--split names {name} twice; give each model one share")
        try:
            shares[name] = float(share)
        except ValueError:
            raise UserError(f"--split: '{share}' is not a share; give a number from 0 to 1") from None
    if not all(0 <= share <= 1 for share in shares.values()) or not math.isclose(sum(shares.values()), 1, abs_tol=1e-6):
        raise UserError(f"--split: the shares {text} do not add up to 1; give shares from 0 to 1 that do")
    return Split(shares)
