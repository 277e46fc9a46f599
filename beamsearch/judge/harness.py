"""What runs in the candidate's process around the candidate: our code, bound before it is imported.

It maps the judge's memory, imports the kernel, binds it by the one binding, calls it, and copies
what comes back into memory that the judge owns. Every call runs under `torch.inference_mode`,
whoever asks for it: see `call_mode`.
"""

from __future__ import annotations

import base64
import importlib.util
import linecache
import os
import socket
import sys
import traceback
from collections.abc import Callable
from contextlib import contextmanager
from types import ModuleType
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from beamsearch.errors import KernelError
from beamsearch.judge.activity import NoCupti, Watcher
from beamsearch.judge.driver import Mapping, open_descriptor
from beamsearch.judge.interpreter import METER, TooMuchWork
from beamsearch.judge.patches import members, refuse_patches
from beamsearch.judge.protocol import (
    Gone,
    decode_arguments,
    open_tensor,
    receive_with_descriptors,
    send,
)
from beamsearch.judge.stopwatch import Stopwatch
from beamsearch.kernel import CallArguments, bind

QUEUED = 4
"""Flushes before the first timed call: a third of a millisecond in which Python gets ahead."""


def serve(link: socket.socket) -> None:
    """Answer the judge's requests until it hangs up."""
    harness = Harness()
    # Bound now: a candidate that patches the class patches nothing that is called here.
    operations = {name: getattr(harness, name) for name in dir(harness) if name.startswith("do_")}
    while True:
        try:
            request, descriptors = receive_with_descriptors(link)
        except Gone:
            return
        try:
            harness.descriptors = descriptors
            answer = operations["do_" + request.pop("op")](**request)
        except Exception as error:  # noqa: BLE001 - whatever a candidate raises is its verdict
            answer = {"error": describe_error(error, harness.source)}
        send(link, answer)


