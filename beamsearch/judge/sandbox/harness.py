"""What runs around a candidate in Triton's interpreter, and around its own Python on a GPU: our
code, bound before it is imported.

It maps the judge's memory, imports the kernel, binds it by the one binding, calls it, and copies
what comes back into memory that the judge owns, where it is compared. Every call runs under
`torch.inference_mode`, in verification, timing and profiling alike.
"""

from __future__ import annotations

import importlib.util
import linecache
import statistics
import sys
import time
import traceback
from collections.abc import Callable
from contextlib import AbstractContextManager, contextmanager, nullcontext
from types import ModuleType
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from beamsearch.errors import KernelError
from beamsearch.judge.sandbox.interpreter import METER, TooMuchWork
from beamsearch.judge.sandbox.memory import Answer, MappingWorker, Places
from beamsearch.judge.sandbox.protocol import Worker, decode_arguments
from beamsearch.problem.dispatch_modes import skip_dynamo
from beamsearch.problem.kernel import bind
from kernel_profiling.compiler.fake_device import cuda_answers
from kernel_profiling.gpus import Gpu

DEVICE = torch.device("cuda", 0)
ANSWERS = {
    vars(torch._C.TensorBase)[name].__get__: answer
    for name, answer in (("device", DEVICE), ("is_cuda", True), ("is_cpu", False))
}
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


def load_kernel(path: str) -> ModuleType:
    """The kernel file as a module, registered so that Triton finds its source."""
    spec = importlib.util.spec_from_file_location("candidate_kernel", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


class KernelWorker(Worker):
    """Tells of an error with the line of the kernel that it came from."""

    source: str | None = None

    def describe(self, error: BaseException) -> Answer:
        return describe_error(error, self.source)


class Harness(KernelWorker, MappingWorker):
    """One candidate's process, in the interpreter unless it is given a GPU."""

    def __init__(self) -> None:
        super().__init__()
        self.module: ModuleType | None = None
        self._calls: dict[str, Callable[[], Any]] = {}
        self._gpu: Gpu

    def do_load(self, source: str, gpu: dict[str, Any]) -> Answer:
        """Import a kernel, for this GPU."""
        self.source = source
        self._gpu = Gpu.model_validate(gpu)
        if self.device == "cpu":
            for name, answer in cuda_answers(self._gpu).items():
                setattr(torch.cuda, name, answer)
        with self._pretending():
            self.module = load_kernel(source)
        return {}

    def do_bind(self, name: str, arguments: dict[str, Any], storages: Places) -> Answer:
        """Bind a set of arguments under a name."""
        assert self.module is not None
        mapped = [self.storage(item) for item in storages]
        with self._pretending():
            self._calls[name] = bind(self.module, decode_arguments(arguments, mapped, self.device))
        return {}

    def _pretending(self) -> AbstractContextManager[Any]:
        return AsCuda("cpu") if self.device == "cpu" else nullcontext()

    def do_host_time(self, name: str, count: int) -> Answer:
        """Median microseconds after which the bound call is back, while the GPU has nothing else to
        do: what its Python takes."""
        times = []
        with torch.inference_mode():
            for _ in range(count):
                torch.cuda.synchronize()
                began = time.perf_counter()
                self._calls[name]()
                times.append(time.perf_counter() - began)
            torch.cuda.synchronize()
        return {"host_us": 1e6 * statistics.median(times)}

    def do_trace(self, arguments: dict[str, Any]) -> Answer:
        """Which bytes the bound call touches at the true shapes, from the interpreter."""
        from kernel_profiling.estimate.access import trace_call

        assert self.module is not None
        skip_dynamo()
        with AsCuda("meta"):
            call = bind(self.module, decode_arguments(arguments, None, "meta"))
            with torch.inference_mode():
                trace = trace_call(call, self._gpu)
        return {"trace": trace.model_dump(mode="json")}

    def do_call(
        self,
        name: str,
        outputs: Places,
        storages: Places,
        then: str | None = None,
        work: float | None = None,
    ) -> Answer:
        """Call once, unwritten memory poisoned, and copy the results out, with what it launched;
        after a call of `then`, where there is one, while both results are alive. It may take so
        much `work`."""
        METER.begin(work)
        try:
            with torch.inference_mode(), _poisoned_memory(), self._pretending():
                result = self._calls[name]()
                second = self._calls[then]() if then is not None else None
            self.wait()
        finally:
            METER.limit = None
        ran = {"launched": sorted(METER.launched), "block": METER.block, "work": METER.work}
        # A container of another class could do its work while it is walked through.
        results = [*result] if type(result) in (tuple, list) else [result]
        answer = self._hand_over(results, outputs, storages)
        del second
        return answer | ran


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


def _print(error: BaseException, source: str | None) -> None:
    """Print the traceback with the kernel's own lines and the last one: what called it is ours, and
    what lies between is of libraries."""
    whole = traceback.TracebackException.from_exception(error)
    part: traceback.TracebackException | None = whole
    while part is not None:
        own = [frame for frame in part.stack if frame.filename == source]
        if own:
            last = [] if part.stack[-1] is own[-1] else part.stack[-1:]
            part.stack = traceback.StackSummary.from_list([*own, *last])
        part = part.__cause__ or part.__context__
    sys.stderr.write("".join(whole.format()))


def describe_error(error: BaseException, source: str | None) -> Answer:
    """As a person needs it: type, message, and the line of the kernel that it came from."""
    cause = error
    while type(cause).__name__ == "InterpreterError" and cause.__cause__ is not None:
        cause = cause.__cause__
    if not isinstance(cause, TooMuchWork):  # that is no error of the kernel's
        _print(error, source)
    frames = traceback.extract_tb(cause.__traceback__)
    all_frames = [*traceback.extract_tb(error.__traceback__), *frames]
    own = [frame.lineno for frame in all_frames if frame.filename == source]
    line = own[-1] if own else None
    inside = [f.filename.endswith("triton/runtime/interpreter.py") for f in frames]
    is_gap = isinstance(cause, NotImplementedError | AttributeError)
    return {
        "type": type(cause).__name__,
        "binding": isinstance(error, KernelError),
        "message": str(cause).strip()[:4000] or type(cause).__name__,
        "line": line,
        "text": linecache.getline(source, line).strip() if source and line else "",
        "work": METER.work,
        # Raised by the interpreter's own code rather than by the kernel's, or because something
        # is not supported there.
        "interpreter": any(inside) and (inside[-1] or is_gap),
    }
