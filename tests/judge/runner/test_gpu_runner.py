"""The runner's process on a GPU, with plans of kernels that are compiled here."""

import socket
import subprocess
import sys
import time
from dataclasses import dataclass

import pytest
import torch
import triton

from beamsearch.judge.arguments import fill
from beamsearch.judge.runner.graphs import WARM_CALLS
from beamsearch.judge.runner.reference import problem_message
from beamsearch.judge.sandbox.memory import GUARD_BYTES, SharedMemory
from beamsearch.judge.sandbox.protocol import describe_tensor, encode_arguments, receive, send
from beamsearch.problem.kernel import CallArguments
from beamsearch.records.plan import (
    Buffer,
    Copy,
    Descriptor,
    Launch,
    Number,
    Operation,
    Plan,
    Pointer,
    View,
)
from tests.judge.conftest import SCALE_PROBLEM, write_problem
from tests.judge.runner import kernels

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(170)]

L2_BYTES = 50 << 20
TOTAL = 1000
SCALE = {"x_ptr": "*fp32", "y_ptr": "*fp32", "total": "i32", "factor": "fp32"}


class RunnerError(Exception):
    """What the runner reported."""


@dataclass
class Place:
    """Memory of ours that the runner maps."""

    buffer: object
    tensor: torch.Tensor


class Judge:
    """The other end: memory that is handed over, and requests."""

    def __init__(self):
        torch.zeros(1, device="cuda:0")  # the context, without which the driver has no memory
        self.memory = SharedMemory("cuda:0")
        ours, theirs = socket.socketpair()
        command = [sys.executable, "-m", "beamsearch.judge.runner.process", str(theirs.fileno())]
        self.process = subprocess.Popen(command, pass_fds=[theirs.fileno()])
        theirs.close()
        self.link = ours
        self.places = []
        self.ask("open", device=0)
        self.ask("begin", l2_bytes=L2_BYTES)

    def ask(self, op, descriptors=(), **arguments):
        send(self.link, {"op": op, **arguments}, descriptors)
        answer = receive(self.link)
        if "error" in answer:
            raise RunnerError(f"{answer['error']['type']}: {answer['error']['message']}")
        return answer

    def _map(self, buffer, tensor):
        if "fd" in buffer.place:
            self.ask("map", [buffer.place["fd"]], places=[buffer.place])
        self.places.append(Place(buffer, tensor))
        torch.cuda.synchronize()
        return self.places[-1]

    def give(self, tensor):
        """An argument, behind its guard."""
        storage = tensor.untyped_storage()
        buffer = self.memory.allocate(storage.nbytes() + 2 * GUARD_BYTES)
        fill(buffer, storage)
        return self._map(buffer, tensor)

    def want(self, shape, dtype=torch.float32):
        """Room for a result."""
        buffer = self.memory.allocate(torch.Size(shape).numel() * dtype.itemsize)
        buffer.poison()
        return self._map(buffer, buffer.view(dtype, shape))

    def load(self, plan, binaries, given=(), name="p"):
        """Load a plan and bind it as the call `c`."""
        self.ask(
            "plan",
            name=name,
            plan=plan.model_dump(mode="json"),
            binaries=[binary.model_dump(mode="json") for binary in binaries],
        )
        storages = [place.buffer.place for place in given]
        self.ask("bind", call="c", plan=name, arguments=None, storages=storages)

    def call(self, *wanted, op="call", **more):
        """Call, or collect; the results are then in the places that are wanted."""
        answer = self.ask(
            op,
            outputs=[describe_tensor(p.tensor, index) for index, p in enumerate(wanted)],
            storages=[p.buffer.place for p in wanted],
            **({"call": "c"} if op == "call" else {}),
            **more,
        )
        torch.cuda.synchronize()
        return answer

    def close(self):
        self.link.close()
        self.process.wait(timeout=30)
        for place in self.places:
            place.buffer.close()


@pytest.fixture
def judge():
    opened = Judge()
    yield opened
    opened.close()


