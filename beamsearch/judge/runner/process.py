"""The runner's process, `python -m beamsearch.judge.runner.process FD [compiles]`: it answers the
judge's requests, on a socket by its file descriptor, until the judge hangs up."""

import socket
import sys
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from statistics import median
from typing import Any

import torch

from beamsearch.gpu.cores import cores
from beamsearch.gpu.driver import start_driver
from beamsearch.gpu.stopwatch import Stopwatch
from beamsearch.judge.runner.graphs import NoGraph, Run, captured
from beamsearch.judge.runner.kernel_times import kernel_times
from beamsearch.judge.runner.launching import Function, Loader
from beamsearch.judge.runner.program import PlanProgram, ReferenceProgram
from beamsearch.judge.runner.reference import COMPILES, BoundReference, reference_maker
from beamsearch.judge.sandbox.lifeline import end_with
from beamsearch.judge.sandbox.memory import (
    Answer,
    MappingWorker,
    Places,
    give_back,
    give_back_if_short,
)
from beamsearch.judge.sandbox.protocol import decode_arguments
from beamsearch.problem.kernel import CallArguments
from beamsearch.records.plan import Binary, Plan

SHARE_CALLS = 5
"""Timed calls of which the share of torch's operations is the medians'."""
_MOST_SCRATCH_ALIGN = 256
_END_S = 5.0
"""Seconds in which a process whose judge is gone ends by itself."""

Program = PlanProgram | ReferenceProgram


def serve(link: socket.socket) -> None:
    """Answer requests until the other end hangs up. After a CUDA error the process is of no use."""
    end_with(link.fileno(), _END_S)
    start_driver()  # it stands by, mostly
    Runner().serve(link)


@dataclass
class _Call:
    """A bound call, and its graph once there was a need for one."""

    source: str
    program: Program
    graph: Run | None = None
    no_graph: str = ""


