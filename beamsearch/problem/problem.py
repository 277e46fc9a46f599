"""A KernelBench-format problem: model, inputs, shapes, dtype, least work."""

from __future__ import annotations

import ast
import difflib
import functools
import inspect
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, get_args

from beamsearch.errors import ProblemError
from beamsearch.paths import data_folder
from beamsearch.problem.input_values import Distribution, draw, vary_constants
from beamsearch.problem.kernel import CallArguments
from beamsearch.settings import Precision
from kernel_profiling.syntax import parse

if TYPE_CHECKING:
    import torch

DTYPES = ("float32", "float16", "bfloat16", "float64")
_GENERATOR = threading.Lock()
"""Torch's generators and default dtype are the process's: one instance is made at a time."""
REQUIRED = ("Model", "get_inputs", "get_init_inputs")
SMOKE_ELEMENTS = 6_000
"""Elements of inputs and outputs a shrunk problem may have. The interpreter takes about 10 ms for a
program with a few dozen loads, and a kernel may use a program for each row of the output: at this
size that is some dozens of programs, and the interpreter answers in about a second."""


@dataclass(frozen=True)
class Problem:
    """Where a problem is, what it says, and the dtype it is asked in."""

    name: str
    path: Path
    source: str
    dtype: str
    """Torch's name of the floating-point type of inputs and parameters."""
    sizes: Mapping[str, int] = field(default_factory=dict)
    """Module-level integers replaced by these, for a shrunk problem."""
    precision: Precision = "reference"
    """How imprecise products of float32 may be, the reference's own too."""

    def __hash__(self) -> int:
        return hash((self.source, self.dtype, *sorted(self.sizes.items()), self.precision))

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


@dataclass(frozen=True)
class Instance:
    """A problem on a device: the reference and one set of inputs, in the problem's dtype."""

    model: torch.nn.Module
    inputs: tuple[Any, ...]
    init: tuple[Any, ...]
    arguments: CallArguments
    """What a kernel is bound with: the very tensors of `model` and `inputs`."""
    precision: Precision = "reference"
    updates: tuple[str, ...] = ()
    """Buffers of the model that count as outputs, behind what `forward` returns."""

    def reference(self) -> Any:
        """The reference's output, in the problem's own dtype; with it what `updates` hold then, if
        there are any. The model's buffers themselves stay as they are."""
        import torch

        buffers = dict(self.model.named_buffers()) if self.model.training else {}
        with torch.inference_mode():
            before = {name: buffer.clone() for name, buffer in buffers.items()}
            try:
                output = self.model(*self.inputs)
                if not self.updates:
                    return output
                outputs = output if isinstance(output, tuple | list) else [output]
                return [*outputs, *(buffers[name].clone() for name in self.updates)]
            finally:
                for name, value in before.items():
                    buffers[name].copy_(value)


@dataclass(frozen=True)
class LeastWork:
    """Bytes every input, parameter and output take once, and the reference's FLOPs."""

    bytes_read: int
    bytes_written: int
    flops: int
    input_shapes: dict[str, tuple[int, ...]]
    output_shape: tuple[int, ...]
    read: dict[str, int] = field(default_factory=dict)
    """Bytes of each input and parameter."""
    products: str = "float32"
    """The cheapest format that a kernel may compute products in: `tf32`, or the problem's dtype."""

    @property
    def least_bytes(self) -> int:
        """Bytes read plus bytes written."""
        return self.bytes_read + self.bytes_written


def list_problems(folder: Path | None = None) -> list[str]:
    """Names of the problems that come with the project."""
    root = folder or data_folder("problems")
    return sorted(path.parent.name for path in root.glob("*/problem.py"))


def find_problem(name: str, folder: Path | None = None) -> Problem:
    """A problem by full name, unique part of its name, folder or file.

    Raises ProblemError where it is unknown or ambiguous, with the near names.
    """
    root = folder or data_folder("problems")
    path = Path(name)
    if path.is_file():
        return read_problem(path)
    if (path / "problem.py").is_file():
        return read_problem(path / "problem.py")
    names = list_problems(root)
    if name in names:
        return read_problem(root / name / "problem.py")
    found = [n for n in names if n.lower().startswith(name.lower())] if name else []
    if len(found) != 1 and name:
        found = found or [n for n in names if name.lower() in n.lower()]
    if len(found) == 1:
        return read_problem(root / found[0] / "problem.py")
    if found:
        raise ProblemError(f"{name!r} could be any of: {', '.join(found)}; give more of the name")
    near = difflib.get_close_matches(name, names, n=3, cutoff=0.3) or names
    raise ProblemError(
        f"no problem, folder or file called {name!r}; near: {', '.join(near)} "
        "(`python -m beamsearch problems` lists all)"
    )


