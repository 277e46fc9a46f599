"""What runs in the processes that capture a candidate, compile its plans, or call its own Python.

The first has no GPU, no inputs, nothing worth stealing: it imports the kernel, binds it to
stand-ins by the one binding, calls it, and answers with the plan of what it did. The answer is the
candidate's word and nothing more: a plan is checked, compiled and run elsewhere.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from beamsearch.judge.capture.compiling import options_of
from beamsearch.judge.capture.launches import install, install_torch, pin
from beamsearch.judge.capture.plans import plan_of
from beamsearch.judge.capture.recorder import HostTensors, Recorder
from beamsearch.judge.capture.standin import StandIn
from beamsearch.judge.sandbox.harness import Harness, KernelWorker, load_kernel
from beamsearch.judge.sandbox.memory import Answer
from beamsearch.judge.sandbox.protocol import decode_with, open_tensor
from beamsearch.problem.kernel import CallArguments, bind, bound_by_position
from beamsearch.records.plan import Binary, Kernel, Plan
from kernel_profiling.gpus import Gpu


class Compiler(KernelWorker):
    """A process of ours that compiles plans, and holds no candidate."""

    def do_compile(self, plan: dict[str, Any], gpu: dict[str, Any], brief: bool) -> dict[str, Any]:
        """A plan's machine code and its profile, as `compile_plan` gives them."""
        from beamsearch.judge.capture.compiling import compile_plan

        read = Plan.model_validate(plan), Gpu.model_validate(gpu)
        compiled = compile_plan(*read, brief=brief)
        return compiled.model_dump(mode="json")


class Capturer(KernelWorker):
    """A process with candidates: one kernel, or forms of one."""

    def __init__(self) -> None:
        self._module: Any = None
        self._recorder = Recorder()
        self._pins: dict[str, str] = {}
        self._configs: dict[str, list[str]] = {}
        self._capability = 0

    def do_load(self, source: str, gpu: dict[str, Any]) -> dict[str, Any]:
        """Import a kernel file, for a GPU: the same one for each file."""
        target = Gpu.model_validate(gpu)
        self.source = source
        if not self._capability:
            self._capability = target.capability
            torch.set_num_threads(1)
            install_torch(self._recorder, target)
            install(self._recorder, target)
            pin(self._pins, self._configs)
        self._recorder.restart(source)
        self._configs.clear()
        with HostTensors(), self._recorder:
            self._module = load_kernel(source)
        return {}

    def do_capture(self, arguments: dict[str, Any], pins: dict[str, str]) -> dict[str, Any]:
        """One call: its plan, the configurations of every autotuner met so far, and which of the
        kernel's parameters were bound by position.

        `pins`: function -> the configuration to choose. `arguments` as `encode_arguments` gives
        them for `meta` tensors.
        """
        self._pins.clear()
        self._pins.update(pins)
        recorder = self._recorder
        recorder.begin()
        given = self._arguments(arguments)
        with torch.no_grad(), HostTensors(), recorder:
            result = bind(self._module, given)()
        plan = plan_of(recorder, result, self._capability)
        return {
            "plan": plan.model_dump(mode="json"),
            "configs": self._configs,
            "by_position": bound_by_position(self._module, given),
        }

    def _arguments(self, message: dict[str, Any]) -> CallArguments:
        """The call's arguments as stand-ins at new addresses."""
        storages: dict[int, torch.UntypedStorage] = {}

        def stand_in(place: Mapping[str, Any]) -> StandIn:
            number = place["storage"]
            if number not in storages:
                whole = torch.empty(place["bytes"], dtype=torch.uint8, device="meta")
                storages[number] = whole.untyped_storage()
                self._recorder.wrap(whole, role="given", given=number)
            return self._recorder.wrap(open_tensor(place, storages, "meta"))

        given = decode_with(message, stand_in)
        for weight in given.state.values():
            weight.memory.weight = True
        return given


class Caller(Harness):
    """A process with a GPU, in which a kernel's own Python is called as users will call it."""

    def do_open(self, device: int) -> Answer:
        """Take a GPU, and have Triton start its driver: it compiles a library of its own for every
        folder of candidates, and nobody should have the lane meanwhile."""
        from triton.runtime import driver

        answer = super().do_open(device)
        _ = driver.active.utils
        return answer

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
        reuse(list(zip(*read, strict=True)))
        pin(pins, {})
        return {}


def reuse(finished: Sequence[tuple[Kernel, Binary]]) -> None:
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
