"""The state of a run on disk: a lock, the tensors that a resumed run needs, and a line for each epoch.

While training runs, `run.safetensors` (the state) and `training.jsonl` (a line per epoch) are in the model directory,
and `trials.jsonl` while the best model within a time is searched.
"""

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from abaca.durable import LOCK, append_line, locked, whole_file, write_cure, write_text
from abaca.errors import ModelError
from abaca.training.document import MODEL
from abaca.types import Record

RECORD = "training.jsonl"
STATE = "run.safetensors"
TRIALS = "trials.jsonl"


def write_tensors(path: Path, tensors: dict[str, Tensor], metadata: dict[str, str] | None = None) -> None:
    """Write a whole safetensors file or nothing."""
    with whole_file(path, ModelError) as part:
        try:
            save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, part, metadata)
        except SafetensorError as error:
            raise OSError(str(error)) from error


def held(folder: Path) -> str | None:
    """What a folder holds of an earlier run, in words."""
    if (folder / STATE).exists() or (folder / TRIALS).exists():
        return "a run that was stopped"
    return "a model" if (folder / MODEL).exists() else None


@contextlib.contextmanager
def locked_run(folder: Path, *, keep: bool) -> Iterator[None]:
    """Lock a model directory for one run; with `keep`, a folder that holds an earlier run is refused."""
    if folder.exists() and not folder.is_dir():
        raise ModelError(f"{folder} is a file; give the name of a folder")
    if keep and (found := held(folder)):
        cure = "`resume=True` continues it, `overwrite=True` starts again"
        raise ModelError(f"{folder} holds {found}; {cure if 'run' in found else '`overwrite=True` replaces it'}")
    fresh = not folder.exists()
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise _unwritable(folder, error) from error
    try:
        with locked_folder(folder):
            yield
    finally:
        if fresh:
            with contextlib.suppress(OSError):
                folder.rmdir()  # only where nothing was written


@contextlib.contextmanager
def locked_folder(folder: Path) -> Iterator[None]:
    """Lock a folder that is there; refused while another process writes it."""
    with contextlib.ExitStack() as stack:
        try:
            alone = stack.enter_context(locked(folder / LOCK, wait=False))
        except OSError as error:
            raise _unwritable(folder, error) from error
        if not alone:
            raise ModelError(f"{folder} is being written by another process; wait for it, or give another folder")
        yield


def _unwritable(folder: Path, error: OSError) -> ModelError:
    return ModelError(f"{folder} cannot be written ({error.strerror}); {write_cure(error)}")


def save_state(folder: Path, tensors: dict[str, Tensor], progress: dict[str, Any]) -> None:
    """Save the state of a run, so that it can be resumed."""
    write_tensors(folder / STATE, tensors, {"progress": json.dumps(progress)})


def load_state(folder: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The last saved state of a run."""
    path = folder / STATE
    try:
        with safe_open(path, framework="pt") as file:
            progress: dict[str, Any] = json.loads((file.metadata() or {})["progress"])
            return {name: file.get_tensor(name) for name in file.keys()}, progress  # noqa: SIM118
    except FileNotFoundError:
        raise ModelError(f"{path} does not exist: there is no run to resume; train without `resume=True`") from None
    except (SafetensorError, KeyError, ValueError, OSError) as error:
        raise ModelError(f"{path} cannot be read ({error}); delete it and train from the start") from error


def read_progress(folder: Path) -> dict[str, Any]:
    """How far a run is whose state is saved; no tensor is read."""
    try:
        with safe_open(folder / STATE, framework="np") as file:  # torch opens it twice: a run may replace it in between
            progress: dict[str, Any] = json.loads((file.metadata() or {})["progress"])
            return progress
    except (SafetensorError, KeyError, ValueError, OSError) as error:
        raise ModelError(f"{folder / STATE} cannot be read ({error}); delete it and train from the start") from error


def write_record(folder: Path, records: list[Record]) -> None:
    """The run's epochs, a line each."""
    write_text(folder / RECORD, "".join(json.dumps(record) + "\n" for record in records), ModelError)


def append_record(folder: Path, record: Record) -> None:
    """One more epoch."""
    append_line(folder / RECORD, json.dumps(record), ModelError)
