"""The method as slow loops that read like the formulas: one history, one item, one position at a time.

Everything is computed from a model's weights by name, so autograd gives the reference gradients too. A history is a
list of items, oldest first; `states[j][m]` is h_j of layer m; scores are a list of V scalars.
"""

import math
from collections.abc import Iterator, Mapping
from typing import NamedTuple

import torch
from torch import Tensor

Weights = Mapping[str, Tensor]
States = list[list[Tensor]]

HEADS = 2
LAYER_NORM_EPSILON = 1e-12
COPY = -1


class Parts(NamedTuple):
    """What a spec spells, read without the library."""

    base: str
    queries: int
    letters: str
    ks: list[int]
    mi: bool
    nodup: bool


def read(spec: str) -> Parts:
    first, *rest = spec.split("+")
    base, _, queries = first.partition(":")
    letters, _, ks = next((part for part in rest if part not in ("Mi", "nodup")), "").partition(":")
    numbers = [int(k) for k in ks.split(",")] if ks else []
    return Parts(base, int(queries or 1), letters, numbers, "Mi" in rest, "nodup" in rest)


def affine(weights: Weights, name: str, x: Tensor) -> Tensor:
    return weights[f"{name}.weight"] @ x + weights[f"{name}.bias"]


def gelu(x: Tensor) -> Tensor:
    return x * (1 + torch.erf(x / math.sqrt(2))) / 2


def layer_norm(weights: Weights, name: str, x: Tensor, epsilon: float = LAYER_NORM_EPSILON) -> Tensor:
    mean = x.sum() / len(x)
    variance = ((x - mean) ** 2).sum() / len(x)
    return weights[f"{name}.weight"] * (x - mean) / torch.sqrt(variance + epsilon) + weights[f"{name}.bias"]


# Encoders


def gru4rec(weights: Weights, history: list[int]) -> States:
    """One GRU layer without biases, then dense."""
    W_r, W_z, W_n = weights["encoder.gru.weight_ih_l0"].chunk(3)
    U_r, U_z, U_n = weights["encoder.gru.weight_hh_l0"].chunk(3)
    h = torch.zeros_like(U_r[0])
    states = []
    for s_j in history:
        x = weights["items.weight"][s_j]
        reset = torch.sigmoid(W_r @ x + U_r @ h)
        update = torch.sigmoid(W_z @ x + U_z @ h)
        new = torch.tanh(W_n @ x + reset * (U_n @ h))
        h = (1 - update) * new + update * h
        states.append([affine(weights, "encoder.dense", h)])
    return states


def sasrec(weights: Weights, history: list[int]) -> States:
    """Item + position → LayerNorm → causal transformer layers."""
    items, places = weights["items.weight"], weights["encoder.position.weight"]
    x = [layer_norm(weights, "encoder.norm", items[s_j] + places[j]) for j, s_j in enumerate(history)]
    layers = []
    while f"encoder.blocks.{len(layers)}.out.weight" in weights:
        x = transformer(weights, f"encoder.blocks.{len(layers)}", x)
        layers.append(x)
    return [list(of_layers) for of_layers in zip(*layers, strict=True)]


def transformer(weights: Weights, name: str, x: list[Tensor]) -> list[Tensor]:
    """Attention, add, norm; feed forward, add, norm."""
    query, key, value = zip(*(affine(weights, f"{name}.query_key_value", x_j).chunk(3) for x_j in x), strict=True)
    size = len(x[0]) // HEADS
    out = []
    for j, x_j in enumerate(x):
        heads = []
        for head in range(HEADS):
            at = slice(head * size, (head + 1) * size)
            energy = torch.stack([query[j][at] @ key[i][at] / math.sqrt(size) for i in range(j + 1)])
            attention = torch.exp(energy - energy.max()) / torch.exp(energy - energy.max()).sum()
            heads.append(sum(attention[i] * value[i][at] for i in range(j + 1)))
        attended = affine(weights, f"{name}.out", torch.cat(heads))
        y = layer_norm(weights, f"{name}.attention_norm", x_j + attended)
        inner = affine(weights, f"{name}.narrow", gelu(affine(weights, f"{name}.widen", y)))
        out.append(layer_norm(weights, f"{name}.inner_norm", y + inner))
    return out


