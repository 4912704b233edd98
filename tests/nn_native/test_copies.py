"""Logits of the history's items: the native form against plain torch in float64, in slots that a row sees."""

import pytest
import torch
from torch import Tensor

from abaca.nn import native
from abaca.nn.frame import can_read
from abaca.nn.outputs.copies import Pointer, Windows, history_logits
from abaca.nn.outputs.history import Slots

EMPTY = 40
TOLERANCE = 1e-5


def windows(items: Tensor, asked: int, dim: int, wide: int) -> Windows:
    generator = torch.Generator().manual_seed(1)
    batch, length = items.shape

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator).requires_grad_()

    positions = torch.randint(-1, length, (batch, asked), generator=generator)
    positions[0, 0], positions[-1, -1] = -1, length - 1
    pointer = Pointer(normal(batch, length, wide), normal(batch, asked, wide), normal(batch, asked))
    parts = normal(batch, length, dim), normal(batch, asked, dim)
    return Windows(items, positions, *parts, pointer if wide else None)


def histories(kind: str) -> Tensor:
    generator = torch.Generator().manual_seed(2)
    if kind == "nothing repeats":
        return torch.stack([torch.randperm(EMPTY, generator=generator)[:13] for _ in range(6)])
    items = torch.randint(5 if kind == "much repeats" else EMPTY, (6, 13), generator=generator)
    if kind == "padded":
        items[0], items[1, 4:], items[2, 1:] = -1, -1, -1
    return items


def solve(asked: Windows, weights: Tensor) -> list[Tensor]:
    """Slots, logits that are seen, gradients."""
    inputs = [asked.embedded, asked.copying, *(asked.pointer or ())]
    ids, values = history_logits(asked, EMPTY)
    seen = (torch.arange(ids.shape[1]) <= asked.positions.unsqueeze(2)) & (ids < EMPTY).unsqueeze(1)
    logits = values.where(seen, 0)
    return [ids, logits.detach(), *torch.autograd.grad((logits * weights.to(logits.dtype)).sum(), inputs)]


def in_doubles(asked: Windows) -> Windows:
    def double(tensor: Tensor) -> Tensor:
        return tensor.detach().double().requires_grad_()

    pointer = None if asked.pointer is None else Pointer(*map(double, asked.pointer))
    return Windows(asked.items, asked.positions, double(asked.embedded), double(asked.copying), pointer)


@pytest.mark.parametrize("kind", ["nothing repeats", "some repeats", "much repeats", "padded"])
@pytest.mark.parametrize(("dim", "wide"), [(8, 0), (8, 16), (64, 128), (5, 3)])
@pytest.mark.parametrize("threads", [1, 4])
def test_equals_plain_torch(kind: str, dim: int, wide: int, threads: int) -> None:
    torch.set_num_threads(threads)
    items = histories(kind)
    assert (Slots.of(items, EMPTY).same is None) == (kind == "nothing repeats")
    asked, weights = windows(items, 7, dim, wide), torch.randn(6, 7, 13)
    assert can_read(asked.embedded, asked.copying, *(asked.pointer or ()))  # else both sides were plain
    got, expected = solve(asked, weights), solve(in_doubles(asked), weights)
    assert len(got) == len(expected) == (7 if wide else 4)
    for a, b in zip(got, expected, strict=True):
        torch.testing.assert_close(a.to(b.dtype), b, rtol=TOLERANCE, atol=TOLERANCE)
    assert float(expected[2].abs().sum()) > 0


def test_torch_does_what_the_native_form_cannot(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = windows(histories("padded"), 2, 8, 8)
    monkeypatch.setenv(native.SWITCH, "0")
    assert history_logits(asked, EMPTY)[1].shape == (6, 2, 13)


def test_can_be_gone_back_twice() -> None:
    asked = windows(histories("some repeats"), 2, 8, 8)
    total = history_logits(asked, EMPTY)[1].sum()
    first, second = (torch.autograd.grad(total, asked.copying, retain_graph=True)[0] for _ in range(2))
    assert torch.equal(first, second)
