"""Kernel sources become modules with a file of their own, which Triton reads them from."""

import hashlib
import importlib.util
from pathlib import Path
from types import ModuleType


def load_source(folder: Path, source: str) -> ModuleType:
    """The source as a module."""
    path = folder / f"kernel_{hashlib.sha256(source.encode()).hexdigest()[:12]}.py"
    path.write_text(source)
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
