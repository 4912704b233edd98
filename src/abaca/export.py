"""Export to ONNX: encoder, output layer, evidence and top-n as one graph that runs without torch and without abaca.

Beside `model.onnx` is `model.json`: the ids by item index, the window, how many items of a history the graph reads, the
unit of times, and what the inputs and outputs are.
"""

import copy
import itertools
import json
import logging
import tempfile
import warnings
from pathlib import Path

import torch
from torch import Tensor, nn

from abaca.durable import put_in_place, write_text
from abaca.errors import ModelError, SpecError
from abaca.evidence.graph import EvidenceGraph, latest
from abaca.histories import EventTypes, Windows
from abaca.nn.answers import Question, answer_tile
from abaca.nn.logits import Logits
from abaca.nn.outputs.encoded import EncodedOnce
from abaca.nn.outputs.history import Slots
from abaca.shapes import loads
from abaca.training.checkpoint import Saved

KIND, FORMAT = "abaca export", 1
APART = 1 << 30
"""Weights of more bytes than this go into a file of their own: a graph holds 2 GB at most."""

INPUTS = {
    "histories": "int64 (B, L): item indices, oldest first, the last `window` at most, −1 after the end; at least one",
    "exclude": "int64 (B, X): item indices that may not be recommended, −1 for none; X is 1 at least",
}
WHOLE = "int64 (B, L): item indices of whole histories, oldest first, −1 after the end; at least one"
TIMES = "float64 (B, L): when each interaction happened, in the unit of the log; NaN for a history without times"
NOW = "float64 (B,): the moment of the query, in the unit of the log; NaN where it is not known"
TYPES = "int64 (B, L): the number of each event's type, a place in `types`"
OUTPUTS = {
    "items": "int64 (B, n): item indices, best first",
    "probabilities": "float32 (B, n): of being the next item, over the whole catalogue; 0 where nothing is left",
    "partitions": "int8 (B, n): who scored an item: −1 copy, 0 explore, 1 and above rerank",
    "repeat_probability": "float32 (B,): that the next item is one of the history",
}


