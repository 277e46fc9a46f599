"""A problem on a device: its model, one set of inputs, and every name a kernel may ask for."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import threading
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from beamsearch.errors import ProblemError, ShortOfMemory
from beamsearch.problem.input_values import Distribution, draw, vary_constants
from beamsearch.problem.kernel import CallArguments, gradient_names
from beamsearch.problem.outputs import outputs_of
from beamsearch.problem.problem import Problem, load_module
from beamsearch.settings import Precision
from kernel_profiling.errors import one_line

if TYPE_CHECKING:
    import torch

    from beamsearch.problem.draws import DrawnValue

_GENERATOR = threading.RLock()
"""Torch's generators and default dtype are the process's: one instance at a time is made or run."""


@dataclass(frozen=True)
class Instance:
    """A problem on a device: the reference and one set of inputs, in the problem's dtype."""

    model: torch.nn.Module
    inputs: tuple[Any, ...]
    """What `get_inputs` makes, then what `forward` would draw."""
    init: tuple[Any, ...]
    arguments: CallArguments
    """What a kernel is bound with: the very tensors of `model` and `inputs`."""
    precision: Precision = "reference"
    updates: tuple[str, ...] = ()
    """Buffers of the model that count as outputs, behind what `forward` returns."""
    gradients: int = 0
    """How many of the inputs, the last, are gradients of outputs; then gradients are outputs."""

    def reference(self) -> Any:
        """The reference's output, in the problem's own dtype; with it what `updates` hold then, if
        there are any. The model's buffers themselves stay as they are."""
        import torch

        buffers = dict(self.model.named_buffers()) if self.model.training else {}
        mode = torch.no_grad() if self.gradients else torch.inference_mode()
        with _GENERATOR, mode:
            before = {name: buffer.clone() for name, buffer in buffers.items()}
            try:
                output = self._output()
                if not self.updates:
                    return output
                outputs = output if isinstance(output, tuple | list) else [output]
                return [*outputs, *(buffers[name].clone() for name in self.updates)]
            finally:
                for name, value in before.items():
                    buffers[name].copy_(value)

    def _output(self) -> Any:
        """What `forward` returns, and where asked its gradients."""
        if not self.gradients:
            return self.model(*self.inputs)
        from beamsearch.problem.gradients import differentiate, leaf, leaves

        inputs, given = self.inputs[: -self.gradients], self.inputs[-self.gradients :]
        with leaves(self.model) as parameters:
            return differentiate(self.model, list(map(leaf, inputs)), parameters, given)

    def has_gradient(self) -> dict[str, bool]:
        """Input or parameter, by the name that a kernel has for it -> whether an output depends on
        it; of the floating-point ones, in the order of their gradients."""
        from beamsearch.problem.gradients import gradients_by_autograd, is_floating, leaf, leaves

        inputs, given = self.inputs[: -self.gradients], self.inputs[-self.gradients :]
        names = [
            *(n for n, x in zip(self.arguments.forward, inputs, strict=False) if is_floating(x)),
            *(n.replace(".", "_") for n, x in self.model.named_parameters() if is_floating(x)),
        ]
        with leaves(self.model) as parameters:
            values = list(map(leaf, inputs))
            _, found = gradients_by_autograd(self.model, values, parameters, given)
        return dict(zip(names, (gradient is not None for gradient in found), strict=True))


@contextmanager
def fitting(told: str) -> Iterator[None]:
    """ShortOfMemory in place of PyTorch's own error of too little memory."""
    import torch

    try:
        yield
    except torch.OutOfMemoryError as error:
        raise ShortOfMemory(
            f"{told}: {one_line(str(error))}; free memory there, or give a smaller --scale"
        ) from error


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
    draws, count = draws_of(problem), len(differentiable(problem))
    try:
        with fitting(f"{problem.path} does not fit into the memory of {device}"):
            model, inputs, init = _build(problem, device, seed, distribution, draws)
    except ProblemError:
        raise
    except (Exception, SystemExit) as error:
        raise ProblemError(
            f"{problem.path} fails to build: {type(error).__name__}: {error}"
        ) from error
    arguments = call_arguments(model, inputs, init, count)
    return Instance(model, inputs, init, arguments, problem.precision, gradients=count)


_Built = tuple["torch.nn.Module", tuple[Any, ...], tuple[Any, ...]]
"""A model, its inputs, and its own arguments."""


def _build(
    problem: Problem,
    device: str,
    seed: int = 0,
    distribution: Distribution = "own",
    draws: Sequence[DrawnValue] = (),
) -> _Built:
    """A problem's parts on a device. Raises what the problem raises."""
    import torch

    from beamsearch.problem.draws import with_draws

    module = load_module(problem)
    dtype: torch.dtype = getattr(torch, problem.dtype)
    shapes = differentiable(problem)

    def build(place: str) -> _Built:
        """Made in this place, then on the device."""
        with _GENERATOR, defaults(place, dtype):
            torch.default_generator.manual_seed(seed)  # `torch.manual_seed` seeds what is not here
            if torch.device(place).type == "cuda":
                torch.cuda.manual_seed(seed)
            init = tuple(module.get_init_inputs())
            model = without_dropout(module.Model(*init)).to(device=device, dtype=dtype)
            if distribution != "own":
                vary_constants(model)
            raw = tuple(module.get_inputs())
            _check_inputs(raw)
            inputs = [_cast(value, device, dtype, distribution) for value in raw]
            # What is drawn keeps its distribution: a mask of ones and zeros is no other number.
            drawn = [draw.make(place).to(device) for draw in draws]
            given = [_cast(torch.randn(shape), device, dtype, distribution) for shape in shapes]
            return with_draws(model, len(raw), draws), (*inputs, *drawn, *given), init

    try:
        model, inputs, init = build(device)
    except (RuntimeError, NotImplementedError):
        if device != "meta":
            raise
        model, inputs, init = build("cpu")  # it reads values while it is built
    return model.requires_grad_(False), inputs, init


