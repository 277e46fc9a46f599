"""What is seen of a reference while it runs: products that are in TF32, random draws."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from beamsearch.problem.draws import line_in

LOST_BITS = (1 << 13) - 1
"""Of float32's 23 bits behind the point, those that TF32 has not."""


RECURRENT = ("aten::lstm.input", "aten::gru.input", "aten::rnn_tanh.input", "aten::rnn_relu.input")
"""Whole layers, of as many steps as their input has."""


class QuickMode(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """A dispatch mode that does not import torch's compiler first, which takes over a second."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False


def skip_dynamo() -> None:
    """The same for the modes of torch's own modules that are imported from now on."""
    setattr(TorchDispatchMode, "_should_skip_dynamo", classmethod(lambda cls: False))  # noqa: B010


class Draws(QuickMode):
    """Sees the first operation that draws from torch's generators, by torch's own tag for those.

    On `meta` alone: elsewhere attention has kernels that are tagged though they draw nothing.
    """

    def __init__(self, file: str = "") -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.seen = ""
        """Name of the first operation that drew, and the line of `file` that it was in."""
        self._file = file

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Any = None
    ) -> Any:
        """Do the operation; note its name where it draws at random."""
        kwargs = kwargs or {}
        if torch.Tag.nondeterministic_seeded in func.tags:
            with self:  # dropout arrives whole in inference mode, and may have nothing to drop
                taken_apart = func.decompose(*args, **kwargs)
            if taken_apart is not NotImplemented:
                return taken_apart
            line = line_in(self._file)
            self.seen = self.seen or (f"line {line}: {func}" if line else str(func))
        return func(*args, **kwargs)


class ShapesOfRecurrence(QuickMode):  # type: ignore[no-untyped-call]
    """Recurrent layers give tensors of the right shapes, and are not run step by step. In inference
    mode on `meta`, where they arrive whole."""

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Any = None
    ) -> Any:
        """Do the operation, or tell a recurrent layer's shapes."""
        if func.name() not in RECURRENT:
            return func(*args, **(kwargs or {}))
        x, state, *_, bidirectional, _ = args
        states = list(state) if isinstance(state, list | tuple) else [state]
        output = x.new_empty((*x.shape[:-1], states[0].shape[-1] * (1 + bidirectional)))
        return output, *(torch.empty_like(item) for item in states)


class Tf32(QuickMode):
    """Sees whether an operation is one that PyTorch's defaults compute in TF32 on a GPU.

    With `cut`, such an operation gets its operands as the TF32 units read them, on any device. Told
    by the operation alone, so that it is the same where there is no GPU, or a library chooses
    otherwise for some shapes.
    """

    def __init__(self, *, cut: bool = False) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.cut = cut
        self.seen = False

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Any = None
    ) -> Any:
        """Do the operation; see whether it is one of those, and cut its operands where asked."""
        if func is torch.ops.aten.convolution.default and _in_tf32(args):
            self.seen = True
            if self.cut:
                args = (cut(args[0]), cut(args[1]), *args[2:])
        elif "conv" in func.name():  # conv2d and its like arrive whole in inference mode
            with self:
                taken_apart = func.decompose(*args, **(kwargs or {}))
            if taken_apart is not NotImplemented:
                return taken_apart
        return func(*args, **(kwargs or {}))


def _in_tf32(arguments: Sequence[Any]) -> bool:
    """Depthwise convolutions of float32 have kernels of their own, which use no matrix units."""
    x, weight, *_, transposed, _, groups = arguments
    depthwise = not transposed and groups > 1 and groups == x.shape[1]
    return x.dtype == weight.dtype == torch.float32 and not depthwise


def cut(x: torch.Tensor) -> torch.Tensor:
    """float32 values as the TF32 units of an NVIDIA GPU read them: what does not fit is cut off.

    Libraries may round before, which errs by less; Triton's `tl.dot` does not on every GPU.
    """
    return (x.view(torch.int32) & ~LOST_BITS).view(torch.float32)
