"""Random numbers that a reference draws in `forward`: they become inputs, `draw0`, `draw1`, …"""

from __future__ import annotations

import ast
import inspect
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from types import FunctionType
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from beamsearch.problem.sizes import MAKERS, SMALL_MAKERS
from kernel_profiling.syntax import parse

F = torch.nn.functional

_MADE = (torch.rand, torch.randn, torch.randint, torch.randperm)
_LIKE = (torch.rand_like, torch.randn_like, torch.randint_like)
_FILLED = (
    *(torch.Tensor.normal_, torch.Tensor.uniform_, torch.Tensor.exponential_),
    *(torch.Tensor.bernoulli_, torch.Tensor.random_, torch.Tensor.log_normal_),
)
_DROPPED = (F.dropout, F.dropout1d, F.dropout2d, F.dropout3d)
_COMPARED = (torch.bernoulli, torch.Tensor.bernoulli)
NAMES = {function.__name__ for function in (*_MADE, *_LIKE, *_FILLED, *_DROPPED, *_COMPARED)}
"""What such a call is written with. Others, as `multinomial`, are no inputs: what they draw follows
from other values."""


@dataclass(frozen=True, eq=False)
class DrawnValue:
    """One call in `forward` that draws, as an input of the problem."""

    name: str
    function: Callable[..., Any]
    arguments: tuple[Any, ...]
    """Of that call; tensors among them are on `meta`."""
    options: dict[str, Any]
    line: int
    """Of the problem's file; 0 where the call is in another file."""

    def __str__(self) -> str:
        """What it stands in place of: `torch.randn of line 12`, or the mask of a dropout."""
        where = f" of line {self.line}" if self.line else ""
        what = self.function.__name__
        if self.function in _DROPPED:
            return f"the mask by which {what}{where} multiplies"
        if self.function in _COMPARED:
            return f"what {what}{where} compares with: uniform from 0 to 1"
        return f"what {what}{where} draws"

    def make(self, device: str) -> torch.Tensor:
        """Its value by the same call, from torch's generator of a device as it is seeded. Where the
        call names no dtype, in torch's default one."""

        def ones(value: Any) -> Any:
            if not isinstance(value, torch.Tensor):
                return value
            return torch.ones(value.shape, dtype=value.dtype, device=device)

        arguments = [ones(value) for value in self.arguments]
        made: torch.Tensor
        if self.function in _COMPARED:
            made = torch.rand_like(arguments[0])
        elif self.function in _MADE:
            made = self.function(*arguments, **self.options | {"device": device})
        else:
            made = self.function(*arguments, **self.options)
        return made


class Recorder(TorchFunctionMode):
    """Notes every call that draws and can be an input. For a run on `meta`."""

    def __init__(self, file: str) -> None:
        super().__init__()
        self.found: list[DrawnValue] = []
        self._file = file

    def __torch_function__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Any = None
    ) -> Any:
        """Do the call; note it where it draws."""
        kwargs = dict(kwargs or {})
        if not _draws(func, args, kwargs):
            return func(*args, **kwargs)
        told = {name: value for name, value in kwargs.items() if name not in _UNTOLD}
        number, line = len(self.found), line_in(self._file)
        found = DrawnValue(f"draw{number}", func, tuple(args), told, line)
        self.found.append(found)
        return _given(func, args, kwargs, found.make("meta"))


class Given(TorchFunctionMode):
    """Gives values that are there in place of those that would be drawn, in their order."""

    def __init__(self, values: Sequence[torch.Tensor]) -> None:
        super().__init__()
        self.values = values
        self.taken = 0

    def __torch_function__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Any = None
    ) -> Any:
        """Do the call, or take the next value in its place."""
        kwargs = kwargs or {}
        if not _draws(func, args, kwargs):
            return func(*args, **kwargs)
        value = self.values[self.taken]
        self.taken += 1
        return _given(func, args, kwargs, value)


