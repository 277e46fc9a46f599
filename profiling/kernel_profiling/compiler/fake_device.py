"""What a host function may ask of a GPU that is not here, answered with a target's figures."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from types import SimpleNamespace
from typing import Any

from kernel_profiling.compiler.occupancy import max_shared_bytes
from kernel_profiling.gpus import Gpu


@contextmanager
def patched(owner: Any, members: Mapping[str, Any]) -> Iterator[None]:
    """These members in place of the owner's own, within."""
    before = {name: getattr(owner, name) for name in members}
    try:
        for name, member in members.items():
            setattr(owner, name, member)
        yield
    finally:
        for name, member in before.items():
            setattr(owner, name, member)


def target_device(gpu: Gpu) -> AbstractContextManager[None]:
    """`torch.cuda` gives the target's properties and waits for nothing; nothing can be allocated.

    Kernels that size their grid by the number of SMs ask for these.
    """
    import torch

    return patched(torch.cuda, cuda_answers(gpu))


def cuda_answers(gpu: Gpu) -> dict[str, Any]:
    """Members of `torch.cuda`, as they answer where this GPU is all there is."""
    import torch

    device = torch.device("cuda", 0)
    stream = SimpleNamespace(cuda_stream=0, device=device, synchronize=lambda: None)
    return {
        "_lazy_init": lambda: None,
        "init": lambda: None,
        "is_available": lambda: True,
        "is_initialized": lambda: True,
        "is_bf16_supported": lambda *_, **__: True,
        "device_count": lambda: 1,
        "current_device": lambda: 0,
        "set_device": lambda *_: None,
        "synchronize": lambda *_, **__: None,
        "empty_cache": lambda: None,
        "get_device_properties": lambda *_: _properties(gpu),
        "get_device_capability": lambda *_: divmod(gpu.capability, 10),
        "get_device_name": lambda *_: _properties(gpu).name,
        "mem_get_info": lambda *_: (gpu.memory_bytes, gpu.memory_bytes),
        "current_stream": lambda *_: stream,
        "default_stream": lambda *_: stream,
        "device": AnyDevice,
        "device_of": AnyDevice,
    }


class AnyDevice:
    """Stands in for `torch.cuda.device`: there is only one."""

    def __init__(self, device: object = None) -> None:
        self.idx = 0

    def __enter__(self) -> None:
        """Change nothing: there is only one device."""

    def __exit__(self, *_: object) -> None:
        """Change nothing back."""


def _properties(gpu: Gpu) -> SimpleNamespace:
    """As `torch.cuda.get_device_properties` gives them."""
    major, minor = divmod(gpu.capability, 10)
    return SimpleNamespace(
        name=gpu.device_names[0] if gpu.device_names else gpu.name,
        major=major,
        minor=minor,
        multi_processor_count=gpu.sms,
        total_memory=gpu.memory_bytes,
        L2_cache_size=gpu.l2_bytes,
        shared_memory_per_multiprocessor=gpu.shared_bytes_per_sm,
        shared_memory_per_block_optin=max_shared_bytes(gpu),
        shared_memory_per_block=48 * 1024,
        regs_per_multiprocessor=gpu.registers_per_sm,
        max_threads_per_multi_processor=gpu.max_warps_per_sm * 32,
        warp_size=32,
    )


class TargetDriver:
    """Stands in for Triton's driver: names the target, has no device."""

    def __init__(self, gpu: Gpu) -> None:
        self._gpu = gpu
        self.utils = SimpleNamespace(get_device_properties=self._properties)

    def _properties(self, device: object = 0) -> dict[str, int]:
        """As Triton's own driver gives them."""
        return {
            "max_shared_mem": max_shared_bytes(self._gpu),
            "max_num_regs": self._gpu.registers_per_sm,
            "multiprocessor_count": self._gpu.sms,
            "warpSize": 32,
            "sm_clock_rate": self._gpu.boost_clock_mhz * 1000,
        }

    def get_current_target(self) -> Any:
        """What Triton compiles for."""
        from triton.backends.compiler import GPUTarget

        return GPUTarget("cuda", self._gpu.capability, 32)

    def get_current_device(self) -> str:
        """A key of its own, so that kernels cached for a real device stay apart."""
        return f"compile-only-{self._gpu.capability}"

    def get_current_stream(self, device: object = None) -> int:
        """The default one: nothing is ever launched on it."""
        return 0

    def set_current_device(self, device: object) -> None:
        """Change nothing: there is only one."""

    def get_active_torch_device(self) -> Any:
        """The device of tensors without memory."""
        import torch

        return torch.device("meta")

    def get_device_interface(self) -> Any:
        """What helpers that allocate ask for events and streams."""
        import torch

        return torch.cuda
