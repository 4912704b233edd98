"""Whether a model can answer: its numbers are finite, and so are the scores that it makes of them."""

import math
from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor

from abaca.evaluation.ranker import ModelRanker
from abaca.histories import Histories
from abaca.nn.answers import Question
from abaca.nn.model import Model


def not_finite(tensors: Mapping[str, Tensor]) -> str | None:
    """The name of the first tensor that holds NaN or infinity; None where there is none."""
    for name, tensor in tensors.items():
        if tensor.is_floating_point() and tensor.numel():
            least, most = torch.aminmax(tensor.detach())  # both are NaN where one number is
            if not (math.isfinite(least.item()) and math.isfinite(most.item())):
                return name
    return None


def fault_of(model: Model, window: int) -> str | None:
    """Why a model cannot answer, in words, tried on a short and a full history; None where it can."""
    if (name := not_finite(model.state_dict())) is not None:
        return f"the weights {name} hold numbers that are not finite"
    full = np.arange(max(1, min(window, model.catalogue - 1)))  # an item is left for a layer that excludes the history
    histories, none = Histories.of([[0], full]), torch.zeros(2, 0, dtype=torch.int64)
    answer = ModelRanker(model, window).ask(histories, Question(torch.zeros(2, dtype=torch.int64), 1, none, none))
    if model.catalogue > 1 and not bool(torch.stack([answer.logits[:, 0], answer.normaliser]).isfinite().all()):
        return "the weights are so large that scores are not finite"
    return None
