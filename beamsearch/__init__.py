"""An optimizer that makes GPU kernels fast on its own."""

import sys
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from beamsearch.api.optimize import optimize
    from beamsearch.api.problem import Problem
    from beamsearch.api.profile import profile
    from beamsearch.api.run import Run
    from beamsearch.api.time import time
    from beamsearch.api.verify import verify

__all__ = ["Problem", "Run", "optimize", "profile", "time", "verify"]
__version__ = "0.1.0"

# A wheel holds `kernel_profiling` beside this package; a checkout that is not installed, in a
# folder whose own name is not imported: from Python 3.15 on it is the standard library's.
if find_spec("kernel_profiling") is None:
    sys.path.append(str(Path(__file__).resolve().parents[1] / "profiling"))


def __getattr__(name: str) -> object:
    """The library, imported when it is first used."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"beamsearch.api.{name.lower()}"), name)