def plan(compiled, buffers, steps, results):
    return Plan(
        capability=90,
        triton=triton.__version__,
        kernels=[kernel for kernel, _ in compiled],
        buffers=[Buffer.model_validate(buffer) for buffer in buffers],
        steps=steps,
        results=results,
    )


def vector(buffer, count=TOTAL, dtype="float32"):
    return View(buffer=buffer, dtype=dtype, offset=0, size=(count,), stride=(1,))


def at(buffer, offset=0):
    return Pointer(buffer=buffer, offset=offset)


def made(count=TOTAL):
    return {"role": "made", "bytes": 4 * count}


def given(number=0, count=TOTAL):
    return {"role": "given", "bytes": 4 * count, "given": number}


def scaling(source, target, factor, kernel=0, total=TOTAL):
    numbers = [Number(type="i32", value=total), Number(type="fp32", value=factor)]
    grid = (-(-total // 256), 1, 1)
    return Launch(kernel=kernel, grid=grid, arguments=[at(source), at(target), *numbers])


def scale_kernel(**options):
    return kernels.compiled(kernels.scale, SCALE, {"BLOCK": 256}, **options)


def is_garbage(tensor):
    """Whether nothing was written: one of the runner's two poisons is everywhere."""
    return bool(torch.all(~(tensor.abs() < 1e30)))


def load_scaling(judge, **options):
    """y = x * 0.5 + 1000 (the kernel adds its total modulo 1024), and its x."""
    kernel = scale_kernel(**options)
    told = plan([kernel], [given(), made()], [scaling(0, 1, 0.5)], [vector(1)])
    x = judge.give(torch.randn(TOTAL, device="cuda"))
    judge.load(told, [kernel[1]], [x])
    return x.tensor


def test_a_launch_gets_its_numbers_and_its_result_is_handed_over(judge):
    x, y = load_scaling(judge), judge.want((TOTAL,))
    answer = judge.call(y)
    assert answer == {
        "guards": [],
        "results": [
            {
                "type": "tensor",
                "shape": [TOTAL],
                "dtype": "float32",
                "stride": [1],
                "device": "cuda:0",
                "aliases_input": False,
            }
        ],
    }
    assert torch.allclose(y.tensor, x * 0.5 + TOTAL)


@pytest.mark.parametrize(
    "options",
    [
        {"num_ctas": 2},
        {"launch_cooperative_grid": True},
        {"launch_pdl": True},
        {"num_warps": 8},
    ],
    ids=str,
)
def test_ways_of_launching(judge, options):
    x, y = load_scaling(judge, **options), judge.want((TOTAL,))
    judge.call(y)
    assert torch.allclose(y.tensor, x * 0.5 + TOTAL)
    for graph in (False, True):
        y.buffer.poison()
        torch.cuda.synchronize()
        assert judge.ask("time", call="c", graph=graph)["ms"] > 0
        judge.call(y, op="collect")
        assert torch.allclose(y.tensor, x * 0.5 + TOTAL)


def test_two_launches_with_memory_between_them(judge):
    kernel = scale_kernel()
    told = plan(
        [kernel],
        [given(), made(), made()],
        [scaling(0, 1, 2.0), scaling(1, 2, 3.0, total=900)],
        [vector(2), vector(0)],
    )
    x, y = judge.give(torch.randn(TOTAL, device="cuda")), judge.want((TOTAL,))
    judge.load(told, [kernel[1]], [x])
    results = judge.call(y)["results"]
    assert [result["aliases_input"] for result in results] == [False, True]
    assert torch.allclose(y.tensor[:900], (x.tensor[:900] * 2 + TOTAL) * 3 + 900)
    assert is_garbage(y.tensor[900:])


def test_a_grid_with_a_zero_launches_nothing(judge):
    kernel = scale_kernel()
    nothing = scaling(0, 1, 2.0).model_copy(update={"grid": (4, 0, 1)})
    told = plan([kernel], [given(), made()], [nothing], [vector(1)])
    x, y = judge.give(torch.randn(TOTAL, device="cuda")), judge.want((TOTAL,))
    judge.load(told, [kernel[1]], [x])
    judge.call(y)
    assert is_garbage(y.tensor)


def test_a_counter_is_kept_until_it_is_made_anew(judge):
    kernel = kernels.compiled(kernels.count, {"counter_ptr": "*i32"}, {})
    one = vector(0, 1, "int32")
    fill_record = {"target": one.model_dump(), "value": 0}
    kept = {"role": "kept", "bytes": 4, "fills": [fill_record]}
    out = vector(1, 1, "int32")
    steps = [
        Launch(kernel=0, grid=(5, 1, 1), arguments=[at(0)]),
        Copy(target=out, source=one),
    ]
    judge.load(plan([kernel], [kept, made(1)], steps, [out]), [kernel[1]])
    result = judge.want((1,), torch.int32)
    seen = []
    for fresh in (True, False, True):
        judge.call(result, fresh=fresh)
        seen.append(result.tensor.item())
    judge.ask("time", call="c", graph=True)  # behind the calls that a capture takes
    judge.call(result, op="collect")
    assert [*seen, result.tensor.item()] == [5, 10, 5, 5 * (1 + WARM_CALLS + 1)]


def test_a_descriptor_of_the_host(judge):
    rows, columns = 100, 72
    signature = {"source": "tensordesc<fp32[32, 64]>", "y_ptr": "*fp32", "columns": "i32"}
    kernel = kernels.compiled(kernels.copy_tiles, signature, {"ROWS": 32, "WIDTH": 64})
    descriptor = Descriptor(
        base=at(0),
        dtype="float32",
        shape=(rows, columns),
        strides=(columns, 1),
        block_shape=(32, 64),
        type=signature["source"],
    )
    arguments = [descriptor, at(1), Number(type="i32", value=128)]
    view = View(buffer=1, dtype="float32", offset=0, size=(128, 128), stride=(128, 1))
    steps = [Launch(kernel=0, grid=(4, 2, 1), arguments=arguments)]
    told = plan([kernel], [given(0, rows * columns), made(128 * 128)], steps, [view])
    x, y = judge.give(torch.randn(rows, columns, device="cuda")), judge.want((128, 128))
    judge.load(told, [kernel[1]], [x])
    assert judge.call(y)["guards"] == []
    assert torch.equal(y.tensor[:rows, :columns], x.tensor)
    assert not y.tensor[rows:].any()
    assert not y.tensor[:, columns:].any()


def test_descriptors_of_the_gpu_have_scratch(judge):
    rows, columns = 100, 72
    signature = {"x_ptr": "*fp32", "y_ptr": "*fp32", "rows": "i32", "columns": "i32"}
    constants = {"ROWS": 32, "WIDTH": 64}
    kernel = kernels.compiled(kernels.copy_by_descriptor, signature, constants)
    assert kernel[1].scratch_bytes > 0
    sizes = [Number(type="i32", value=n) for n in (rows, columns)]
    view = View(buffer=1, dtype="float32", offset=0, size=(rows, columns), stride=(columns, 1))
    steps = [Launch(kernel=0, grid=(4, 2, 1), arguments=[at(0), at(1), *sizes])]
    count = rows * columns
    told = plan([kernel], [given(0, count), made(count)], steps, [view])
    x, y = judge.give(torch.randn(rows, columns, device="cuda")), judge.want((rows, columns))
    judge.load(told, [kernel[1]], [x])
    assert judge.call(y)["guards"] == []
    assert torch.equal(y.tensor, x.tensor)


def test_shared_memory_beyond_the_ordinary(judge):
    size, depth = 128, 512
    signature = {"a_ptr": "*fp16", "b_ptr": "*fp16", "c_ptr": "*fp32", "depth": "i32"}
    constants = {"N": size, "K": 64}
    kernel = kernels.compiled(
        kernels.product, signature, constants, divisible=range(4), num_stages=4, num_warps=8
    )
    assert kernel[1].shared_bytes > 48 << 10
    factors = [{"role": "given", "bytes": 2 * size * depth, "given": n} for n in (0, 1)]
    numbers = [Number(type="i32", value=depth)]
    steps = [Launch(kernel=0, grid=(1, 1, 1), arguments=[at(0), at(1), at(2), *numbers])]
    view = View(buffer=2, dtype="float32", offset=0, size=(size, size), stride=(size, 1))
    told = plan([kernel], [*factors, made(size * size)], steps, [view])
    a = judge.give(torch.randn(size, depth, device="cuda", dtype=torch.float16))
    b = judge.give(torch.randn(depth, size, device="cuda", dtype=torch.float16))
    c = judge.want((size, size))
    judge.load(told, [kernel[1]], [a, b])
    judge.call(c)
    assert torch.allclose(c.tensor, a.tensor.float() @ b.tensor.float(), atol=1e-2, rtol=1e-2)


def load_store(judge, index, buffers=None):
    """One element is written, wherever the index says."""
    kernel = kernels.compiled(kernels.store_at, {"y_ptr": "*fp32", "index": "i64"}, {})
    arguments = [at(0), Number(type="i64", value=index)]
    steps = [Launch(kernel=0, grid=(1, 1, 1), arguments=arguments)]
    judge.load(plan([kernel], buffers or [made()], steps, []), [kernel[1]])


@pytest.mark.parametrize(("index", "broken"), [(TOTAL - 1, 0), (TOTAL, 1), (-1, 1)])
def test_a_write_outside_breaks_a_guard(judge, index, broken):
    load_store(judge, index)
    for _ in range(2):
        assert judge.call()["guards"] == ["buffer 0 (made)"] * broken
    judge.ask("time", call="c", graph=True)
    assert judge.call(op="collect")["guards"] == ["buffer 0 (made)"] * broken


def test_a_write_to_a_constant_is_told(judge):
    load_store(judge, 0, [{"role": "constant", "bytes": 4, "data": "AAAAAA=="}])
    assert judge.call()["guards"] == ["buffer 0 (constant), written to"]


def test_a_wild_write_is_an_error_of_cuda(judge):
    load_store(judge, 1 << 40)
    with pytest.raises(RunnerError, match="CudaError"):
        judge.call()


def test_more_memory_than_there_is_is_told_and_survived(judge):
    kernel = scale_kernel()
    huge = {"role": "made", "bytes": 1 << 42}
    told = plan([kernel], [given(), huge], [scaling(0, 1, 1.0)], [])
    x = judge.give(torch.randn(TOTAL, device="cuda"))
    with pytest.raises(RunnerError, match="OutOfMemoryError"):
        judge.load(told, [kernel[1]], [x])
    x, y = load_scaling(judge), judge.want((TOTAL,))
    judge.call(y)
    assert torch.allclose(y.tensor, x * 0.5 + TOTAL)


def test_parameters_that_do_not_fit_the_code_are_refused(judge):
    count_kernel = kernels.compiled(kernels.count, {"counter_ptr": "*i32"}, {})
    kernel = scale_kernel()
    told = plan([kernel], [given(), made()], [scaling(0, 1, 0.5)], [vector(1)])
    x = judge.give(torch.randn(TOTAL, device="cuda"))
    with pytest.raises(RunnerError, match="takes parameters of"):
        judge.load(told, [count_kernel[1]], [x])


def test_times_grow_with_the_work_and_torchs_share_is_told(judge):
    total = 1 << 26
    kernel = scale_kernel()
    add = Operation(
        name="aten.add.Tensor", arguments=[vector(1, total), 1], targets=[vector(2, total)]
    )
    steps = [scaling(0, 1, 0.5, total=total), add]
    buffers = [given(0, total), made(total), made(total)]
    x = judge.give(torch.randn(total, device="cuda"))
    y = judge.want((total,))
    judge.load(plan([kernel], buffers, steps, [vector(2, total)]), [kernel[1]], [x])
    times = {graph: judge.ask("time", call="c", graph=graph) for graph in (True, False)}
    judge.call(y, op="collect")
    assert torch.allclose(y.tensor, x.tensor * 0.5 + 1)
    share = judge.ask("share", call="c")
    print(times, share)
    for told in times.values():
        # A gigabyte to read and to write takes 0.1 ms and more on any GPU there is.
        assert 0.1 < told["ms"] <= told["host_ms"]
    assert times[True]["ms"] == pytest.approx(times[False]["ms"], rel=0.3)
    assert 0.3 < share["operations_ms"] / times[True]["ms"] < 0.7
    load_scaling(judge)
    assert judge.ask("share", call="c")["operations_ms"] == 0


def test_what_is_dropped_is_gone_and_its_code_with_it(judge):
    load_scaling(judge)
    judge.ask("drop", name="p")
    with pytest.raises(RunnerError, match="no call c"):
        judge.call()
    x, y = load_scaling(judge), judge.want((TOTAL,))
    judge.call(y)
    assert torch.allclose(y.tensor, x * 0.5 + TOTAL)


HOST_READ = SCALE_PROBLEM.replace("return 2 * x", "return x.max().item() * 0 + 2 * x")


@pytest.mark.parametrize(
    ("source", "mode", "graph"),
    [(SCALE_PROBLEM, None, True), (SCALE_PROBLEM, "default", True), (HOST_READ, None, False)],
    ids=["eager", "compiled", "reads on the host"],
)
def test_a_reference_is_timed_with_a_graph_where_it_can_be(judge, tmp_path, source, mode, graph):
    problem = write_problem(tmp_path, source)
    x = judge.give(torch.rand(1024, 4096, device="cuda", dtype=torch.bfloat16))
    bias = judge.give(torch.rand(4096, device="cuda", dtype=torch.bfloat16))
    y = judge.want((1024, 4096), torch.bfloat16)
    numbers = {x.tensor.data_ptr(): 0, bias.tensor.data_ptr(): 1}
    told = CallArguments({"x": x.tensor}, ("x",), (), {"bias": bias.tensor})
    arguments = encode_arguments(told, lambda t: numbers[t.data_ptr()], GUARD_BYTES)
    storages = [x.buffer.place, bias.buffer.place]
    judge.ask("reference", name="r", problem=problem_message(problem), mode=mode)
    judge.ask("bind", call="c", plan="r", arguments=arguments, storages=storages)
    wanted = 2 * x.tensor + bias.tensor
    judge.call(y)
    assert torch.allclose(y.tensor, wanted, atol=0.05)
    answer = judge.ask("time", call="c", graph=True)
    assert ("no_graph" in answer) is not graph
    y.buffer.poison()
    torch.cuda.synchronize()
    assert judge.ask("time", call="c", graph=graph)["ms"] > 0
    judge.call(y, op="collect")
    assert torch.allclose(y.tensor, wanted, atol=0.05)
    load_scaling(judge)  # a failed capture does not keep others from theirs
    assert judge.ask("time", call="c", graph=True)["graph"]
    judge.ask("drop", name="r")


def test_the_runner_ends_with_the_judge():
    judge = Judge()
    judge.close()
    assert judge.process.returncode == 0


def test_a_runner_in_an_endless_kernel_ends_with_the_judge(judge):
    kernel = kernels.compiled(kernels.spin, {"flag_ptr": "*i32"}, {})
    flag = judge.give(torch.zeros(1, dtype=torch.int32, device="cuda"))
    launch = Launch(kernel=0, grid=(1, 1, 1), arguments=[at(0)])
    told = plan([kernel], [given(0, 1)], [launch], [vector(0, 1, "int32")])
    judge.load(told, [kernel[1]], [flag])
    send(judge.link, {"op": "call", "call": "c", "outputs": [], "storages": []})
    time.sleep(1)
    assert judge.process.poll() is None
    judge.link.close()
    assert judge.process.wait(timeout=30) != 0


def test_empty_calls_tell_whether_the_gpu_is_shared(judge):
    judge.ask("empty", count=1)
    times = judge.ask("empty", count=20)["host_ms"]
    assert len(times) == 20
    assert all(0.05 < ms < 10 for ms in times)
