"""A KernelBench-format problem: model, inputs, shapes, dtype, least work."""

from __future__ import annotations

import ast
import difflib
import functools
import marshal
import sys
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import CodeType, ModuleType
from typing import get_args

from beamsearch.errors import ProblemError
from beamsearch.paths import data_folder
from beamsearch.problem.functional import FILE, as_kernelbench, is_functional, split_number
from beamsearch.problem.kernelbench import is_kernelbench, kernelbench_files
from beamsearch.problem.pretrained import STANDS_IN, from_configuration, replace_loads
from beamsearch.problem.sizes import MAKERS, SMALL_MAKERS, sizes_of
from beamsearch.settings import Precision
from kernel_profiling.extensions import PROBLEMS, extensions
from kernel_profiling.syntax import parse

DTYPES = ("float32", "float16", "bfloat16", "float64")
FILES = ("problem.py", FILE)
"""What a problem that is a folder has in it."""
REQUIRED = ("Model", "get_inputs", "get_init_inputs")


@dataclass(frozen=True)
class Problem:
    """Where a problem is, what it says, and the dtype it is asked in."""

    name: str
    path: Path
    source: str
    dtype: str
    """Torch's name of the floating-point type of inputs and parameters."""
    sizes: Mapping[str, int] = field(default_factory=dict)
    """Whole numbers of its source replaced by these, by the names that `sizes_of` gives them, for a
    shrunk problem."""
    precision: Precision = "reference"
    """How imprecise products of float32 may be, the reference's own too."""
    backward: bool = False
    """Whether its gradients are outputs too; see `gradients.py`."""
    scaled: str = ""
    """Where its source has other sizes than its file: the factor, and which; see `scale.py`."""

    def __hash__(self) -> int:
        sizes = sorted(self.sizes.items())
        return hash((self.source, self.dtype, *sizes, self.precision, self.backward))

    @property
    def input_kernel(self) -> Path | None:
        """The first Triton kernel beside the problem, where there is one."""
        path = self.path.parent / "input_kernel.py"
        return path if path.is_file() else None

    def with_dtype(self, dtype: str | None) -> Problem:
        """The same problem in another dtype; none leaves it as it is."""
        if dtype is None:
            return self
        if dtype not in DTYPES:
            raise ProblemError(f"unknown dtype {dtype!r}; one of {', '.join(DTYPES)}")
        return replace(self, dtype=dtype)

    def with_precision(self, precision: str | None) -> Problem:
        """The same problem by another rule of precision; none leaves it as it is."""
        if precision is None:
            return self
        for known in get_args(Precision):
            if precision == known:
                return replace(self, precision=known)
        names = " or ".join(get_args(Precision))
        raise ProblemError(f"unknown precision {precision!r}; {names}")

    def with_backward(self, backward: bool | None) -> Problem:
        """The same problem with its gradients, or without; none leaves it as it is."""
        return self if backward is None else replace(self, backward=backward)


def list_problems() -> list[str]:
    """Names of the problems that come with the project."""
    return sorted(path.parent.name for path in data_folder("problems").glob("*/problem.py"))


def find_problem(name: str, kernelbench: Path | None = None) -> Problem:
    """A problem by full name, unique part of its name, folder or file; `level1/43` is that of a
    checkout of KernelBench, `tasks/norm:2` the second configuration of robust-kbench's, `mine:norm`
    one of the source `mine` of an installed package.

    Raises ProblemError where it is unknown or ambiguous, with the near names, or does not load.
    """
    return read_problem(find_file(name, kernelbench))


def find_file(name: str, kernelbench: Path | None = None) -> Path:
    """The file of a problem named as in `find_problem`, which is not read. Raises ProblemError
    where it is unknown or ambiguous."""
    root = data_folder("problems")
    folder = Path(name)
    for path in (folder, *(folder / file for file in FILES), root / name / "problem.py"):
        if path.is_file():
            return path
    source, colon, rest = name.partition(":")
    if colon and source in (sources := extensions(PROBLEMS)):
        return Path(sources[source](rest))
    task, number = split_number(name)
    for path in (Path(task), Path(task) / FILE):
        if is_functional(path):
            return path if number == 1 else path.with_name(f"{FILE}:{number}")
    if is_kernelbench(name):
        files = kernelbench_files(kernelbench, name)
        if len(files) > 1:
            raise ProblemError(f"{name} is {len(files)} problems; name one, as level1/43")
        return files[0]
    return root / _full_name(name) / "problem.py"


