"""The launches of a call compiled for a GPU that is not here, in this process.

For studies and tests, of kernels one trusts: the judge compiles candidates in processes of its own.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from kernel_profiling.compiler.fake_device import TargetDriver, target_device
from kernel_profiling.compiler.launches import CompiledLaunch, machine_code, profile_of
from kernel_profiling.gpus import Gpu
from kernel_profiling.profile import Profile


def compiled(call: Callable[[], object], gpu: Gpu) -> Profile:
    """Run a bound call on `meta` tensors; every Triton launch is compiled for `gpu`, none is run.

    Autotuned kernels and work in torch operations are not seen. Raises CompileFailed for a launch
    that `gpu` would refuse, and what Triton raises.
    """
    from triton.runtime import driver
    from triton.runtime.jit import JITFunction

    launches: list[CompiledLaunch] = []
    run, active = JITFunction.run, driver._active

    def compile_only(self: Any, *args: Any, grid: Any, warmup: bool, **kwargs: Any) -> Any:
        kernel = run(self, *args, grid=grid, warmup=True, **kwargs)
        named = {name: value for name, value in kwargs.items() if name in self.arg_names}
        bound = inspect.signature(self.fn).bind_partial(*args, **named).arguments
        asked = [int(n) for n in (grid(bound) if callable(grid) else grid)]
        x, y, z, *_ = (*asked, 1, 1)
        code = machine_code(kernel.metadata, kernel.asm, inspect.getsourcefile(self.fn) or "")
        launches.append(CompiledLaunch(code, (x, y, z), ()))
        return kernel

    JITFunction.run = compile_only
    driver.set_active(TargetDriver(gpu))
    try:
        with target_device(gpu):
            call()
    finally:
        JITFunction.run, driver._active = run, active
    return profile_of(launches, gpu, (), None)
