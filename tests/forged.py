"""Model directories that were changed on purpose, with checksums that belong to the change."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from safetensors.torch import load_file, save_file
from torch import Tensor

from abaca.durable import file_facts
from abaca.training.document import MODEL, document_digest

Document = dict[str, Any]


def forge(folder: Path, change: Callable[[Document], Any]) -> None:
    """Change `model.json`."""
    content = json.loads((folder / MODEL).read_text(encoding="utf-8"))
    change(content)
    content["sha256"] = document_digest(content)
    (folder / MODEL).write_text(json.dumps(content), encoding="utf-8")


def forge_file(folder: Path, part: str, change: Callable[[Path], Any]) -> None:
    """Change the file of a part: weights, catalogue, index or ledger."""
    (path,) = folder.glob(f"{part}-*")
    change(path)
    forge(folder, lambda document: document["files"].update({path.name: file_facts(path)}))


def forge_weights(folder: Path, change: Callable[[dict[str, Tensor]], Any]) -> None:
    """Change the tensors."""

    def write(path: Path) -> None:
        tensors = {name: tensor.clone() for name, tensor in load_file(path).items()}
        change(tensors)
        save_file(tensors, path)

    forge_file(folder, "weights", write)