def load_kernel(path: str) -> ModuleType:
    """The kernel file as a module, registered so that Triton finds its source."""
    spec = importlib.util.spec_from_file_location("candidate_kernel", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def call_mode() -> Any:
    """The mode of every call of kernel or reference, in verification, timing and profiling."""
    return torch.inference_mode()


class Harness:
    """One candidate's (or baseline's) process."""

    def __init__(self) -> None:
        self.device = "cpu"
        self.source: str | None = None
        self.module: ModuleType | None = None
        self.descriptors: list[int] = []
        """What came along with the request at hand."""
        self._storages: dict[int, torch.UntypedStorage] = {}
        self._mappings: list[Mapping] = []
        self._calls: dict[str, Callable[[], Any]] = {}
        self._make: Callable[[CallArguments], Callable[[], Any]] | None = None
        self._last: Any = None
        # Bound here so that a candidate that patches modules patches nothing we use.
        self._synchronize = torch.cuda.synchronize
        self._members: dict[str, Any] = {}
        self._plain = torch.Tensor
        self._copy: Any = torch._C.TensorBase.copy_
        self._stopwatch: Stopwatch | None = None
        self._watcher: Watcher | None = None
        self._no_watcher = ""
        torch.set_num_threads(1)

    def do_open(self, device: int | None, l2_bytes: int = 0) -> dict[str, Any]:
        """Take a device before the candidate is there; `device` none is the CPU."""
        if device is not None:
            self.device = f"cuda:{device}"
            torch.cuda.set_device(device)
            torch.zeros(1, device=self.device)  # the context
            self._stopwatch = Stopwatch(l2_bytes)
            try:
                self._watcher = Watcher()
            except NoCupti as error:
                self._no_watcher = str(error)
            self._synchronize()
        return {}

    def do_prepare(self) -> dict[str, Any]:
        """Have Triton compile what every kernel's launch needs into the compile cache."""
        from triton.runtime import driver

        return {"capability": driver.active.get_current_target().arch}

    def do_map(self, places: list[dict[str, Any]]) -> dict[str, Any]:
        """Map memory whose descriptors came along."""
        for place, descriptor in zip(places, self.descriptors, strict=True):
            if place["memory"] == "driver":
                index = torch.device(self.device).index
                mapping = open_descriptor(descriptor, place["bytes"], index)
                self._mappings.append(mapping)
                self._storages[place["id"]] = mapping.tensor().untyped_storage()
            else:
                path = f"/proc/self/fd/{descriptor}"
                mapped: Any = torch.UntypedStorage.from_file(path, True, place["bytes"])
                self._storages[place["id"]] = mapped
            os.close(descriptor)
        return {}

    def do_load(self, source: str) -> dict[str, Any]:
        """Import a kernel."""
        self.source = source
        self._members = members()
        module = load_kernel(source)
        refuse_patches(self._members)
        self.module = module
        self._make = lambda arguments: bind(module, arguments)
        return {}

    def do_reference(self, problem: dict[str, Any], mode: str | None) -> dict[str, Any]:
        """Stand the problem's reference in the kernel's place; `mode` is torch.compile's."""
        from beamsearch.judge.reference import reference_maker

        torch.set_num_threads(max(1, (os.cpu_count() or 2) // 2))
        self._make = reference_maker(problem, self.device, mode)
        return {}

    def do_bind(self, name: str, arguments: dict[str, Any], storages: list[Any]) -> dict[str, Any]:
        """Bind a set of arguments under a name."""
        assert self._make is not None
        self._calls[name] = self._make(self._arguments(arguments, storages))
        return {}

    def do_compile(self, arguments: dict[str, Any], gpu: dict[str, Any]) -> dict[str, Any]:
        """Compile the bound call on `meta` tensors for a GPU: a Profile without a GPU."""
        from profiling.gpus import Gpu
        from profiling.static import compile_call

        assert self.module is not None
        _quick_dispatch_modes()
        call = bind(self.module, decode_arguments(arguments, None, "meta"))
        with call_mode():
            profile = compile_call(call, Gpu.model_validate(gpu))
        return {"profile": profile.model_dump(mode="json")}

    def do_trace(self, arguments: dict[str, Any], gpu: dict[str, Any]) -> dict[str, Any]:
        """Which bytes the bound call touches at the true shapes, from the interpreter."""
        from profiling.access import trace_call
        from profiling.gpus import Gpu

        assert self.module is not None
        _quick_dispatch_modes()
        call = bind(self.module, decode_arguments(arguments, None, "meta"))
        with call_mode():
            trace = trace_call(call, Gpu.model_validate(gpu))
        return {"trace": trace.model_dump(mode="json")}

    def do_call(
        self, name: str, outputs: list[Any], storages: list[Any], work: float | None = None
    ) -> dict[str, Any]:
        """Call once, unwritten memory poisoned, and copy the results out. In the interpreter also
        what it launched; there it may take so much `work`."""
        METER.begin(work)
        try:
            with call_mode(), _poisoned_memory():
                result = self._calls[name]()
                self._wait()
        finally:
            METER.limit = None
        ran = {"launched": sorted(METER.launched), "block": METER.block, "work": METER.work}
        return self._hand_over(result, outputs, storages) | ran

    def do_time(self, warmup: int, warm: str, schedule: list[str]) -> dict[str, Any]:
        """Time one call for each name in the schedule, the L2 emptied before each. Milliseconds.

        Warm-up calls are on the name `warm`; `warm_ms` is what they took together, their flushes
        and all that they gave the GPU on whatever stream. The last result is kept for `do_collect`.
        """
        watch = self._stopwatch
        assert watch is not None
        calls = [self._calls[name] for name in schedule]
        watch.prepare(len(calls) + 1)
        result = self._last = None
        with call_mode():
            watch.start(len(calls))
            for _ in range(warmup):
                watch.flush()
                self._calls[warm]()
            watch.wait()
            watch.end(len(calls))
            for _ in range(QUEUED):
                watch.flush()  # the queue is never empty, or the first call would wait for Python
            for index, call in enumerate(calls):
                result = None  # its memory is free for the next call
                watch.flush()
                watch.start(index)
                result = call()
                watch.end(index)
            watch.wait()
        self._last = result
        *times_ms, warm_ms = watch.times_ms(len(calls) + 1)
        return {"times_ms": times_ms, "warm_ms": warm_ms}

    def do_collect(self, outputs: list[Any], storages: list[Any]) -> dict[str, Any]:
        """Copy the last timed or watched call's results out."""
        result, self._last = self._last, None
        return self._hand_over(result, outputs, storages)

    def do_watch(self, schedule: list[str]) -> dict[str, Any]:
        """One call for each name, with all that the GPU does `before` it (the flush, and what was
        left over) and `during` it; or why that cannot be told. The last result is kept for
        `do_collect`."""
        watch, watcher = self._stopwatch, self._watcher
        assert watch is not None
        result = self._last = None
        if watcher is None:
            return {"missing": self._no_watcher}
        told = []
        try:
            watcher.start()
            with call_mode():
                for name in schedule:
                    watch.flush()
                    watch.wait()
                    before = watcher.take()
                    result = None  # its memory is free for the next call
                    result = self._calls[name]()
                    watch.wait()
                    told.append({"before": before, "during": watcher.take()})
            watcher.stop()
        except NoCupti as error:
            return {"missing": str(error)}
        self._last = result
        return {"calls": told}

    def _arguments(self, arguments: dict[str, Any], storages: list[Any]) -> CallArguments:
        return decode_arguments(arguments, [self._map(item) for item in storages], self.device)

    def _map(self, item: dict[str, Any]) -> torch.UntypedStorage:
        """A storage of the judge's, mapped once."""
        key = item["id"]
        if key not in self._storages:
            self._storages[key] = _open_ipc(item["handle"])
        return self._storages[key]

    def _wait(self) -> None:
        if self.device != "cpu":
            self._synchronize()

    def _each(self, result: Any) -> list[Any]:
        """What a call returned, one by one. PyTorch's own results may be named tuples; a kernel's
        container of another class could do its work while it is walked through."""
        plain = type(result) in (tuple, list)
        several = plain or (self.module is None and isinstance(result, tuple | list))
        return [*result] if several else [result]

    def _hand_over(self, result: Any, outputs: list[Any], storages: list[Any]) -> dict[str, Any]:
        """Copy results into the judge's memory and tell what they were."""
        if self.module is not None:
            refuse_patches(self._members)
        results = self._each(result)
        known = {s.data_ptr() for s in self._storages.values()}
        described: list[dict[str, Any]] = []
        mapped = [self._map(item) for item in storages]
        for index, value in enumerate(results):
            if type(value) is not self._plain:  # a subclass could do its work while it is copied
                described.append({"type": type(value).__name__})
                continue
            told = {
                "type": "tensor",
                "shape": list(value.shape),
                "dtype": str(value.dtype).removeprefix("torch."),
                "device": str(value.device),
                "aliases_input": value.untyped_storage().data_ptr() in known,
            }
            described.append(told)
            if index < len(outputs):
                place = outputs[index]
                fits = told["shape"] == place["size"] and told["dtype"] == place["dtype"]
                if fits and value.device.type == torch.device(self.device).type:
                    with call_mode():
                        self._copy(open_tensor(place, mapped, self.device), value)
        self._wait()
        return {"results": described}


def _quick_dispatch_modes() -> None:
    """Or else a dispatch mode, whoever uses one, imports torch's compiler for a second."""
    setattr(TorchDispatchMode, "_should_skip_dynamo", classmethod(lambda cls: False))  # noqa: B010


def _open_ipc(told: list[Any]) -> Any:
    """Memory of the judge's by its CUDA IPC handle."""
    handle = [base64.b64decode(x["b64"]) if isinstance(x, dict) else x for x in told]
    return torch.UntypedStorage._new_shared_cuda(*handle)


@contextmanager
def _poisoned_memory() -> Any:
    """`torch.empty` gives NaN, so that what a kernel leaves unwritten shows."""
    # Not through `torch.use_deterministic_algorithms`, which imports the compiler for a second.
    before = torch.are_deterministic_algorithms_enabled()
    torch._C._set_deterministic_algorithms(True, warn_only=True)
    deterministic: Any = torch.utils.deterministic
    deterministic.fill_uninitialized_memory = True
    try:
        yield
    finally:
        torch._C._set_deterministic_algorithms(before)


def describe_error(error: BaseException, source: str | None) -> dict[str, Any]:
    """An exception as a person needs it: type, message, and the line of the kernel it came from."""
    cause = error
    while type(cause).__name__ == "InterpreterError" and cause.__cause__ is not None:
        cause = cause.__cause__
    if not isinstance(cause, TooMuchWork):  # that is no error of the kernel's
        traceback.print_exception(error)
    frames = traceback.extract_tb(cause.__traceback__)
    line = next((f.lineno for f in reversed(frames) if f.filename == source), None)
    if line is None:
        outer = traceback.extract_tb(error.__traceback__)
        line = next((f.lineno for f in reversed(outer) if f.filename == source), None)
    in_interpreter = [f.filename.endswith("triton/runtime/interpreter.py") for f in frames]
    return {
        "type": type(cause).__name__,
        "binding": isinstance(error, KernelError),
        "message": str(cause).strip()[:4000] or type(cause).__name__,
        "line": line,
        "text": linecache.getline(source, line).strip() if source and line else "",
        "work": METER.work,
        # Raised by the interpreter's own code rather than by the kernel's.
        "interpreter": bool(in_interpreter)
        and (in_interpreter[-1] or (any(in_interpreter) and _is_gap(cause))),
    }


def _is_gap(error: BaseException) -> bool:
    """Whether an error says that something is not supported, rather than wrong."""
    return isinstance(error, NotImplementedError | AttributeError)
