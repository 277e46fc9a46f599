"""Compile a problem's reference for the GPU, and say what came of it.

`python -m beamsearch.baselines.inductor.capture WAY DEVICE` reads the problem as JSON
(`problem_message`) from standard input and writes a `Compilation` as one line of JSON. A process of
its own: compiling takes memory, threads and settings of torch that the judge's processes must not
inherit. No candidate's code runs here.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from beamsearch.baselines.process import answer_of
from beamsearch.errors import BeamsearchError
from beamsearch.judge.runner.client import baseline_caches
from beamsearch.judge.runner.reference import problem_message, read_problem_message
from beamsearch.problem.instance import instantiate
from beamsearch.problem.precision import set_products
from beamsearch.problem.problem import Problem
from beamsearch.records.captured import Captured, Compilation, LaunchConfig, TensorArgument
from kernel_profiling.errors import one_line

WAYS = ("default", "max_autotune", "triton_only")
"""The compiler's own choice; tuned; tuned, with Triton's products and convolutions alone and what
has no convolution in Triton taken apart (`decompose`). The last is for what the first two leave to
a library: it may be slower, and leaves a kernel to start from."""
UNWANTED = (
    *("combo_kernels", "graph_partition", "cpp_wrapper", "memory_planning"),
    *("size_asserts", "alignment_asserts", "nan_asserts"),
)
"""Options without which the generated call is a plain sequence of allocations and launches."""
COMPILE_S = 600.0
"""Seconds one way of compiling may take; tuning convolution templates took 72 s on an H200."""


class NothingToCapture(Exception):
    """The compiler gave no code to take; the message says why."""


def compile_reference(problem: Problem, way: str, device: int, gpu_uuid: str) -> Compilation:
    """Compile the reference on a GPU in a process of its own, in one of `WAYS`.

    Whatever goes wrong there is the compilation's reason. Takes the GPU's lane: tuning is timing.
    """
    try:
        return answer_of(
            ["beamsearch.baselines.inductor.capture", way, f"cuda:{device}"],
            Compilation,
            COMPILE_S,
            gpu_uuid,
            question=json.dumps(problem_message(problem)),
            environment=baseline_caches(),
        )
    except BeamsearchError as error:
        return Compilation(way=way, reason=str(error))


def options(way: str) -> dict[str, Any]:
    """Options of the compiler for one of `WAYS`, those that this torch knows."""
    from torch._inductor import config, list_mode_options

    found: dict[str, Any] = dict.fromkeys(UNWANTED, False)
    if way != "default":
        found |= list_mode_options("max-autotune-no-cudagraphs")
    if way == "triton_only":
        found |= {"max_autotune_gemm_backends": "TRITON", "max_autotune_conv_backends": "TRITON"}
    known = config.get_config_copy()
    return {key.replace("-", "_"): v for key, v in found.items() if key.replace("-", "_") in known}


def capture(problem: Problem, way: str, device: str) -> Captured:
    """Compile and run the reference on a device. Raises NothingToCapture."""
    import torch
    from torch._inductor.codecache import PyCodeCache
    from torch._inductor.compile_fx import compile_fx

    from beamsearch.baselines.inductor.decompose import decompositions

    table = decompositions() if way == "triton_only" else None
    instance = instantiate(problem, device)
    set_products(problem.precision)
    calls: list[list[Any]] = []

    def backend(graph: Any, inputs: Any) -> Callable[..., Any]:
        compiled: Any = compile_fx(graph, inputs, config_patches=options(way), decompositions=table)
        calls.append([])

        def run(*arguments: Any) -> Any:
            calls[-1][:] = arguments
            return compiled(*arguments)

        return run

    before = len(PyCodeCache.modules)
    with torch.inference_mode():
        model: Any = torch.compile(instance.model, backend=backend, dynamic=False)
        for _ in range(3):  # the first compiles, and the first or second tunes
            model(*instance.inputs)
        torch.cuda.synchronize()
    if len(calls) != 1:
        raise NothingToCapture(
            f"the reference compiles to {len(calls)} graphs, with Python between them"
        )
    # The module of a compiled graph, not of a single kernel.
    modules = [
        m
        for m in PyCodeCache.modules[before:]
        if hasattr(m, "call") and hasattr(m, "reinterpret_tensor")
    ]
    if not modules:
        raise NothingToCapture("the compiler left no module of its output")
    module = modules[-1]
    assert module.__file__ is not None
    return Captured(
        way=way,
        torch=torch.__version__,
        code=Path(module.__file__).read_text(),
        arguments=[_argument(value, instance.arguments.values) for value in calls[0]],
        kernels={
            name: _launch_config(value)
            for name, value in vars(module).items()
            if getattr(value, "launchers", None)
        },
    )


def _argument(value: Any, values: Mapping[str, Any]) -> TensorArgument:
    """The tensor under the name that a kernel asks for it by. Raises NothingToCapture."""
    import torch

    for name, own in values.items():
        if not (isinstance(own, torch.Tensor) and isinstance(value, torch.Tensor)):
            continue
        forms = [(x.data_ptr(), x.shape, x.stride(), x.dtype) for x in (own, value)]
        if forms[0] == forms[1]:
            return TensorArgument(
                name=name,
                shape=tuple(value.shape),
                stride=value.stride(),
                dtype=str(value.dtype).removeprefix("torch."),
            )
    raise NothingToCapture(
        f"the compiled code takes {type(value).__name__}, which is neither input nor parameter"
    )


def _launch_config(kernel: Any) -> LaunchConfig:
    """The one configuration that is left when tuning is over."""
    (launcher,) = kernel.launchers
    config = launcher.config
    return LaunchConfig(
        kwargs={name: value for name, value in config.kwargs.items() if isinstance(value, int)},
        num_warps=config.num_warps,
        num_stages=config.num_stages,
        maxnreg=getattr(config, "maxnreg", None),
    )


def main(way: str, device: str) -> None:
    """Answer on standard output, with everything that libraries print on standard error."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    importlib.import_module(
        "torch._inductor.compile_fx"
    )  # ahead of the problem, which brings the GPU
    problem = read_problem_message(json.load(sys.stdin))
    try:
        answer = Compilation(way=way, captured=capture(problem, way, device))
    except NothingToCapture as error:
        answer = Compilation(way=way, reason=str(error))
    except Exception as error:  # noqa: BLE001 - the compiler's failure is the answer
        answer = Compilation(way=way, reason=one_line(f"{type(error).__name__}: {error}"))
    answers.write(answer.model_dump_json() + "\n")
    answers.close()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
