"""Optional packages, imported at first use."""

import importlib
from typing import Any

from abaca.errors import SpecError


def needs(module: str, extra: str) -> Any:
    """Import a package of an extra; the error names the extra."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        package = module.split(".")[0]
        raise SpecError(f"this needs the package {package}; install it with: pip install 'abaca[{extra}]'") from error