def hstu(weights: Weights, history: list[int]) -> States:
    """Gated attention with biases by the places and the time between; the moment of the query is not known."""
    times = [40 * sum(history[: j + 1]) for j in range(len(history))]
    x = [weights["items.weight"][s_j] + weights["encoder.gaps.weight"][-1] for s_j in history]
    block = 0
    while f"encoder.blocks.{block}.out.weight" in weights:
        x = gated(weights, f"encoder.blocks.{block}", x, times)
        block += 1
    return [[layer_norm(weights, "encoder.norm", x_j, 1e-5)] for x_j in x]


def gated(weights: Weights, name: str, x: list[Tensor], times: list[int]) -> list[Tensor]:
    """Attention of each head to itself and earlier ones, times a gate, added."""
    places, since = weights["encoder.places.weight"], weights["encoder.times.weight"]
    made = [
        affine(weights, f"{name}.gate_query_key_value", layer_norm(weights, f"{name}.norm", x_j, 1e-5)) for x_j in x
    ]
    gate, query, key, value = zip(*(made_j.chunk(4) for made_j in made), strict=True)
    size = len(x[0]) // HEADS
    out = []
    for j, x_j in enumerate(x):
        heads = []
        for head in range(HEADS):
            at = slice(head * size, (head + 1) * size)
            energy = torch.stack(
                [
                    query[j][at] @ key[i][at] / math.sqrt(size)
                    + places[min(j - i, len(places) - 1), head]
                    + since[math.floor(math.log2(times[j] - times[i] + 1.5)), head]
                    for i in range(j + 1)
                ]
            )
            attention = torch.exp(energy - energy.max()) / torch.exp(energy - energy.max()).sum()
            heads.append(sum(attention[i] * value[i][at] for i in range(j + 1)))
        out.append(x_j + affine(weights, f"{name}.out", torch.cat(heads) * gate[j] * torch.sigmoid(gate[j])))
    return out


ENCODERS = {"gru4rec": gru4rec, "sasrec": sasrec, "hstu": hstu}


# From states to the query


def queries(weights: Weights, spec: str, states: States) -> list[Tensor]:
    """q_j of every position: h_j^M, with Mi ⊕ GELU(W · [last 3 positions, all layers] + b)."""
    if not read(spec).mi:
        return [of_layers[-1] for of_layers in states]
    nothing = [torch.zeros_like(h) for h in states[0]]
    mixed = []
    for j, of_layers in enumerate(states):
        last_three = [states[i] if i >= 0 else nothing for i in (j - 2, j - 1, j)]
        block = torch.cat([h for position in last_three for h in position])
        mixed.append(torch.cat([of_layers[-1], gelu(affine(weights, "output.mix.linear", block))]))
    return mixed


# From the query to scores


def top(scores: list[Tensor], k: int) -> list[int]:
    """The k items that score highest; all of them where the catalogue ends first."""
    return sorted(range(len(scores)), key=lambda x: -scores[x].item())[:k]


def softmax_scores(weights: Weights, spec: str, history: list[int], q: list[Tensor]) -> tuple[list[Tensor], list[int]]:
    """Logits of `softmax` and `mos:K` with their overrides, and who wrote them: 0 base, i the i-th level, −1 a copy."""
    parts = read(spec)
    p = weights["items.weight"]
    q_n = q[-1]
    f_V = [affine(weights, f"output.f_V.{k}", q_n) for k in range(parts.queries)]
    scores = [torch.stack([f_k @ p_x for f_k in f_V]).max() for p_x in p]
    partition = [0] * len(p)
    for i in reversed(range(len(parts.ks))):  # the largest k first
        f_R = affine(weights, f"output.f_R.{i}", q_n)
        for x in top(scores, parts.ks[i]):
            scores[x] = f_R @ p[x]
            partition[x] = i + 1
    for x in set(history) if "C" in parts.letters else ():
        scores[x] = affine(weights, "output.copy.f_C", q_n) @ p[x]
        partition[x] = COPY
        if "P" in parts.letters:
            f_P = affine(weights, "output.copy.f_P", q_n)
            f_L = [affine(weights, "output.copy.f_L", q_j) for q_j, s_j in zip(q, history, strict=True) if s_j == x]
            scores[x] = scores[x] + f_P @ (sum(f_L) / len(f_L))
    return scores, partition


def mixture_scores(weights: Weights, spec: str, q: list[Tensor]) -> list[Tensor]:
    """log Σ_k π_k softmax_k(x) of `mos-mix:K`."""
    p = weights["items.weight"]
    log_share = log_softmax(list(weights["output.share.weight"] @ q[-1]))
    log_parts = []
    for k in range(read(spec).queries):
        f_k = affine(weights, f"output.f.{k}", q[-1])
        log_parts.append(log_softmax([f_k @ p_x for p_x in p]))
    return [log_sum([log_share[k] + part[x] for k, part in enumerate(log_parts)]) for x in range(len(p))]


