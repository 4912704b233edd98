"""How an output layer is spelled: `softmax+CPR:20,100,500+Mi`, read, checked and written back.

spec      = base ["+" partition] ["+Mi"] ["+nodup"] ["+habits"] ["+followers"]
base      = "softmax" | "mos:K" | "mos-mix:K" | "repeatnet"
partition = "C" | "CP" | "R:ks" | "CR:ks" | "CPR:ks"          ks ascending, as in 20,100,500
"""

import difflib
import re
from dataclasses import dataclass

from abaca.errors import SpecError

EXAMPLES = (
    "softmax",
    "softmax+Mi",
    "softmax+C",
    "softmax+CP",
    "softmax+R:100",
    "softmax+CPR:100",
    "softmax+CPR:100+Mi",
    "softmax+CPR:20,100,500+Mi",
    "softmax+nodup",
    "mos:3",
    "mos-mix:3",
    "repeatnet",
    "softmax+CP+habits+followers",
)
EVIDENCE = ("habits", "followers")
"""Parts of `abaca.evidence`, which is fitted after training."""
FLAGS = ("Mi", "nodup", *EVIDENCE)
MOST_QUERIES = 1000
"""More than a mixture could ever use; each one is a matrix of weights and a pass over the catalogue."""
MOST_LEVELS = 16
_BASE = re.compile(r"(softmax|repeatnet|mos|mos-mix)(?::(\d{1,9}))?")
_PARTITION = re.compile(r"(C?P?R?)(?::(\d{1,9}(?:,\d{1,9})*))?")


@dataclass(frozen=True)
class OutputSpec:
    """An output layer's parts."""

    base: str = "softmax"
    queries: int = 1
    """K of `mos:K` and `mos-mix:K`."""
    copy: bool = False
    """C: items of the history have a query of their own."""
    point: bool = False
    """P: and are compared with the states at which they occurred."""
    rerank: tuple[int, ...] = ()
    """R: how many of the most likely items each level rescores, ascending."""
    mix: bool = False
    """Mi: the query reads the last three positions of every layer."""
    nodup: bool = False
    """Items of the window are never ranked; training ignores this."""
    evidence: tuple[str, ...] = ()
    """habits, followers: fitted after training, on held-out targets."""

    def __str__(self) -> str:
        base = self.base if self.base in ("softmax", "repeatnet") else f"{self.base}:{self.queries}"
        partition = "C" * self.copy + "P" * self.point + "R" * bool(self.rerank)
        if self.rerank:
            partition += ":" + ",".join(map(str, self.rerank))
        parts = [base, partition, "Mi" if self.mix else "", "nodup" if self.nodup else "", *self.evidence]
        return "+".join(part for part in parts if part)

    @classmethod
    def parse(cls, text: str) -> "OutputSpec":
        """Read a spec; refuse, with a hint, what makes no sense."""
        if not isinstance(text, str):
            raise SpecError(f"an output layer is text such as {EXAMPLES[6]}, got {text!r}")
        first, *rest = text.strip().split("+")
        base, queries = _parse_base(text, first)
        partition: tuple[bool, bool, tuple[int, ...]] | None = None
        flags: list[str] = []
        for part in rest:
            if part in FLAGS:
                if part in flags:
                    raise _refuse(text, f"{part} occurs twice")
                flags.append(part)
            elif partition is not None:
                raise _refuse(text, "it takes one of C, CP, R:ks, CR:ks, CPR:ks")
            elif base in ("mos-mix", "repeatnet"):
                raise _refuse(text, f"{base} takes {', '.join(FLAGS)} only")
            else:
                partition = _parse_partition(text, part)
        copy, point, rerank = partition or (False, False, ())
        evidence = tuple(part for part in EVIDENCE if part in flags)
        return cls(base, queries, copy, point, rerank, "Mi" in flags, "nodup" in flags, evidence)


def _parse_base(text: str, first: str) -> tuple[str, int]:
    match = _BASE.fullmatch(first)
    if not match:
        raise _refuse(text, f"'{first}' is not one of softmax, mos:K, mos-mix:K, repeatnet")
    base, count = match.groups()
    if base in ("softmax", "repeatnet"):
        if count is not None:
            raise _refuse(text, f"{base} takes no number")
        return base, 1
    if count is None or int(count) < 1:
        raise _refuse(text, f"{base} needs the number of its queries, as in {base}:3")
    if int(count) > MOST_QUERIES:
        raise _refuse(text, f"{base} has at most {MOST_QUERIES} queries")
    return base, int(count)


def _parse_partition(text: str, part: str) -> tuple[bool, bool, tuple[int, ...]]:
    match = _PARTITION.fullmatch(part)
    if not match or not part or match.group(1) == "":
        raise _refuse(text, f"'{part}' is not one of C, CP, R:ks, CR:ks, CPR:ks, {', '.join(FLAGS)}")
    letters, numbers = match.groups()
    if letters in ("P", "PR"):
        raise _refuse(text, "P adds to C: write CP or CPR:k")
    if ("R" in letters) != (numbers is not None):
        meant = text.strip().replace(f"+{part}", f"+{part}:100", 1) if "R" in letters else None
        raise _refuse(text, "R needs a number of items" if meant else "only R takes numbers", meant)
    ks = tuple(int(k) for k in numbers.split(",")) if numbers else ()
    if any(k < 1 for k in ks) or list(ks) != sorted(set(ks)):
        raise _refuse(text, "the numbers after R must be positive and ascending, as in 20,100,500")
    if len(ks) > MOST_LEVELS:
        raise _refuse(text, f"R has at most {MOST_LEVELS} levels")
    return "C" in letters, "P" in letters, ks


def _refuse(text: str, why: str, meant: str | None = None) -> SpecError:
    near = [meant] if meant else difflib.get_close_matches(text, EXAMPLES, n=1, cutoff=0.5)
    hint = f"; did you mean {near[0]}?" if near else f"; examples: {', '.join(EXAMPLES)}"
    return SpecError(f"output layer '{text}': {why}{hint}")
