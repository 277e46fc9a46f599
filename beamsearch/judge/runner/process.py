"""The runner's process: it answers the judge's requests until the judge hangs up."""

from __future__ import annotations

import ctypes
import os
import select
import signal
import socket
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from statistics import median
from typing import Any

import torch

from beamsearch.gpu.driver import LIBRARY, bound
from beamsearch.gpu.stopwatch import QUEUED, Stopwatch
from beamsearch.judge.runner.graphs import Graph, NoGraph
from beamsearch.judge.runner.launching import Function, Loader
from beamsearch.judge.runner.program import PlanProgram, Program, ReferenceProgram
from beamsearch.judge.runner.reference import reference_maker
from beamsearch.judge.sandbox import serving
from beamsearch.judge.sandbox.mapped import MappedMemory
from beamsearch.judge.sandbox.protocol import decode_arguments
from beamsearch.problem.kernel import CallArguments
from beamsearch.records.plan import Binary, Plan

SHARE_CALLS = 5
"""Timed calls of which the share of torch's operations is the medians'."""
_PERSISTING_L2 = 0x06  # CU_LIMIT_PERSISTING_L2_CACHE_SIZE
_MOST_SCRATCH_ALIGN = 256
_END_S = 5.0
"""Seconds in which a process whose judge is gone ends by itself."""

Run = Callable[[], list[torch.Tensor]]


def serve(link: socket.socket) -> None:
    """Answer requests until the other end hangs up. After a CUDA error the process is of no use."""
    threading.Thread(target=_end_with, args=(link,), daemon=True).start()
    serving.serve(link, Runner(), describe_error)


def _end_with(link: socket.socket) -> None:
    """End the process once the judge is gone, though a kernel may never end for which it waits."""
    poll = select.poll()
    poll.register(link, select.POLLRDHUP)
    poll.poll()
    time.sleep(_END_S)
    os.kill(os.getpid(), signal.SIGKILL)


def describe_error(error: BaseException) -> dict[str, Any]:
    """An error's type and message: CudaError for what CUDA reports, OutOfMemoryError for memory."""
    traceback.print_exception(error)
    message = str(error).strip()[:4000] or type(error).__name__
    kind = type(error).__name__
    if "out of memory" in message:
        kind = "OutOfMemoryError"
    elif "CUDA error" in message:
        kind = "CudaError"
    return {"type": kind, "message": message}


@dataclass
class _Bound:
    """A bound call, and its graph once there was a need for one."""

    source: str
    program: Program
    graph: Graph | None = None
    no_graph: str = ""


@dataclass
class _Loaded:
    plan: Plan
    functions: list[Function] = field(default_factory=list)