def read_problem(path: Path) -> Problem:
    """The problem in a file. Raises ProblemError where it does not load."""
    try:
        source = path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise ProblemError(f"cannot read the problem {path}: {error}") from error
    name = path.parent.name if path.name == "problem.py" else path.stem
    problem = Problem(name=name, path=path.resolve(), source=source, dtype="float32")
    module = load_module(problem)
    missing = [item for item in REQUIRED if not hasattr(module, item)]
    if missing:
        raise ProblemError(f"{path} is not in KernelBench's format: it lacks {', '.join(missing)}")
    stated = getattr(module, "DTYPE", None)
    return problem if stated is None else problem.with_dtype(str(stated).removeprefix("torch."))


def load_module(problem: Problem) -> ModuleType:
    """The problem's source executed as a module, its sizes replaced where the problem says so."""
    try:
        tree = parse(problem.source, filename=str(problem.path))
    except SyntaxError as error:
        raise ProblemError(f"{problem.path} does not parse: {error}") from error
    for node in _size_assignments(tree):
        target = node.targets[0]
        assert isinstance(target, ast.Name)
        if target.id in problem.sizes:
            node.value = ast.copy_location(ast.Constant(problem.sizes[target.id]), node.value)
    module = ModuleType(f"problem_{problem.name}")
    module.__file__ = str(problem.path)
    try:
        exec(compile(tree, str(problem.path), "exec"), module.__dict__)
    except Exception as error:
        raise ProblemError(
            f"{problem.path} fails to load: {type(error).__name__}: {error}"
        ) from error
    return module


def _size_assignments(tree: ast.Module) -> Iterator[ast.Assign]:
    """Module-level `name = <integer>` and `name = <integer expression>`, in order."""
    for node in tree.body:
        if (
            isinstance(node, ast.Assign)
            and len(node.targets) == 1
            and isinstance(node.targets[0], ast.Name)
        ):
            yield node


def instantiate(
    problem: Problem,
    device: str = "cpu",
    seed: int = 0,
    distribution: Distribution = "own",
) -> Instance:
    """The reference and inputs on a device, made there, from a seed.

    Another distribution than the problem's own replaces floating-point inputs by other values of
    the same shapes, and makes constant parameters vary, so that a result that hides in the narrow
    range of the problem's own shows. Raises ProblemError.
    """
    import torch

    module = load_module(problem)
    dtype: torch.dtype = getattr(torch, problem.dtype)
    try:
        with _GENERATOR, _defaults(device, dtype):
            torch.manual_seed(seed)
            init = tuple(module.get_init_inputs())
            model = module.Model(*init).to(device=device, dtype=dtype)
            if distribution != "own":
                vary_constants(model)
            raw = tuple(module.get_inputs())
            inputs = tuple(_cast(value, device, dtype, distribution) for value in raw)
    except Exception as error:
        raise ProblemError(
            f"{problem.path} fails to build: {type(error).__name__}: {error}"
        ) from error
    model.requires_grad_(False)
    arguments = call_arguments(model, inputs, init)
    return Instance(model, inputs, init, arguments, problem.precision)


@contextmanager
def _defaults(device: str, dtype: torch.dtype) -> Iterator[None]:
    import torch

    before = torch.get_default_dtype()
    try:
        torch.set_default_dtype(dtype)
        with torch.device(device):
            yield
    finally:
        torch.set_default_dtype(before)


def _cast(value: Any, device: str, dtype: torch.dtype, distribution: Distribution) -> Any:
    import torch

    if not isinstance(value, torch.Tensor):
        return value
    if not value.is_floating_point():
        return value.to(device)
    if distribution != "own":
        return draw(distribution, tuple(value.shape), device, dtype)
    return value.to(device=device, dtype=dtype)


def call_arguments(
    model: torch.nn.Module, inputs: tuple[Any, ...], init: tuple[Any, ...]
) -> CallArguments:
    """Every name a kernel may ask for. On a clash the earlier source wins (see CallArguments)."""
    forward = tuple(inspect.signature(model.forward).parameters)[: len(inputs)]
    state = dict(model.named_parameters()) | dict(model.named_buffers())
    values: dict[str, Any] = dict(zip(forward, inputs, strict=True))
    for name, value in _by_dotted_name(state).items():
        values.setdefault(name, value)
    hyper: dict[str, Any] = {}
    for path, part in model.named_modules():
        for name, value in vars(part).items():
            if name.startswith("_") or name == "training" or not _is_plain(value):
                continue
            hyper[f"{path}.{name}" if path else name] = value
    for name, value in _by_dotted_name(hyper).items():
        values.setdefault(name, value)
    parameters = [p for p in inspect.signature(type(model).__init__).parameters if p != "self"]
    for name, value in zip(parameters, init, strict=False):
        values.setdefault(name, value)
    return CallArguments(values=values, forward=forward, init=init, state=state)


def _by_dotted_name(items: Mapping[str, Any]) -> dict[str, Any]:
    """Each item under its dotted name with `_`, and under the last part where that is unique."""
    named = {name.replace(".", "_"): value for name, value in items.items()}
    last = [name.rsplit(".", 1)[-1] for name in items]
    for name, value in items.items():
        short = name.rsplit(".", 1)[-1]
        if last.count(short) == 1:
            named.setdefault(short, value)
    return named


