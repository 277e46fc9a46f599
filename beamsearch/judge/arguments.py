"""The arguments of a call, as processes other than the judge's get them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal

from beamsearch.judge.sandbox.protocol import encode_arguments
from beamsearch.problem.instance import Instance, call_arguments, instantiate
from beamsearch.problem.problem import Problem

if TYPE_CHECKING:
    import torch

Layout = Literal["strided", "misaligned"]


def meta_arguments(problem: Problem, layout: Layout | None = None) -> dict[str, Any]:
    """The call's arguments at the problem's shapes, on no memory at all; numbered as in a handout,
    and laid out as in one."""
    instance = instantiate(problem, "meta")
    numbers: dict[int, int] = {}

    def number(tensor: torch.Tensor) -> int:
        return numbers.setdefault(tensor.untyped_storage()._cdata, len(numbers))

    laid_out = rearranged(instance, layout) if layout else instance
    return encode_arguments(laid_out.arguments, number)


def rearranged(instance: Instance, layout: Layout) -> Instance:
    """The same values in inputs of another layout: every second element of a wider tensor, or one
    element past an aligned address."""
    import torch

    def moved(tensor: torch.Tensor) -> torch.Tensor:
        if layout == "strided" and tensor.dim():
            wide = tensor.new_zeros((*tensor.shape[:-1], 2 * tensor.shape[-1]))
            view = wide[..., ::2]
        else:
            view = tensor.new_zeros(tensor.numel() + 1)[1:].view(tensor.shape)
        return view.copy_(tensor)

    inputs = tuple(moved(v) if isinstance(v, torch.Tensor) else v for v in instance.inputs)
    arguments = call_arguments(instance.model, inputs, instance.init)
    return replace(instance, inputs=inputs, arguments=arguments)


def storages_of(instance: Instance) -> list[torch.UntypedStorage]:
    """Every distinct storage a kernel may be given, as a plan numbers them."""
    return list(_storages(instance).values())


def _storages(instance: Instance) -> dict[int, torch.UntypedStorage]:
    """Every distinct storage a kernel may be given, by data pointer, in binding order."""
    import torch

    found: dict[int, torch.UntypedStorage] = {}
    for value in (*instance.arguments.values.values(), *instance.arguments.state.values()):
        if isinstance(value, torch.Tensor):
            storage = value.untyped_storage()
            found.setdefault(storage.data_ptr(), storage)
    return found