def _check_inputs(raw: tuple[Any, ...]) -> None:
    """Raise TypeError for an input that holds tensors and is none."""
    import torch

    for number, value in enumerate(raw):
        parts = value.values() if isinstance(value, dict) else value
        if isinstance(value, dict | list | tuple) and any(
            isinstance(part, torch.Tensor | dict | list | tuple) for part in parts
        ):
            raise TypeError(
                f"get_inputs gives a {type(value).__name__} of tensors as input {number}; let "
                "forward take each tensor as an argument of its own"
            )


@functools.lru_cache(maxsize=64)
def differentiable(problem: Problem) -> tuple[tuple[int, ...], ...]:
    """Shapes of the outputs that have gradients, where the problem asks for them; else none. Raises
    ProblemError where nothing has."""
    if not problem.backward:
        return ()
    from beamsearch.problem.dispatch_modes import ShapesOfRecurrence

    instance = instantiate(dataclasses.replace(problem, backward=False), "meta")
    with ShapesOfRecurrence():  # type: ignore[no-untyped-call]
        returned = instance.reference()
    found = tuple(
        tuple(output.shape) for output in outputs_of(returned) if output.is_floating_point()
    )
    if not found:
        raise ProblemError(f"{problem.name} returns whole numbers alone, which have no gradient")
    return found


@functools.lru_cache(maxsize=64)
def draws_of(problem: Problem) -> tuple[DrawnValue, ...]:
    """What `forward` draws from torch's generators and can take as inputs instead, found by a run
    on `meta`. None where that fails: whoever runs the problem then says why."""
    import torch

    from beamsearch.problem.dispatch_modes import ShapesOfRecurrence
    from beamsearch.problem.draws import Recorder, may_draw

    if not may_draw(problem.source):
        return ()
    recorder = Recorder(str(problem.path))
    try:
        model, inputs, _ = _build(dataclasses.replace(problem, backward=False), "meta")
        with torch.inference_mode(), ShapesOfRecurrence(), recorder:  # type: ignore[no-untyped-call]
            model(*inputs)
    except Exception:  # noqa: BLE001 - a reference that does not run is told where it is needed
        return ()
    return tuple(recorder.found)


def without_dropout(model: torch.nn.Module) -> torch.nn.Module:
    """The model with layers that drop values as they are when it is used: what is drawn at random
    no kernel could draw again."""
    from torch.nn import MultiheadAttention, RNNBase
    from torch.nn.modules.dropout import _DropoutNd

    for part in model.modules():
        if isinstance(part, _DropoutNd | RNNBase | MultiheadAttention):
            part.eval()
    return model


@contextmanager
def defaults(device: str, dtype: torch.dtype) -> Iterator[None]:
    """Tensors are made on this device, those of floating-point numbers in this dtype."""
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
    model: torch.nn.Module, inputs: tuple[Any, ...], init: tuple[Any, ...], gradients: int = 0
) -> CallArguments:
    """Every name a kernel may ask for. On a clash the earlier source wins (see CallArguments).
    `gradients`: how many of the inputs, the last, are those of outputs."""
    own = tuple(inspect.signature(model.forward).parameters)[: len(inputs) - gradients]
    forward = (*own, *gradient_names(gradients))
    state = dict(model.named_parameters()) | dict(model.named_buffers())
    values: dict[str, Any] = dict(zip(forward, inputs, strict=True))
    for name, value in _by_dotted_name(state).items():
        values.setdefault(name, value)
    hyper: dict[str, Any] = {}
    for path, part in model.named_modules():
        for name, value in vars(part).items():
            if not name.startswith("_") and name != "training" and _is_plain(value):
                hyper[f"{path}.{name}" if path else name] = value
    for name, value in _by_dotted_name(hyper).items():
        values.setdefault(name, value)
    parameters = list(inspect.signature(type(model).__init__).parameters)[1:]
    given = [_is_plain(value) or hasattr(value, "untyped_storage") for value in init]
    for name, value, is_given in zip(parameters, init, given, strict=False):
        if is_given:
            values.setdefault(name, value)
    return CallArguments(
        values=values,
        forward=forward,
        init=init if all(given) else (),
        state=state,
        gradients=gradients,
    )


def _by_dotted_name(items: Mapping[str, Any]) -> dict[str, Any]:
    """Each item under its dotted name with `_`, and under the last part where that is unique."""
    named = {name.replace(".", "_"): value for name, value in items.items()}
    last = Counter(name.rpartition(".")[2] for name in items)
    short = {name.rpartition(".")[2]: value for name, value in items.items()}
    unique = {name: value for name, value in short.items() if last[name] == 1}
    return named | unique | named


def _is_plain(value: Any) -> bool:
    if isinstance(value, tuple | list):
        return all(_is_plain(item) for item in value)
    return value is None or isinstance(value, bool | int | float | str)
