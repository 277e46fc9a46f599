"""An optimizer that makes GPU kernels fast on its own."""

import sys
from importlib.util import find_spec
from pathlib import Path

__version__ = "0.1.0"

# A wheel holds `kernel_profiling` beside this package; a checkout that is not installed, in a
# folder whose own name is not imported: from Python 3.15 on it is the standard library's.
if find_spec("kernel_profiling") is None:
    sys.path.append(str(Path(__file__).resolve().parents[1] / "profiling"))