class Runner:
    """One process with a CUDA context, for any number of plans. Each verb is a request's `op`."""

    def __init__(self) -> None:
        self.descriptors: list[int] = []
        """What came along with the request at hand."""
        self._device = ""
        self._memory = MappedMemory()
        self._plans: dict[str, _Loaded] = {}
        self._references: dict[str, Callable[[CallArguments], Callable[[], Any]]] = {}
        self._calls: dict[str, _Bound] = {}
        self._last: tuple[Program, list[torch.Tensor]] | None = None
        torch.set_num_threads(1)

    def do_open(self, device: int, l2_bytes: int) -> dict[str, Any]:
        """Take a GPU; no line of its L2 outlives its turn."""
        self._device = f"cuda:{device}"
        torch.cuda.set_device(device)
        torch.zeros(1, device=self._device)  # the context
        self._watch = Stopwatch(l2_bytes)
        self._loader = Loader()
        library = ctypes.CDLL(LIBRARY)
        bound(library, "cuCtxSetLimit", ctypes.c_int, ctypes.c_size_t)(_PERSISTING_L2, 0)
        self._reset_l2 = bound(library, "cuCtxResetPersistingL2Cache")
        self._reset_l2()
        self._watch.wait()
        return {}

    def do_map(self, places: list[dict[str, Any]]) -> dict[str, Any]:
        """Map memory whose descriptors came along."""
        self._memory.map(places, self.descriptors, self._device)
        return {}

    def do_plan(
        self, name: str, plan: dict[str, Any], binaries: list[dict[str, Any]]
    ) -> dict[str, Any]:
        """Load a plan with its machine code, under a name."""
        loaded = _Loaded(Plan.model_validate(plan))
        compiled = [Binary.model_validate(binary) for binary in binaries]
        _check_binaries(loaded.plan, compiled)
        self._forget(name)
        self._plans[name] = loaded
        for binary in compiled:
            loaded.functions.append(self._loader.load(binary))
        return {}

    def do_reference(self, name: str, problem: dict[str, Any], mode: str | None) -> dict[str, Any]:
        """Have the problem's reference under a name; `mode` is torch.compile's."""
        torch.set_num_threads(max(1, (os.cpu_count() or 2) // 2))
        self._forget(name)
        self._references[name] = reference_maker(problem, self._device, mode)
        return {}

    def do_bind(
        self,
        call: str,
        plan: str,
        arguments: dict[str, Any] | None,
        storages: list[dict[str, Any]],
    ) -> dict[str, Any]:
        """Bind a plan to its given storages, or a reference to its arguments on them."""
        given = [self._memory.storage(place) for place in storages]
        self._forget(call)
        program: Program
        if plan in self._plans:
            loaded = self._plans[plan]
            program = PlanProgram(loaded.plan, loaded.functions, given, self._device)
        elif plan in self._references and arguments is not None:
            decoded = decode_arguments(arguments, given, self._device)
            program = ReferenceProgram(self._references[plan](decoded))
        else:
            raise KeyError(f"no plan or reference {plan}")
        self._calls[call] = _Bound(plan, program)
        return {}

    def do_drop(self, name: str) -> dict[str, Any]:
        """Forget a plan or a reference with the calls bound to it, or a bound call."""
        self._forget(name)
        return {}

    def do_call(
        self,
        call: str,
        outputs: list[dict[str, Any]],
        storages: list[dict[str, Any]],
        fresh: bool = True,
    ) -> dict[str, Any]:
        """Call once, step by step; `fresh` makes kept buffers anew. Copies the results out."""
        program = self._bound(call).program
        self._last = None
        program.refresh(fresh)
        results = program.enqueue()
        self._watch.wait()
        return self._hand_over(program, results, outputs, storages)

    def do_time(self, call: str, graph: bool) -> dict[str, Any]:
        """Time one call, the L2 emptied before it. What it kept is left as the call before left it,
        or is new garbage where it was never filled: cleaning up is a part of a call. `host_ms` is
        the wall clock's, from before the beginning to the end of all work. The result is kept for
        `do_collect`."""
        made = self._bound(call)
        self._last = None
        try:
            run = self._runnable(made, graph)
        except NoGraph as reason:
            return {"no_graph": str(reason)}
        made.program.refresh(fresh=False, garbage=True)
        ms, host_ms, results = self._timed(run)
        self._last = (made.program, results)
        return {"ms": ms, "host_ms": host_ms, "graph": graph}

    def do_empty(self, count: int) -> dict[str, Any]:
        """What the wall clock shows of so many timed calls of nothing, in milliseconds: flushes,
        and whatever else keeps the GPU busy."""
        return {"host_ms": [self._timed(list)[1] for _ in range(count)]}

    def do_collect(
        self, outputs: list[dict[str, Any]], storages: list[dict[str, Any]]
    ) -> dict[str, Any]:
        """Copy the last timed call's results out."""
        if self._last is None:
            raise KeyError("no timed call's results are here")
        (program, results), self._last = self._last, None
        return self._hand_over(program, results, outputs, storages)

    def do_share(self, call: str) -> dict[str, Any]:
        """What torch's own operations take of a plan's call, by themselves. Milliseconds."""
        made = self._bound(call)
        program = made.program
        if not isinstance(program, PlanProgram):
            raise KeyError(f"{call} is no plan")
        self._last = None
        if not program.computes:
            return {"operations_ms": 0.0}
        part = program.enqueue_computing
        if not made.no_graph:
            with suppress(NoGraph):
                part = Graph(part).replay
        return {"operations_ms": self._median_ms(program, part)}

    def _median_ms(self, program: Program, run: Run) -> float:
        times = []
        for _ in range(SHARE_CALLS):
            program.refresh(fresh=False, garbage=True)
            times.append(self._timed(run)[0])
        return median(times)

    def _timed(self, run: Run) -> tuple[float, float, list[torch.Tensor]]:
        """Milliseconds of one call on the GPU and on the wall clock, and what it returned."""
        watch = self._watch
        watch.wait()
        self._reset_l2()
        for _ in range(QUEUED + 1):
            watch.flush()  # the queue is never empty, or the call would wait for Python
        began = time.perf_counter()
        watch.start()
        results = run()
        watch.end()
        watch.wait()
        host_ms = 1e3 * (time.perf_counter() - began)
        return watch.time_ms(), host_ms, results

    def _runnable(self, made: _Bound, graph: bool) -> Run:
        """The call step by step, or as its graph. Raises NoGraph, each time for the same reason."""
        if not graph:
            return made.program.enqueue
        if made.no_graph:
            raise NoGraph(made.no_graph)
        if made.graph is None:
            try:
                made.graph = Graph(made.program.enqueue)
            except NoGraph as reason:
                made.no_graph = str(reason)
                raise
        return made.graph.replay

    def _bound(self, call: str) -> _Bound:
        if call not in self._calls:
            raise KeyError(f"no call {call}")
        return self._calls[call]

    def _forget(self, name: str) -> None:
        if not any(name in known for known in (self._plans, self._references, self._calls)):
            return
        self._watch.wait()
        self._last = None
        self._calls = {
            call: made for call, made in self._calls.items() if name not in (call, made.source)
        }
        self._references.pop(name, None)
        loaded = self._plans.pop(name, None)
        for function in loaded.functions if loaded else ():
            self._loader.release(function)
        torch.cuda.empty_cache()  # for the judge and its oracle

    def _hand_over(
        self,
        program: Program,
        results: Sequence[Any],
        outputs: list[dict[str, Any]],
        storages: list[dict[str, Any]],
    ) -> dict[str, Any]:
        """Copy results into the judge's memory and tell what they were, and what was damaged."""
        guards = program.broken_guards()
        described = self._memory.hand_over(results, outputs, storages, self._device)
        self._watch.wait()
        return {"results": described, "guards": guards}


def _check_binaries(plan: Plan, binaries: Sequence[Binary]) -> None:
    if len(binaries) != len(plan.kernels):
        raise ValueError(f"{len(binaries)} binaries for {len(plan.kernels)} kernels")
    for binary in binaries:
        if binary.profile_bytes:
            raise ValueError(f"{binary.name} is instrumented")
        if _MOST_SCRATCH_ALIGN % binary.scratch_align:
            raise ValueError(f"{binary.name} wants scratch aligned to {binary.scratch_align}")
