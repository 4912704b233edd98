"""Policies: what may be recommended, and the lists that follow from it."""

from abaca.policy.policy import Policy, listed
from abaca.policy.spelling import Boost, Cooldown, Quota

__all__ = ["Boost", "Cooldown", "Policy", "Quota", "listed"]
