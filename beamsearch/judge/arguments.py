"""The arguments of a call: their seeds and distributions, and how other processes get them."""

import hashlib
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal

import torch

from beamsearch.errors import ProblemError
from beamsearch.judge.sandbox.memory import GUARD_BYTES, Buffer
from beamsearch.judge.sandbox.protocol import encode_arguments
from beamsearch.problem.input_values import DISTRIBUTIONS, Distribution
from beamsearch.problem.instance import Instance, call_arguments, instantiate
from beamsearch.problem.problem import Problem

Layout = Literal["strided", "misaligned"]
ALWAYS_DRAWN = 3
"""Sets at the true shapes that every kernel meets: its own inputs, normal ones, and those with
outliers, for nothing else shows statistics of a sample where samples are large. (Timed calls are on
its own inputs too, several times over.)"""


def derive_seed(seed: int, problem: Problem, label: str) -> int:
    """The seed of an input set: from the run's, the problem's name, dtype and sizes.

    63 bits, so that it is found by no search over the values that a candidate gets to see.
    """
    sizes = sorted(problem.sizes.items())
    text = f"{seed}/{problem.name}/{problem.dtype}/{sizes}/{label}"
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8]) >> 1


def order_for(key: str, seed: int) -> tuple[Distribution, ...]:
    """In which order one kernel meets the distributions: those that are always drawn, then the
    others, shuffled by the kernel's key and the judge's seed.

    A judgement then costs a few sets, no kernel is made for the few, and the kernels of a run meet
    them all; a thorough judgement draws as many as there are.
    """
    drawn, others = DISTRIBUTIONS[:ALWAYS_DRAWN], DISTRIBUTIONS[ALWAYS_DRAWN:]
    place = {name: hashlib.sha256(f"{seed}/{key}/{name}".encode()).digest() for name in others}
    return (*drawn, *sorted(others, key=place.__getitem__))


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

    def moved(tensor: torch.Tensor) -> torch.Tensor:
        if layout == "strided" and tensor.dim():
            wide = tensor.new_zeros((*tensor.shape[:-1], 2 * tensor.shape[-1]))
            view = wide[..., ::2]
        else:
            view = tensor.new_zeros(tensor.numel() + 1)[1:].view(tensor.shape)
        return view.copy_(tensor)

    inputs = tuple(moved(v) if isinstance(v, torch.Tensor) else v for v in instance.inputs)
    arguments = call_arguments(instance.model, inputs, instance.init, instance.gradients)
    return replace(instance, inputs=inputs, arguments=arguments)


def storages_of(instance: Instance) -> dict[int, torch.UntypedStorage]:
    """Every distinct storage a kernel may be given, by data pointer, in the order in which a plan
    numbers them."""
    found: dict[int, torch.UntypedStorage] = {}
    for value in (*instance.arguments.values.values(), *instance.arguments.state.values()):
        if isinstance(value, torch.Tensor):
            storage = value.untyped_storage()
            found.setdefault(storage.data_ptr(), storage)
    return found


def encoded(instance: Instance, name: str) -> dict[str, Any]:
    """The arguments of a call as JSON, each storage by its number. Raises ProblemError, which names
    the problem so, for what cannot be handed to a kernel."""
    numbers = {pointer: number for number, pointer in enumerate(storages_of(instance))}
    try:
        return encode_arguments(
            instance.arguments,
            lambda tensor: numbers[tensor.untyped_storage().data_ptr()],
            GUARD_BYTES,
        )
    except TypeError as error:
        raise ProblemError(f"{name}: {error}") from error


def fill_all(buffers: Sequence[Buffer], instance: Instance) -> None:
    """Copy an instance's values into shared memory, where another process can see them."""
    for buffer, storage in zip(buffers, storages_of(instance).values(), strict=True):
        fill(buffer, storage)
    settle(buffers)


def fill(buffer: Buffer, source: torch.UntypedStorage) -> None:
    """Copy a storage's bytes in behind the guard; every byte around them has all bits set."""
    size = source.nbytes()
    flat = torch.empty(0, dtype=torch.uint8, device=source.device).set_(source, 0, (size,), (1,))
    place = buffer.view(torch.uint8, (buffer.size,))
    place[:GUARD_BYTES] = 255
    place[GUARD_BYTES : GUARD_BYTES + size].copy_(flat)
    place[GUARD_BYTES + size :] = 255


def poison_all(buffers: Sequence[Buffer]) -> None:
    """Make every result that is not written show."""
    for buffer in buffers:
        buffer.poison()
    settle(buffers)


def settle(buffers: Sequence[Buffer]) -> None:
    """Wait until what was written here can be seen by another process."""
    for device in {buffer.storage.device for buffer in buffers}:
        if device.type == "cuda":
            torch.cuda.synchronize(device)