class Graph(nn.Module):
    """What is exported: histories in, the best n items out.

    Without evidence the histories are windows; with evidence they are whole.
    """

    def __init__(self, saved: Saved, window: int, n: int) -> None:
        super().__init__()
        self.model = copy.deepcopy(saved.model).cpu().eval()
        self.evidence = None if saved.evidence is None else EvidenceGraph(saved.evidence)
        self.window, self.n = window, n
        for module in list(self.model.modules()):
            for name, child in list(module.named_children()):
                if isinstance(child, nn.GRU):
                    setattr(module, name, RecurrentLayer(child))

    @property
    def inputs(self) -> dict[str, str]:
        """The names and the meaning of the inputs."""
        found = INPUTS if self.model.types is None else INPUTS | {"types": TYPES}
        by_encoder, by_evidence = self.model.encoder.reads_times, self.evidence
        if by_evidence is not None:
            found = found | {"histories": WHOLE}
        if by_encoder or (by_evidence is not None and by_evidence.reads_times):
            found = found | {"times": TIMES}
        if by_encoder or (by_evidence is not None and by_evidence.reads_now):
            found = found | {"now": NOW}
        return found

    def forward(
        self,
        histories: Tensor,
        exclude: Tensor,
        types: Tensor | None = None,
        times: Tensor | None = None,
        now: Tensor | None = None,
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        catalogue = self.model.catalogue
        positions = (histories >= 0).sum(dim=1, keepdim=True) - 1  # (B, 1)
        whole = Windows(histories, positions, times, None if now is None else now.unsqueeze(1), types)
        windows = whole if self.evidence is None else latest(whole, self.window)
        scores = self.model.output.scores(EncodedOnce(*self.model.encode(windows)))
        assert isinstance(scores, Logits)
        if self.evidence is None:
            owned = Slots.of(histories, catalogue).ids
        else:
            scores, owned = self.evidence(scores, whole)
        if types is not None and self.model.types is not None and self.model.types.restricted:
            owned = owned.where(_taken(histories, types, self.model.types), catalogue)
        question = Question(
            targets=positions.squeeze(1) * 0 - 1,
            n=self.n,
            mass_of=owned,
            banned=exclude.where(exclude >= 0, catalogue),
        )
        found = answer_tile(scores.tile(), question)
        return found.items, (found.logits - found.normaliser[:, None]).exp(), found.partitions, found.mass


class RecurrentLayer(nn.Module):
    """A GRU as one operation of the graph: traced step by step, it would fit one length of history only."""

    def __init__(self, gru: nn.GRU) -> None:
        super().__init__()
        if gru.bias or gru.num_layers > 1 or gru.bidirectional:
            raise SpecError("a GRU can be exported with one layer, one direction and no biases only")
        self.hidden = gru.hidden_size
        for name in ("weight_ih_l0", "weight_hh_l0"):
            reset, update, new = getattr(gru, name).detach().chunk(3)
            self.register_buffer(name, torch.cat([update, reset, new]).unsqueeze(0))  # ONNX orders the gates so

    def forward(self, x: Tensor) -> tuple[Tensor, None]:
        states = onnx_gru(x.transpose(0, 1), self.weight_ih_l0, self.weight_hh_l0, self.hidden)  # (L, 1, B, H)
        return states.squeeze(1).transpose(0, 1), None


@torch.library.custom_op("abaca::gru", mutates_args=())
def onnx_gru(x: Tensor, weight: Tensor, recurrence: Tensor, hidden: int) -> Tensor:
    """ONNX's GRU, `linear_before_reset`: x (L, B, D), weights (1, 3·H, …) → states (L, 1, B, H)."""
    ours = []
    for part in (weight, recurrence):
        update, reset, new = part[0].chunk(3)
        ours.append(torch.cat([reset, update, new]))
    start = x.new_zeros(1, x.shape[1], hidden)
    return torch.gru(x, start, ours, False, 1, 0.0, False, False, False)[0].unsqueeze(1)


@onnx_gru.register_fake
def _(x: Tensor, weight: Tensor, recurrence: Tensor, hidden: int) -> Tensor:
    return x.new_empty(x.shape[0], 1, x.shape[1], hidden)


def export_onnx(saved: Saved, window: int, path: Path, n: int = 100) -> None:
    """Write a model as an ONNX file that answers with the best n items, and the JSON beside it."""
    if not saved.model.output.exportable:
        raise SpecError(f"{saved.output} cannot be exported; softmax and mos:K with any of their partitions can")
    if n < 1:
        raise SpecError(f"n must be at least 1, got {n}")
    if path.suffix != ".onnx":
        raise SpecError(f"{path}: the name of an ONNX file ends in .onnx")
    _check_installed()
    _check_place(path.with_suffix(".json"))
    path.parent.mkdir(parents=True, exist_ok=True)
    n = min(n, saved.catalogue.size)
    graph = Graph(saved, window, n)
    with tempfile.TemporaryDirectory(prefix=f".{path.name}.", dir=path.parent) as draft:
        _write_graph(graph, Path(draft) / path.name)
        for file in sorted(Path(draft).iterdir(), reverse=True):  # separate weights come first
            put_in_place(file, path.parent / file.name)
    longest = window if saved.evidence is None else None  # evidence reads whole histories
    document = {
        "kind": KIND, "format": FORMAT, "encoder": saved.encoder, "output": saved.output, "window": window,
        "longest": longest, "time_unit": saved.training.get("time_unit"), "n": n, "inputs": graph.inputs,
        "outputs": OUTPUTS, **saved.catalogue.known().to_json(),
    }  # fmt: skip
    if saved.types is not None:
        document |= {"types": saved.types.names, "usual_type": saved.types.usual}
    write_text(path.with_suffix(".json"), json.dumps(document, ensure_ascii=False) + "\n", ModelError)


def _taken(histories: Tensor, types: Tensor, known: EventTypes) -> Tensor:
    """Mask of the places (B, L) whose item has an event of a type that is predicted."""
    wanted = (types.unsqueeze(2) == torch.tensor(known.targets)).any(2) & (histories >= 0)
    return ((histories.unsqueeze(2) == histories.unsqueeze(1)) & wanted.unsqueeze(1)).any(2)


def _check_place(ids: Path) -> None:
    """Refuse to replace what is not the ids of an export, such as a model's own file."""
    if not ids.exists():
        return
    try:
        kind = loads(ids.read_text(encoding="utf-8"))["kind"]
    except (OSError, ValueError, KeyError, TypeError):
        kind = None
    if kind != KIND:
        raise SpecError(f"{ids}, the file for the ids, is another file; give the ONNX file another name")


def _write_graph(graph: Graph, path: Path) -> None:
    from onnxscript import FLOAT, opset18

    def translated(x: FLOAT, weight: FLOAT, recurrence: FLOAT, hidden: int) -> FLOAT:
        states, _ = opset18.GRU(x, weight, recurrence, hidden_size=hidden, linear_before_reset=1)
        return states

    inputs, sizes = _example(graph), {0: torch.export.Dim("batch"), 1: torch.export.Dim.DYNAMIC}
    dynamic = {name: {axis: sizes[axis] for axis in range(example.dim())} for name, example in inputs.items()}
    tensors = itertools.chain(graph.parameters(), graph.buffers())
    apart = sum(tensor.numel() * tensor.element_size() for tensor in tensors) > APART
    registration = logging.getLogger("torch.onnx._internal.exporter._registration")
    registration.setLevel(logging.ERROR)  # torchvision is not needed
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            graph, (), path, kwargs=inputs,
            input_names=list(inputs), output_names=list(OUTPUTS), dynamic_shapes=dynamic, external_data=apart,
            dynamo=True, verbose=False, custom_translation_table={torch.ops.abaca.gru.default: translated},
        )  # fmt: skip


def _example(graph: Graph) -> dict[str, Tensor]:
    """Inputs for the tracer."""
    histories = torch.tensor([[0, 1 % graph.model.catalogue, 0, 0, 0], [0, 0, -1, -1, -1], [0, -1, -1, -1, -1]])
    found = {"histories": histories, "exclude": histories[:, :4] * 0 - 1}
    found["times"] = torch.arange(15.0, dtype=torch.float64).view(3, 5)
    found["now"] = found["times"][:, -1] + 1
    found["types"] = histories.clamp_min(0)
    return {name: found[name] for name in graph.inputs}


def _check_installed() -> None:
    try:
        import onnx  # noqa: F401
        import onnxscript  # noqa: F401
    except ImportError as error:
        raise ModelError(f"exporting needs {error.name}: pip install 'abaca[export]'") from error
