"""A problem as it is given: by name, as text, or as a module of yours."""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from beamsearch.api.kernel import is_source
from beamsearch.errors import ProblemError, UsageError
from beamsearch.paths import cache_folder
from beamsearch.problem.problem import Problem as AnyProblem
from beamsearch.problem.problem import find_problem, read_problem
from beamsearch.problem.scale import at_scale
from beamsearch.records.trace import write_text

if TYPE_CHECKING:
    import torch

    GivenModule = type[torch.nn.Module] | Callable[..., Any] | str
    GivenInput = torch.Tensor | str | float

GivenProblem = AnyProblem | str | Path
"""A problem, its name, folder or file, or its source: a text of several lines."""


class Problem(AnyProblem):
    """A reference to be computed faster, and the inputs it is called with."""

    @classmethod
    def named(
        cls, name: str | Path, *, kernelbench: Path | None = None, scale: float | None = None
    ) -> Self:
        """The problem of a name, a unique part of one (`43`), a folder or a file; `level1/43` of a
        checkout of KernelBench. `scale` multiplies its largest sizes. Raises ProblemError."""
        return cls(**vars(at_scale(find_problem(str(name), kernelbench), scale)))

    @classmethod
    def from_source(cls, source: str, *, name: str = "problem") -> Self:
        """The problem of a text in KernelBench's format, which is kept as a file in the cache, so
        that other processes find it. Raises ProblemError."""
        if not name.replace("-", "_").isidentifier():
            raise ProblemError(f"{name!r} is no name for a problem; write letters, digits and _")
        digest = hashlib.sha256(source.encode()).hexdigest()[:16]
        path = cache_folder() / "problems" / digest / name / "problem.py"
        if not path.is_file() or path.read_text() != source:
            write_text(path, source)
        return cls(**vars(read_problem(path)))

    @classmethod
    def from_module(
        cls,
        module: GivenModule,
        inputs: Mapping[str, GivenInput] | Sequence[str],
        init: Mapping[str, object] | Sequence[str] = (),
        *,
        name: str | None = None,
        dtype: str | None = None,
        evaluated: bool = False,
    ) -> Self:
        """The problem of a `torch.nn.Module` class or a function of tensors, or of what
        `my_model.py:MyBlock` names.

        `inputs`: what its forward takes, by name: a tensor of that shape and dtype, or as
        `new --input` takes it (`bf16[8,2048]`). `init`: the arguments of the class, by name, or as
        `new --init` takes them. Code of an importable module is imported, that of a notebook or a
        script is copied. `evaluated`: `self.eval()` at the end of `__init__`. Raises UsageError,
        ProblemError.
        """
        from beamsearch.export.copied import origin_of
        from beamsearch.export.new_problem import make_problem, snake_case

        origin = origin_of(module)
        name = name or snake_case(origin.attribute.rpartition(".")[2])
        path = Path(name) / "problem.py"
        specs, arguments = _specs(inputs), _arguments(init)
        made = make_problem(origin, specs, arguments, path, dtype=dtype, evaluated=evaluated)
        return cls.from_source(made.problem.source, name=name)


def as_problem(
    given: GivenProblem,
    *,
    dtype: str | None = None,
    precision: str | None = None,
    backward: bool | None = None,
) -> AnyProblem:
    """The problem that was given, as the settings ask for it. Raises ProblemError."""
    if isinstance(given, AnyProblem):
        problem = given
    elif isinstance(given, str | Path):
        source = str(given)
        problem = Problem.from_source(source) if is_source(given) else Problem.named(given)
    else:
        name = getattr(given, "__name__", type(given).__name__)
        raise UsageError(
            f"{name} does not say what its forward is called with; give "
            f'Problem.from_module({name}, {{"x": torch.empty(8, 512)}})'
        )
    return problem.with_dtype(dtype).with_precision(precision).with_backward(backward)


def _specs(inputs: Mapping[str, GivenInput] | Sequence[str]) -> list[str]:
    """The inputs as `new` takes them."""
    if not isinstance(inputs, Mapping):
        return list(inputs)
    return [f"{name}: {_spec(value)}" for name, value in inputs.items()]


def _spec(value: GivenInput) -> str:
    import torch

    if not isinstance(value, torch.Tensor):
        return str(value)
    dtype = str(value.dtype).removeprefix("torch.")
    told = f"{dtype}[{','.join(map(str, value.shape))}]"
    whole = not value.is_floating_point() and value.dtype not in (torch.bool, torch.int8)
    if not whole or not value.numel() or value.is_meta:
        return told
    return f"{told} < {int(value.max()) + 1}"


def _arguments(init: Mapping[str, object] | Sequence[str]) -> list[str]:
    """The arguments of a class as `new` takes them. Raises UsageError."""
    if not isinstance(init, Mapping):
        return list(init)
    for name, value in init.items():
        try:
            ast.literal_eval(repr(value))
        except (ValueError, SyntaxError) as error:
            raise UsageError(
                f"init: {name} is a {type(value).__name__}, which a problem's file cannot hold; "
                f'write what makes it, as init=["{name}=package.Config(size=8)"]'
            ) from error
    return [f"{name}={value!r}" for name, value in init.items()]
