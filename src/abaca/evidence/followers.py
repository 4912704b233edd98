"""What is chosen by the rank of new targets: how soon histories fade, and the share of followers.

Most of the likelihood is lost on targets that no list reaches. So a / T and s, which order the items outside the
history, are those with the highest NDCG of new targets among these items. The other numbers are then fitted again:
temperatures, and the share of repeats, are those of highest likelihood. This is kept if it gains more than one standard
error of NDCG in the whole list.
"""

import numpy as np

from abaca.evidence.evidence import MOST_FOLLOWERS
from abaca.evidence.likelihood import final_logits, maximise, scale_of
from abaca.evidence.problem import CUTOFF, Problem
from abaca.evidence.transitions import Transitions
from abaca.histories import Floats, Histories, Ints

ENOUGH_TARGETS = 3_000
"""Targets that are enough to choose f."""
FADES = (1.0, 0.75, 0.5, 0.25)
"""Values of f that are tried."""
RATIOS = (0.05, 0.15, 0.3, 0.6, 0.9, 1.3, 1.8, 2.7, 4.0)
SHARPNESSES = (1.0, 3.0, 10.0, 30.0, 100.0, 1000.0)
"""Values of a / T and of s that are tried."""


def choose_fade(transitions: Transitions, histories: Histories, targets: Ints) -> float:
    """The f whose followers rank new targets best; 1 unless another is better by more than a standard error."""
    few = np.arange(min(len(targets), ENOUGH_TARGETS))
    histories, targets = histories.take(few), targets[few]
    gains = [_follower_gains(transitions, histories, targets, fade) for fade in FADES]
    more = [gain - gains[0] for gain in gains]
    sure = [gain.mean() if gain.mean() > gain.std() / np.sqrt(len(few)) else 0.0 for gain in more]
    return FADES[int(np.argmax(sure))] if len(few) else FADES[0]


def _follower_gains(transitions: Transitions, histories: Histories, targets: Ints, fade: float) -> Floats:
    """1 / log2(1 + rank) of new targets (N,) among the followers outside their histories; 0 for other targets."""
    catalogue = len(transitions.counts)
    found = transitions.after(histories, MOST_FOLLOWERS, fade)
    owned = np.repeat(np.arange(len(histories)), histories.lengths) * catalogue + histories.items
    new = ~np.isin(found.rows * catalogue + found.items, owned)
    rows, items, strength = (part[new] for part in found)
    wanted = items == targets[rows]
    hit = np.full(len(histories), np.inf)
    hit[rows[wanted]] = strength[wanted]
    rank = np.bincount(rows, strength >= hit[rows], minlength=len(histories))
    return np.asarray((rank > 0) / np.log2(np.maximum(rank, 1) + 1.0))


def choose_followers(
    problem: Problem, parts: tuple[str, ...], strength: float, likely: Floats
) -> tuple[Floats, tuple[float, float] | None]:
    """The numbers under the log a / T and log s that order new targets best, with these two.

    If whole lists do not gain by them, the likeliest numbers, and None.
    """
    is_own = np.zeros(len(problem.rows), dtype=bool)
    is_own[problem.own] = True
    new = (problem.entry < 0) | ~is_own[problem.entry]
    if not new.any():
        return likely, None
    kept = problem.take(new)
    pairs = [(ratio, sharpness) for ratio in RATIOS for sharpness in SHARPNESSES]
    best = max(pairs, key=lambda pair: float(new_gains(kept, *pair).mean()))
    found = float(np.log(best[0])), float(np.log(best[1]))
    ranked = maximise(problem, parts, strength, found, likely)
    more = list_gains(problem, ranked, parts) - list_gains(problem, likely, parts)
    return (ranked, found) if more.mean() > more.std() / np.sqrt(len(more)) else (likely, None)


def new_gains(problem: Problem, ratio: float, sharpness: float) -> Floats:
    """The NDCG of new targets (N,) among the items outside their histories."""
    final = problem.logits + ratio * np.log1p(sharpness * problem.strength)
    final[problem.own] = -np.inf
    return _gains(problem, final, 1.0)


def list_gains(problem: Problem, theta: Floats, parts: tuple[str, ...]) -> Floats:
    """The NDCG of targets (N,) among all items."""
    return _gains(problem, final_logits(problem, theta, parts)[0], scale_of(theta))


def _gains(problem: Problem, final: Floats, scale: float) -> Floats:
    """The NDCG of targets (N,) from the final logits of entries, and the scale of all others."""
    hit = np.where(problem.entry >= 0, final[problem.entry], scale * problem.hit)
    rank = np.bincount(problem.rows, final >= hit[problem.rows], minlength=len(hit))
    rank += (scale * problem.best >= hit[:, None]).sum(axis=1)  # the target itself is an entry, or one of the others
    return np.where(rank <= CUTOFF, 1 / np.log2(np.maximum(rank, 1) + 1), 0.0)