UNSEEN = (*MAKERS, *SMALL_MAKERS, "__init__")
"""Functions that may draw: they make inputs and weights."""
KNOWN = {"torch", "numpy", "einops", "triton"}
"""Packages that draw nothing but by the calls of these names."""
_UNTOLD = ("generator", "inplace", "pin_memory", "requires_grad")
"""Options of a call that say nothing of the values."""


def _draws(func: Any, args: Sequence[Any], kwargs: Any) -> bool:
    """Whether a call draws what can be an input. Traced by torch.compile too."""
    if func in _DROPPED:
        chance = args[1] if len(args) > 1 else kwargs.get("p", 0.5)
        training = args[2] if len(args) > 2 else kwargs.get("training", True)
        return bool(training and chance > 0)
    if func in _FILLED:
        others = (*args[1:], *kwargs.values())
        return not any(isinstance(value, torch.Tensor) for value in others)
    if func in _COMPARED:
        return len(args) == 1 and "p" not in kwargs
    return (func in _MADE or func in _LIKE) and kwargs.get("out") is None


def _given(func: Any, args: Sequence[Any], kwargs: Any, value: torch.Tensor) -> Any:
    """What a call returns whose draw is this value."""
    if func in _DROPPED:
        in_place = args[3] if len(args) > 3 else kwargs.get("inplace", False)
        return args[0].mul_(value) if in_place else args[0] * value
    if func in _FILLED:
        return args[0].copy_(value)
    if func in _COMPARED:
        return (value < args[0]).to(args[0].dtype)
    return value


def may_draw(source: str) -> bool:
    """Whether a problem's source names such a call, beside where it makes inputs and weights; what
    it imports beyond PyTorch and the standard library may call anything."""

    def nodes(owner: ast.AST) -> Iterator[ast.AST]:
        for node in ast.iter_child_nodes(owner):
            if not (isinstance(node, ast.FunctionDef) and node.name in UNSEEN):
                yield node
                yield from nodes(node)

    tree = parse(source)
    imported = {
        name.partition(".")[0]
        for node in ast.walk(tree)
        if isinstance(node, ast.Import | ast.ImportFrom)
        for name in (
            [node.module or ""]
            if isinstance(node, ast.ImportFrom)
            else [a.name for a in node.names]
        )
    }
    if "importlib" in imported or imported - sys.stdlib_module_names - KNOWN:
        return True
    named = {getattr(node, "attr", getattr(node, "id", "")) for node in nodes(tree)}
    return not named.isdisjoint(NAMES)


def line_in(file: str) -> int:
    """The line of a file that is being executed; 0 where none is."""
    frame = sys._getframe()
    while frame.f_back is not None:
        frame = frame.f_back
        if frame.f_code.co_filename == file:
            return frame.f_lineno
    return 0


def with_draws(model: torch.nn.Module, inputs: int, draws: Sequence[DrawnValue]) -> torch.nn.Module:
    """The model with a `forward` that takes these values behind its first `inputs` arguments; the
    same where there are none."""
    if not draws:
        return model
    drawing, count, place = type(model), len(draws), Given

    def forward(self: Any, *given: Any) -> Any:
        with place(given[-count:]):
            return drawing.forward(self, *given[:-count])

    # Among the problem's own names, where torch.compile looks up what it traces.
    names = drawing.forward.__globals__
    taking = FunctionType(forward.__code__, names, "forward", None, forward.__closure__)
    own, *parameters = inspect.signature(drawing.forward).parameters.values()
    taken = [
        own,
        *(parameter.replace(default=parameter.empty) for parameter in parameters[:inputs]),
    ]
    added = [inspect.Parameter(draw.name, own.kind) for draw in draws]
    setattr(taking, "__signature__", inspect.Signature([*taken, *added]))  # noqa: B010
    model.__class__ = type(drawing.__name__, (drawing,), {"forward": taking})
    return model