def _full_name(name: str) -> str:
    """A problem of ours by part of its name. Raises ProblemError."""
    names = list_problems()
    if name.isdecimal():  # a number is the whole number of a problem: 4 is 04, and not 43
        found = [n for n in names if n.partition("_")[0].lstrip("0") == name.lstrip("0")]
    else:
        found = [n for n in names if name and n.lower().startswith(name.lower())]
        found = found or [n for n in names if name and name.lower() in n.lower()]
    if len(found) == 1:
        return found[0]
    if found:
        raise ProblemError(f"{name!r} could be any of: {', '.join(found)}; give more of the name")
    near = difflib.get_close_matches(name, names, n=3, cutoff=0.3) or names
    raise ProblemError(
        f"no problem, folder or file called {name!r}; near: {', '.join(near)} "
        "(`python -m beamsearch problems` lists all)"
    )


def source_of_problem(path: Path) -> str:
    """The text of the problem in a file, or in a configuration of one (`func_forward.py:2`), in
    KernelBench's format; nothing of it is executed. Raises ProblemError."""
    name, number = split_number(path.name)
    task = path.with_name(name)
    try:
        return as_kernelbench(task, number) if is_functional(task) else path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise ProblemError(f"cannot read the problem {path}: {error}") from error


def read_problem(path: Path) -> Problem:
    """The problem in a file, or in a configuration of one. Raises ProblemError where it does not
    load."""
    source = source_of_problem(path)
    problem = Problem(name=name_of(path), path=path.resolve(), source=source, dtype="float32")
    module = load_module(problem)
    missing = [item for item in REQUIRED if not hasattr(module, item)]
    if missing:
        raise ProblemError(f"{path} is not in KernelBench's format: it lacks {', '.join(missing)}")
    stated = getattr(module, "DTYPE", None)
    return problem if stated is None else problem.with_dtype(str(stated).removeprefix("torch."))


def name_of(path: Path) -> str:
    """What the problem in a file is called."""
    name, number = split_number(path.name)
    if name == FILE and number > 1:
        return f"{path.parent.name}-{number}"
    return path.parent.name if path.name in FILES else path.stem


def load_module(problem: Problem) -> ModuleType:
    """The problem's source executed as a module, its sizes replaced where the problem says so."""
    code, loads = _compiled(problem)
    module = ModuleType(f"problem_{problem.name}")
    module.__file__ = str(problem.path)
    if loads:
        setattr(module, STANDS_IN, from_configuration)
    # Of its own: torch.compile keeps what it compiled in the code that it compiled.
    _execute(marshal.loads(code), problem, module)
    if problem.sizes.get(SMALL_MAKERS[0]):
        for maker, small in zip(MAKERS, SMALL_MAKERS, strict=True):
            setattr(module, maker, getattr(module, small, getattr(module, maker)))
    return module


@functools.lru_cache(maxsize=64)
def _compiled(problem: Problem) -> tuple[bytes, bool]:
    """Its source as code, marshalled, and whether that loads models by name. Kept, since a GPU
    waits: inputs are made anew before each timed call. Raises ProblemError."""
    try:
        tree = parse(problem.source, filename=str(problem.path))
    except SyntaxError as error:
        raise ProblemError(f"{problem.path} does not parse: {error}") from error
    for size in sizes_of(tree) if problem.sizes else ():
        if size.name in problem.sizes:
            size.replace(problem.sizes[size.name])
    loads = replace_loads(tree)
    try:
        code = compile(ast.fix_missing_locations(tree), str(problem.path), "exec")
    except Exception as error:
        raise ProblemError(
            f"{problem.path} fails to load: {type(error).__name__}: {error}"
        ) from error
    return marshal.dumps(code), loads


_LOADING = threading.RLock()
"""A module is known by its name while it is executed, which two threads may do at once."""


def _execute(code: CodeType, problem: Problem, module: ModuleType) -> None:
    """Execute a problem's source in its module. Raises ProblemError."""
    with _LOADING:
        _execute_alone(code, problem, module)


def _execute_alone(code: CodeType, problem: Problem, module: ModuleType) -> None:
    before = sys.modules.get(module.__name__)
    sys.modules[module.__name__] = module  # a dataclass looks its module up there
    try:
        exec(code, module.__dict__)
    except SystemExit as error:
        raise ProblemError(f"{problem.path} ends Python when it is loaded") from error
    except ProblemError as error:
        raise ProblemError(f"{problem.path} fails to load: {error}") from error
    except Exception as error:
        raise ProblemError(
            f"{problem.path} fails to load: {type(error).__name__}: {error}"
        ) from error
    finally:
        del sys.modules[module.__name__]
        if before is not None:
            sys.modules[module.__name__] = before
