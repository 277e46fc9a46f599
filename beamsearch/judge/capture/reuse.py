"""What the judge has compiled and chosen, for a process that calls a kernel's own Python."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from beamsearch.judge.capture.compiling import options_of
from beamsearch.judge.capture.launches import pin
from beamsearch.judge.sandbox.harness import Harness
from beamsearch.judge.sandbox.mapped import Answer
from beamsearch.records.plan import Binary, Kernel


class Caller(Harness):
    """A process with a GPU, in which a kernel's own Python is called as users will call it."""

    def do_reuse(
        self,
        kernels: list[dict[str, Any]],
        binaries: list[dict[str, Any]],
        pins: dict[str, str],
    ) -> Answer:
        """Compile none of these again, and choose what was chosen: the GPU would wait for it.

        `pins`: function -> the configuration that its autotuner chooses.
        """
        read = map(Kernel.model_validate, kernels), map(Binary.model_validate, binaries)
        install(list(zip(*read, strict=True)))
        pin(pins, {})
        return {}


def install(finished: Sequence[tuple[Kernel, Binary]]) -> None:
    """Have Triton take a binary where it is about to compile the kernel that it was made from, for
    good. Whatever else it meets it compiles."""
    from triton.backends.nvidia.compiler import CUDABackend

    backend: Any = CUDABackend
    all_stages = backend.add_stages

    def add_stages(self: Any, stages: Any, options: Any, language: Any) -> None:
        all_stages(self, stages, options, language)
        if "ttir" not in stages:
            return
        first, *later = stages.items()

        def finish(module: Any, metadata: dict[str, Any]) -> Any:
            for kernel, binary in finished:
                asked = self.parse_options(options_of(kernel, self.target))
                if kernel.ttir == str(module) and asked == options:
                    metadata |= binary.metadata
                    return binary.cubin
            for _, stage in later:
                module = stage(module, metadata)
            return module

        stages.clear()
        stages |= {first[0]: first[1], "cubin": finish}

    backend.add_stages = add_stages
