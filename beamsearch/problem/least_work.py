"""The least bytes and FLOPs that a problem takes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any

from beamsearch.errors import ProblemError
from beamsearch.problem.instance import instantiate
from beamsearch.problem.outputs import outputs_of
from beamsearch.problem.problem import Problem
from kernel_profiling.errors import one_line


@dataclass(frozen=True)
class LeastWork:
    """Bytes every input, parameter and output take once, and the reference's FLOPs, without those
    of products that a mask makes useless."""

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


def _attention_flops(
    q: Sequence[int],
    k: Sequence[int],
    v: Sequence[int],
    mask: object = None,
    dropout: float = 0.0,
    is_causal: bool = False,
    **_: object,
) -> int:
    """Two products of each query with each key that it may see: of causal ones half, which torch's
    own formula counts in full. Arguments are shapes (…, length, features)."""
    queries, keys = q[-2], k[-2]
    pairs = queries * keys
    if is_causal:  # query i sees the keys up to i
        short = min(queries, keys)
        pairs = short * (short + 1) // 2 + (queries - short) * keys
    return 2 * prod(q[:-2]) * pairs * (q[-1] + v[-1])


class _NoModules:
    """Stands for what counts by module: its hooks cannot be in a graph whose gradients are taken by
    `torch.autograd.grad`."""

    parents = frozenset({"Global"})

    def __enter__(self) -> None:
        """Track nothing."""

    def __exit__(self, *_: object) -> None:
        """End nothing."""


def least_work(problem: Problem) -> LeastWork:
    """Least bytes and FLOPs at the problem's shapes, on `meta` tensors: no memory, no GPU.

    It also says what kernels may compute products in (`LeastWork.products`): judge, floor and
    prompts all go by that. Raises ProblemError where the reference draws random numbers, reads
    values, where it writes into an input, and where it returns something other than tensors.
    """
    import torch

    from beamsearch.problem.dispatch_modes import Draws, Tf32, skip_dynamo
    from beamsearch.problem.masked_products import masked_flops

    skip_dynamo()  # ahead of the counter's own modes
    from torch.utils.flop_counter import FlopCounterMode

    instance = instantiate(problem, "meta")
    named = zip(instance.arguments.forward, instance.inputs, strict=True)
    inputs = {name: value for name, value in named if isinstance(value, torch.Tensor)}
    versions = {name: value._version for name, value in inputs.items()}
    attention = torch.ops.aten.scaled_dot_product_attention
    # The one is counted by, the other is not taken apart.
    formulas: dict[Any, Any] = dict.fromkeys((attention, attention.default), _attention_flops)
    counter: Any = FlopCounterMode(display=False, custom_mapping=formulas)
    counter.mod_tracker = _NoModules()
    # The counter is first to see what comes whole.
    with Tf32() as by_default, Draws(str(problem.path)) as draws, counter:
        try:
            output = instance.reference()
        except (RuntimeError, NotImplementedError) as error:
            raise ProblemError(
                f"{problem.name} does not run on shapes alone, by which its work is counted: "
                f"{one_line(str(error))}; let forward read no values on the host"
            ) from error
    if draws.seen:
        raise ProblemError(
            f"{problem.name} draws random numbers in forward ({draws.seen}) that cannot be made "
            "inputs: draw them in get_inputs, or end __init__ with `self.eval()`"
        )
    in_tf32 = by_default.seen and problem.dtype == "float32" and problem.precision == "reference"
    read = {name: t.nbytes for name, t in (inputs | dict(instance.arguments.state)).items()}
    try:
        outputs = outputs_of(output)
    except ProblemError as error:
        raise ProblemError(f"{problem.name}: {error}") from error
    if changed := [name for name, t in inputs.items() if t._version != versions[name]]:
        raise ProblemError(
            f"{problem.name} writes into its input {changed[0]}, so that its next call would be "
            f"another one; let forward work on {changed[0]}.clone(), or without `inplace`"
        )
    return LeastWork(
        bytes_read=sum(read.values()),
        bytes_written=sum(t.nbytes for t in outputs),
        flops=int(counter.get_total_flops()) - masked_flops(problem),
        input_shapes={name: tuple(t.shape) for name, t in inputs.items()},
        output_shape=tuple(outputs[0].shape),
        read=read,
        products="tf32" if in_tf32 else problem.dtype,
    )