def repeatnet_scores(weights: Weights, history: list[int], q: list[Tensor]) -> list[Tensor]:
    """log P(x) of `repeatnet`: log p_r + log a_x for x in the history, else log p_e + log explore(x)."""
    table = weights["output.table.weight"]

    def log_attention(name: str) -> list[Tensor]:
        W, U, v = (weights[f"output.{name}.{letter}.weight"] for letter in "WUv")
        return log_softmax([v[0] @ torch.tanh(W @ q[-1] + U @ q_j) for q_j in q])

    def attended(name: str) -> Tensor:
        return sum(torch.exp(log_alpha) * q_j for log_alpha, q_j in zip(log_attention(name), q, strict=True))

    log_repeat, log_explore = log_softmax(list(weights["output.choose.weight"] @ attended("mode")))
    log_alpha = log_attention("repeat")
    query = torch.cat([q[-1], attended("explore")])
    outside = [x for x in range(len(table)) if x not in history]
    explored = dict(zip(outside, log_softmax([query @ table[x] for x in outside]), strict=True)) if outside else {}
    scores = []
    for x in range(len(table)):
        if x in history:
            log_a = log_sum([log_alpha[j] for j, s_j in enumerate(history) if s_j == x])
            scores.append(log_repeat + log_a)
        else:
            scores.append(log_explore + explored[x])
    return scores


def scores_of(weights: Weights, spec: str, history: list[int], states: States) -> list[Tensor]:
    """Logits of all items after a history; log-probabilities for `mos-mix` and `repeatnet`."""
    q = queries(weights, spec, states)
    base = read(spec).base
    if base == "mos-mix":
        return mixture_scores(weights, spec, q)
    if base == "repeatnet":
        return repeatnet_scores(weights, history, q)
    return softmax_scores(weights, spec, history, q)[0]


def log_probabilities(weights: Weights, spec: str, history: list[int], states: States) -> list[Tensor]:
    """log P(x) of all items, as training sees it."""
    scores = scores_of(weights, spec, history, states)
    return scores if read(spec).base == "repeatnet" else log_softmax(scores)


def ranked_scores(weights: Weights, spec: str, history: list[int], states: States) -> list[float]:
    """What ranks items: the scores, with nodup −∞ for the history's."""
    scores = scores_of(weights, spec, history, states)
    return [-math.inf if read(spec).nodup and x in history else score.item() for x, score in enumerate(scores)]


def partitions_of(weights: Weights, spec: str, history: list[int], states: States) -> list[int]:
    """Who scored each item: 0 the base, i ≥ 1 the i-th level from the smallest k, −1 the history."""
    parts = read(spec)
    if parts.base in ("softmax", "mos"):
        _, partition = softmax_scores(weights, spec, history, queries(weights, spec, states))
    else:
        partition = [0] * len(weights["items.weight"])
    if parts.base == "repeatnet" or parts.nodup:
        partition = [COPY if x in history else code for x, code in enumerate(partition)]
    return partition


def rows(
    weights: Weights, encoder: str, batch: tuple[Tensor, Tensor, Tensor]
) -> Iterator[tuple[list[int], States, int]]:
    """(history, its states, target) of every position asked for, history by history."""
    for items, positions, targets in zip(*(part.tolist() for part in batch), strict=True):
        window = [s_j for s_j in items if s_j >= 0]
        states = ENCODERS[encoder](weights, window) if max(positions) >= 0 else []
        for position, target in zip(positions, targets, strict=True):
            if position >= 0:
                yield window[: position + 1], states[: position + 1], target


def loss(weights: Weights, encoder: str, spec: str, batch: tuple[Tensor, Tensor, Tensor]) -> Tensor:
    """Σ −log P(target) over the positions asked for."""
    total = weights["items.weight"].new_zeros(())
    for history, states, target in rows(weights, encoder, batch):
        total = total - log_probabilities(weights, spec, history, states)[target]
    return total


def log_sum(values: list[Tensor]) -> Tensor:
    """log Σ exp."""
    stacked = torch.stack(values)
    highest = stacked.max().detach()
    return highest + torch.log(torch.exp(stacked - highest).sum())


def log_softmax(values: list[Tensor]) -> list[Tensor]:
    normaliser = log_sum(values)
    return [value - normaliser for value in values]
