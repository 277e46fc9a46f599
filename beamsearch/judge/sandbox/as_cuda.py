"""Tensors of the host that say they are on a GPU, for host code that asks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

DEVICE = torch.device("cuda", 0)
_get: Callable[[str], Any] = lambda name: vars(torch._C.TensorBase)[name].__get__  # noqa: E731
ANSWERS = {_get("device"): DEVICE, _get("is_cuda"): True, _get("is_cpu"): False}
"""What a tensor says of where it is."""


class AsCuda(TorchFunctionMode):
    """Has every tensor say that it is on the GPU, and makes on `host` what is asked for there."""

    def __init__(self, host: str) -> None:
        super().__init__()
        self._host = torch.device(host)

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Answer, or do what is asked on the host."""
        if func in ANSWERS:
            return ANSWERS[func]
        if func is torch.Tensor.cuda:
            return args[0]
        if func is torch.Tensor.get_device:
            return DEVICE.index
        given = {name: self._here(value) for name, value in (kwargs or {}).items()}
        if func is torch.Tensor.to:
            args = tuple(map(self._here, args))
        return func(*args, **given)

    def _here(self, value: Any) -> Any:
        """A device, which is the host where it is the GPU; anything else as it is."""
        if isinstance(value, str) and value.partition(":")[0] == "cuda":
            return self._host
        is_gpu = isinstance(value, torch.device) and value.type == "cuda"
        return self._host if is_gpu else value