def _is_plain(value: Any) -> bool:
    if isinstance(value, tuple | list):
        return all(_is_plain(item) for item in value)
    return value is None or isinstance(value, bool | int | float | str)


def least_work(problem: Problem) -> LeastWork:
    """Least bytes and FLOPs at the problem's shapes, on `meta` tensors: no memory, no GPU.

    It also says what kernels may compute products in (`LeastWork.products`): judge, floor and
    prompts all go by that. Raises ProblemError where the reference draws random numbers.
    """
    import torch

    from beamsearch.problem.dispatch_modes import Draws, Tf32, skip_dynamo

    skip_dynamo()  # ahead of the counter's own modes
    from torch.utils.flop_counter import FlopCounterMode

    instance = instantiate(problem, "meta")
    counter = FlopCounterMode(display=False)
    with counter, Tf32() as by_default, Draws() as draws:
        output = instance.reference()
    if draws.seen:
        raise ProblemError(
            f"{problem.name} draws random numbers in forward ({draws.seen}), so that no two "
            "results are equal: draw them in get_inputs, or end __init__ with `self.eval()`"
        )
    in_tf32 = by_default.seen and problem.dtype == "float32" and problem.precision == "reference"
    tensors = {
        name: value
        for name, value in zip(instance.arguments.forward, instance.inputs, strict=True)
        if isinstance(value, torch.Tensor)
    }
    read = {
        name: t.numel() * t.element_size()
        for name, t in (tensors | dict(instance.arguments.state)).items()
    }
    outputs = [t for t in (output if isinstance(output, tuple | list) else [output])]
    return LeastWork(
        bytes_read=sum(read.values()),
        bytes_written=sum(t.numel() * t.element_size() for t in outputs),
        flops=int(counter.get_total_flops()),
        input_shapes={name: tuple(t.shape) for name, t in tensors.items()},
        output_shape=tuple(outputs[0].shape),
        read=read,
        products="tf32" if in_tf32 else problem.dtype,
    )


@functools.lru_cache(maxsize=64)
def shrink(problem: Problem, budget: int = SMOKE_ELEMENTS) -> Problem:
    """The same problem at small sizes: module-level integers halved in turn down to the budget.

    All sizes shrink alike, the smallest first, so that batches end near 1 while rows and images
    stay long enough to have an inside and an edge. A size is halved only where the reference still
    runs and gets smaller, so that kernel sizes, strides and groups stay as they are. What was
    halved is made odd where it can be, to exercise masks and remainders. Raises ProblemError where
    the problem has no sizes that reach the budget.
    """
    original = integer_sizes(problem)
    sizes = dict(original)
    halvings = {name: 0 for name, value in sizes.items() if value > 4}
    elements = count_elements(replace(problem, sizes=sizes))
    if elements is None:
        raise ProblemError(f"{problem.name}: the reference does not run at its own shapes")
    while elements > budget:
        if not halvings:
            raise ProblemError(
                f"{problem.name}: no module-level sizes left to reduce; it cannot be checked on "
                "small shapes. Give its shapes as module-level integers."
            )
        name = min(halvings, key=lambda key: (halvings[key], sizes[key]))
        trial = {**sizes, name: sizes[name] // 2}
        smaller = count_elements(replace(problem, sizes=trial))
        if smaller is None or smaller >= elements or trial[name] < 1:
            del halvings[name]
            continue
        sizes, elements = trial, smaller
        halvings[name] += 1
        if sizes[name] < 2:
            del halvings[name]
    for name, value in sizes.items():
        trial = {**sizes, name: value - 1}
        if value != original[name] and value > 4 and value % 2 == 0:
            smaller = count_elements(replace(problem, sizes=trial))
            if smaller is not None and smaller < elements:
                sizes, elements = trial, smaller
    return replace(problem, sizes=sizes)


def integer_sizes(problem: Problem) -> dict[str, int]:
    module = load_module(problem)
    names = [
        node.targets[0].id
        for node in _size_assignments(parse(problem.source))
        if isinstance(node.targets[0], ast.Name)
    ]
    values = {name: getattr(module, name) for name in names}
    return {k: v for k, v in values.items() if isinstance(v, int) and not isinstance(v, bool)}


def count_elements(problem: Problem) -> int | None:
    """Elements of inputs and output, or none where the reference does not run at these sizes."""
    import torch

    try:
        instance = instantiate(problem, "meta")
        output = instance.reference()
    except Exception:  # noqa: BLE001 - a shrunk reference that raises is the answer sought
        return None
    tensors = [t for t in (*instance.inputs, output) if isinstance(t, torch.Tensor)]
    if any(t.numel() == 0 for t in tensors):
        return None
    return sum(t.numel() for t in tensors)
