"""The machine and the versions that a result depends on."""

import functools
import os
import platform
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import torch

import abaca
from abaca.nn import ops


def environment() -> dict[str, Any]:
    """Everything that a result may depend on besides its options."""
    return {**_fixed(), "threads": torch.get_num_threads()}


@functools.cache
def _fixed() -> dict[str, Any]:
    return {
        "abaca": abaca.__version__,
        "commit": commit(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": np.__version__,
        "loss": ops.instructions() or "plain torch",
        "system": f"{platform.system()} {platform.machine()}",
        "processor": processor(),
        "cores": os.cpu_count(),
    }


def commit() -> str | None:
    """The commit of the running source, with `+` if files were changed; None for an installed package."""
    folder = Path(abaca.__file__).parent
    try:
        inside = _git(folder, "ls-files", "--error-unmatch", "__init__.py")
        changed = _git(folder, "status", "--porcelain", "--untracked-files=no", ".")
        return _git(folder, "rev-parse", "--short=12", "HEAD") + ("+" if changed else "") if inside else None
    except (OSError, subprocess.CalledProcessError):
        return None


def _git(folder: Path, *words: str) -> str:
    command = ["git", "-C", str(folder), *words]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def processor() -> str:
    """The processor's name."""
    facts = Path("/proc/cpuinfo")
    if facts.exists():
        for line in facts.read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()
