"""The gradients of a reference: with `--backward` they are outputs, and those of its outputs are
inputs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch


def differentiate(
    call: Callable[..., Any],
    inputs: Sequence[Any],
    parameters: Sequence[torch.Tensor],
    gradients: Sequence[torch.Tensor],
) -> tuple[torch.Tensor, ...]:
    """What the call returns; then the gradient of each floating-point input, in their order, and of
    each parameter, by autograd, as far as the results depend on them. `gradients` are those of the
    floating-point results; `inputs` and `parameters` are `leaf`s.
    """
    outputs, found = gradients_by_autograd(call, inputs, parameters, gradients)
    return (*outputs, *(gradient for gradient in found if gradient is not None))


def gradients_by_autograd(
    call: Callable[..., Any],
    inputs: Sequence[Any],
    parameters: Sequence[torch.Tensor],
    gradients: Sequence[torch.Tensor],
) -> tuple[list[torch.Tensor], list[torch.Tensor | None]]:
    """The results, and what `differentiate` makes gradients for with none where there is none."""
    with torch.inference_mode(False), torch.enable_grad():
        returned = call(*inputs)
        outputs = list(returned) if isinstance(returned, tuple | list) else [returned]
        wanted = [x for x in (*inputs, *parameters) if is_floating(x)]
        floating = [output for output in outputs if is_floating(output)]
        pairs = [
            (output, ordinary(gradient))
            for output, gradient in zip(floating, gradients, strict=True)
            if output.requires_grad
        ]
        found: Sequence[torch.Tensor | None] = [None] * len(wanted)
        if pairs:
            ends, starts = zip(*pairs, strict=True)
            found = torch.autograd.grad(ends, wanted, starts, allow_unused=True)
    return [output.detach() for output in outputs], list(found)


def is_floating(value: Any) -> bool:
    """Whether a value has a gradient."""
    return isinstance(value, torch.Tensor) and value.is_floating_point()


def ordinary(tensor: Any) -> Any:
    """A tensor on the same memory that autograd may keep, which it may not of one that was made in
    inference mode. Other values as they are."""
    if not isinstance(tensor, torch.Tensor):
        return tensor
    with torch.inference_mode(False):
        if not tensor.is_inference():
            return tensor.detach()
        place = tensor.storage_offset(), tensor.size(), tensor.stride()
        made = torch.empty(0, dtype=tensor.dtype, device=tensor.device)
        return made.set_(tensor.untyped_storage(), *place)


def leaf(value: Any) -> Any:
    """The same value, on the same memory, as autograd wants what it makes gradients for."""
    made = ordinary(value)
    return made.requires_grad_() if is_floating(made) else made


@contextmanager
def leaves(model: torch.nn.Module) -> Iterator[list[torch.Tensor]]:
    """The model's parameters as leaves, in their order, and in its place while this lasts."""
    made: dict[int, torch.nn.Parameter] = {}
    before = []
    with torch.inference_mode(False):
        for part in model.modules():
            for name, parameter in part._parameters.items():
                if parameter is None:
                    continue
                before.append((part, name, parameter))
                same = made.get(id(parameter))
                if same is None:
                    made[id(parameter)] = same = torch.nn.Parameter(
                        ordinary(parameter), requires_grad=is_floating(parameter)
                    )
                part._parameters[name] = same
    try:
        yield list(model.parameters())
    finally:
        for part, name, parameter in before:
            part._parameters[name] = parameter