class Runner(MappingWorker):
    """One process with a CUDA context, for any number of plans. Each verb is a request's `op`."""

    def __init__(self) -> None:
        super().__init__()
        self._plans: dict[str, tuple[Plan, list[Function]]] = {}
        self._references: dict[
            str, tuple[str | None, Callable[[CallArguments], BoundReference]]
        ] = {}
        """By name: the mode of torch.compile, and what binds it."""
        self._calls: dict[str, _Call] = {}
        self._last: tuple[Program, list[torch.Tensor]] | None = None

    def describe(self, error: BaseException) -> Answer:
        """Type and message: CudaError for what CUDA reports, OutOfMemoryError for memory."""
        message = str(error).strip()[:4000] or type(error).__name__
        kind = type(error).__name__
        if "out of memory" in message:
            kind = "OutOfMemoryError"
        elif "CUDA error" in message:
            kind = "CudaError"
        else:
            traceback.print_exception(error)  # a fault of ours, or of the driver's
        return {"type": kind, "message": message}

    def do_begin(self, l2_bytes: int) -> Answer:
        """Get ready to load and time plans, on the GPU that was taken."""
        self._watch = Stopwatch(l2_bytes)
        self._loader = Loader()
        return {}

    def do_plan(self, name: str, plan: dict[str, Any], binaries: list[dict[str, Any]]) -> Answer:
        """Load a plan with its machine code, under a name."""
        read = Plan.model_validate(plan)
        compiled = [Binary.model_validate(binary) for binary in binaries]
        if len(compiled) != len(read.kernels):
            raise ValueError(f"{len(compiled)} binaries for {len(read.kernels)} kernels")
        for binary in compiled:
            if binary.profile_bytes:
                raise ValueError(f"{binary.name} is instrumented")
            if _MOST_SCRATCH_ALIGN % binary.scratch_align:
                raise ValueError(f"{binary.name} wants scratch aligned to {binary.scratch_align}")
        self.do_drop(name)
        functions: list[Function] = []
        self._plans[name] = read, functions  # what is loaded is known, should the next one fail
        for binary in compiled:
            functions.append(self._loader.load(binary))
        return {}

    def do_reference(self, name: str, problem: dict[str, Any], mode: str | None) -> Answer:
        """Have the problem's reference under a name; `mode` is torch.compile's. One that is there
        is kept with what it compiled: a runner knows one problem."""
        torch.set_num_threads(max(1, cores() // 2))
        if self._references.get(name, ("", None))[0] != mode:
            self.do_drop(name)
            self._references[name] = mode, reference_maker(problem, self.device, mode)
        return {}

    def do_bind(
        self, call: str, plan: str, arguments: dict[str, Any] | None, storages: Places
    ) -> Answer:
        """Bind a plan to its given storages, or a reference to its arguments on them."""
        given = [self.storage(place) for place in storages]
        self.do_drop(call)
        program: Program
        if plan in self._plans:
            program = PlanProgram(*self._plans[plan], given, self.device)
        elif plan in self._references and arguments is not None:
            decoded = decode_arguments(arguments, given, self.device)
            program = ReferenceProgram(self._references[plan][1](decoded))
        else:
            raise KeyError(f"no plan or reference {plan}")
        self._calls[call] = _Call(plan, program)
        return {}

    def do_call(self, call: str, outputs: Places, storages: Places, fresh: bool = True) -> Answer:
        """Call once, step by step; `fresh` makes kept buffers anew. Copies the results out."""
        program = self._bound(call).program
        program.refresh(fresh)
        results = program.enqueue()
        torch.cuda.synchronize()
        return self._collected(program, results, outputs, storages)

    def do_time(self, call: str, graph: bool) -> Answer:
        """Time one call, the L2 emptied before it. What it kept is left as the call before left it,
        or is new garbage where it was never filled: cleaning up is a part of a call. `host_ms` is
        the wall clock's, from before the beginning to the end of all work. The result is kept for
        `do_collect`."""
        made = self._bound(call)
        run = made.program.enqueue
        if graph:
            if not (made.graph or made.no_graph):
                try:
                    made.graph = captured(made.program.enqueue)
                except NoGraph as reason:
                    made.no_graph = str(reason)
            if not made.graph:
                return {"no_graph": made.no_graph}
            run = made.graph
        made.program.refresh(fresh=False, garbage=True)
        ms, host_ms, results = self._watch.time(run)
        self._last = (made.program, results)
        return {"ms": ms, "host_ms": host_ms, "graph": graph}

    def do_empty(self, count: int) -> Answer:
        """What the wall clock shows of so many timed calls of nothing, in milliseconds: flushes,
        and whatever else keeps the GPU busy."""
        return {"host_ms": [self._watch.time(list)[1] for _ in range(count)]}

    def do_collect(self, outputs: Places, storages: Places) -> Answer:
        """Copy the last timed call's results out."""
        if self._last is None:
            raise KeyError("no timed call's results are here")
        (program, results), self._last = self._last, None
        return self._collected(program, results, outputs, storages)

    def do_share(self, call: str) -> Answer:
        """What torch's own operations take of a plan's call, by themselves. Milliseconds."""
        made = self._bound(call)
        program = made.program
        if not isinstance(program, PlanProgram):
            raise KeyError(f"{call} is no plan")
        if not program.computes:
            return {"operations_ms": 0.0}
        part = program.enqueue_computing
        if not made.no_graph:
            with suppress(NoGraph):
                part = captured(part)
        times = []
        for _ in range(SHARE_CALLS):
            program.refresh(fresh=False, garbage=True)
            times.append(self._watch.time(part)[0])
        return {"operations_ms": median(times)}

    def do_kernels(self, call: str) -> Answer:
        """The GPU kernels of one call."""
        return {"kernels": kernel_times(self._bound(call).program.enqueue)}

    def _bound(self, call: str) -> _Call:
        """The call of this name; results of the last timed one are no longer wanted."""
        self._last = None
        if call not in self._calls:
            raise KeyError(f"no call {call}")
        return self._calls[call]

    def do_drop(self, name: str) -> Answer:
        """Forget a plan or a reference with the calls bound to it, or a bound call."""
        if not any(name in known for known in (self._plans, self._references, self._calls)):
            return {}
        torch.cuda.synchronize()
        self._last = None
        self._calls = {
            call: made for call, made in self._calls.items() if name not in (call, made.source)
        }
        self._references.pop(name, None)
        _, functions = self._plans.pop(name, (None, []))
        for function in functions:
            self._loader.release(function)
        give_back(self.device)  # for the judge and its oracle
        return {}

    def _collected(
        self, program: Program, results: Sequence[Any], outputs: Places, storages: Places
    ) -> Answer:
        """What was damaged is looked for before the results are copied out. Where memory is short,
        what torch has in its cache goes back to the judge and its oracle."""
        guards = program.broken_guards()
        answer = self._hand_over(results, outputs, storages) | {"guards": guards}
        give_back_if_short(self.device)
        return answer


def get_ready_to_compile() -> None:
    """Do what torch.compile does once, and needs no GPU: its imports, its first trace, and the sums
    over its own and Triton's files that are part of its cache's keys. A second of its first call,
    for which the lane is held. They are its internals: one that is gone costs that time again."""
    import torch._inductor.compile_fx

    with suppress(Exception):
        torch.compile(torch.neg, backend="aot_eager")(torch.zeros(1))
    for module, name in (("codecache", "torch_key"), ("runtime.triton_compat", "triton_key")):
        with suppress(Exception):
            getattr(import_module(f"torch._inductor.{module}"), name)()


if __name__ == "__main__":
    if sys.argv[2:] == [COMPILES]:
        get_ready_to_compile()
    serve(socket.socket(fileno=int(sys.argv[1])))
