"""Host code on stand-in tensors becomes a plan, in the judge's own sandboxed processes."""

from __future__ import annotations

import pytest

from beamsearch.judge.capture.forms import Captured, configurations
from beamsearch.judge.capture.hopeless import reason_hopeless
from beamsearch.judge.rejection import Log
from beamsearch.problem.problem import Problem, read_problem
from beamsearch.records.candidate import Candidate
from beamsearch.records.measurement import Measurement
from beamsearch.records.plan import Copy, Fill, Launch, Operation, Plan, Pointer, View
from beamsearch.records.verdict import Check, Stage
from beamsearch.run.standalone import standalone
from kernel_profiling.compiler.disassembly import disassemble
from tests.judge.capture.conftest import (
    HOST,
    LAUNCH,
    Capture,
    before_call,
    changed,
    working_with,
)
from tests.judge.conftest import SCALE_KERNEL
from tests.judge.suite.cases import FOLDER, read_cases

ROWS, COLUMNS = 1024, 4096
BYTES = 2 * ROWS * COLUMNS


def suite(name: str) -> tuple[str, Problem]:
    (case,) = read_cases([name])
    return case.source, read_problem(FOLDER / "problems" / case.problem / "problem.py")


def plan_of(found: Captured) -> Plan:
    assert found.rejection is None, found.rejection
    (form,) = found.forms
    return form.plan


def roles(plan: Plan) -> list[str]:
    return [buffer.role for buffer in plan.buffers]


def test_a_plan_has_the_launch_with_its_arguments_and_what_is_returned(capture: Capture) -> None:
    plan = plan_of(capture(SCALE_KERNEL))
    (launch,) = plan.launches
    total = ROWS * COLUMNS
    assert plan.capability == 90
    assert launch.grid == (total // 1024, 1, 1)
    x, bias, y, numel, columns = launch.arguments
    assert [plan.buffers[place.buffer].given for place in (x, bias)] == [0, 1]
    assert [(n.type, n.value) for n in (numel, columns)] == [("i32", total), ("i32", COLUMNS)]
    assert plan.buffers[y.buffer].role == "made"
    assert plan.buffers[y.buffer].bytes == BYTES
    (result,) = plan.results
    assert result == View(
        buffer=y.buffer, dtype="bfloat16", offset=0, size=(ROWS, COLUMNS), stride=(COLUMNS, 1)
    )
    assert (plan.container, len(plan.buffers), len(plan.steps)) == ("tensor", 3, 1)
    (kernel,) = plan.kernels
    assert kernel.name == "scale_kernel"
    assert kernel.signature == ["*bf16", "*bf16", "*bf16", "i32", "i32"]
    line = SCALE_KERNEL.splitlines().index(LAUNCH.rstrip("\n")) + 1
    assert launch.line == line
    assert launch.named["BLOCK"] == "1024"
    assert launch.config is None


def test_each_form_has_machine_code_that_was_compiled_from_the_plan(capture: Capture) -> None:
    (form,) = capture(SCALE_KERNEL).forms
    (binary,) = form.compiled.binaries
    assert binary.name == "scale_kernel"
    assert binary.cubin[:4] == b"\x7fELF"
    assert form.compiled.profile.fingerprint


def test_a_part_of_a_tensor_is_an_address_inside_its_buffer(capture: Capture) -> None:
    source = changed(
        (HOST, HOST + "    z, out = x[16:], y[16:]\n"),
        (
            LAUNCH,
            LAUNCH.replace("x.numel()", "z.numel()").replace("(x, bias, y,", "(z, bias, out,"),
        ),
        ("    return y\n", "    return y.view(-1)[4096:].view(-1, 4096).t(), y[0]\n"),
    )
    plan = plan_of(capture(source))
    (launch,) = plan.launches
    assert launch.grid == ((ROWS - 16) * COLUMNS // 1024, 1, 1)
    places = launch.arguments[:3]
    assert [place.offset for place in places] == [2 * 16 * COLUMNS, 0, 2 * 16 * COLUMNS]
    whole, row = plan.results
    assert (whole.offset, whole.size, whole.stride) == (4096, (4096, 1023), (1, 4096))
    assert (row.offset, row.size, row.stride) == (0, (4096,), (1,))
    assert whole.buffer == row.buffer == places[2].buffer
    assert plan.container == "tuple"


def work_of(plan: Plan) -> int:
    """Number of the buffer that is the last launch's `work`."""
    place = plan.launches[-1].arguments[3]
    assert isinstance(place, Pointer)
    return place.buffer


ONCE = "    if 'work' not in KEPT:\n"


def test_what_is_kept_has_the_fills_that_it_began_with(capture: Capture) -> None:
    lines = (
        "        KEPT['work'] = torch.full((8,), 3.0, device=x.device)\n"
        "        KEPT['work'][2:4] = 1.5\n"
        "    work = KEPT['work']\n"
    )
    plan = plan_of(capture(working_with(ONCE + lines)))
    number = work_of(plan)
    kept = plan.buffers[number]
    assert (kept.role, kept.bytes, kept.data) == ("kept", 32, None)
    view = {"buffer": number, "dtype": "float32", "stride": (1,)}
    assert kept.fills == [
        Fill(target=View(offset=0, size=(8,), **view), value=3.0),
        Fill(target=View(offset=2, size=(2,), **view), value=1.5),
    ]
    assert len(plan.steps) == 1


def test_a_workspace_of_an_honest_kernel_is_kept_and_garbage(capture: Capture) -> None:
    plan = plan_of(capture(*suite("honest_more/mean_workspace_kept")))
    (kept,) = [buffer for buffer in plan.buffers if buffer.role == "kept"]
    assert (kept.fills, kept.data) == ([], None)
    assert len(plan.launches) == 2


def test_values_in_the_source_are_a_constant(capture: Capture) -> None:
    work = "    work = torch.tensor([1.0, 2.0], device=x.device)\n"
    plan = plan_of(capture(working_with(work)))
    constant = plan.buffers[work_of(plan)]
    assert (constant.role, constant.bytes) == ("constant", 8)
    assert constant.data == b"\x00\x00\x80?\x00\x00\x00@"
    assert len(plan.steps) == 1


def test_a_table_that_is_kept_holds_what_torch_made_of_it(capture: Capture) -> None:
    table = "        KEPT['work'] = torch.arange(3, device=x.device) * 2\n    work = KEPT['work']\n"
    plan = plan_of(capture(working_with(ONCE + table)))
    kept = plan.buffers[work_of(plan)]
    assert kept.role == "kept"
    assert kept.data == b"".join(n.to_bytes(8, "little") for n in (0, 2, 4))
    assert len(plan.steps) == 1


TABLE_KERNEL = """
@triton.jit
def table_kernel(work_ptr):
    tl.store(work_ptr + tl.arange(0, 8), tl.arange(0, 8) * 2.0)
"""


def test_what_a_launch_of_the_first_call_made_is_made_in_each(capture: Capture) -> None:
    lines = (
        "        KEPT['work'] = torch.empty(8, device=x.device)\n"
        "        table_kernel[(1,)](KEPT['work'])\n"
        "    work = KEPT['work']\n"
    )
    plan = plan_of(capture(working_with(ONCE + lines) + TABLE_KERNEL))
    names = [plan.kernels[launch.kernel].name for launch in plan.launches]
    assert names == ["table_kernel", "scale_kernel"]
    (place,) = plan.launches[0].arguments
    assert place.buffer == work_of(plan)
    assert plan.buffers[work_of(plan)].role == "made"


@pytest.mark.parametrize("key", ["bias.data_ptr()", "'always'"])
def test_a_weight_that_is_repacked_once_is_repacked_in_each_call(
    capture: Capture, key: str
) -> None:
    lines = (
        f"    if {key} not in KEPT:\n"
        f"        KEPT[{key}] = bias.view(2, -1).t().contiguous()\n"
        f"    work = KEPT[{key}]\n"
    )
    plan = plan_of(capture(working_with(lines)))
    copy, launch = plan.steps
    assert isinstance(copy, Copy)
    assert isinstance(launch, Launch)
    assert plan.buffers[copy.source.buffer].given == 1
    assert (copy.source.size, copy.source.stride) == ((2048, 2), (1, 2048))
    assert (copy.target.buffer, copy.target.stride) == (work_of(plan), (2, 1))


def test_operations_stand_where_they_were_called(capture: Capture) -> None:
    plan = plan_of(capture(*suite("honest/linear_split_k_library_sum")))
    operations = [step for step in plan.steps if isinstance(step, Operation)]
    assert any(step.name.startswith("aten.sum") for step in operations)
    assert isinstance(plan.steps[0], Launch | Fill)
    assert all(step.line for step in operations)


def test_an_autotuned_kernel_has_a_form_a_configuration(capture: Capture) -> None:
    found = capture(*suite("honest/softmax_autotuned"))
    assert found.rejection is None, found.rejection
    warps = []
    for form in found.forms:
        (launch,) = form.plan.launches
        (kernel,) = form.plan.kernels
        warps.append(kernel.options["num_warps"])
        assert f"num_warps: {warps[-1]}" in str(launch.config)
        assert form.pins == {"softmax_kernel": launch.config}
        assert form.compiled.binaries[0].threads == 32 * warps[-1]
    assert sorted(warps) == [4, 8, 16]
    told = configurations(found.forms, {0: 2.0, 2: 1.0})
    assert [(one.config, one.time_ms) for one in told] == [
        (found.forms[number].pins["softmax_kernel"], ms)
        for number, ms in ((2, 1), (0, 2), (1, None))
    ]
    assert all(one.registers and one.spill_bytes == 0 for one in told)
    assert configurations(found.forms[:1]) == []


def test_a_winner_written_out_has_the_configuration_that_was_timed(capture: Capture) -> None:
    source, problem = suite("honest/softmax_autotuned")
    form = capture(source, problem).forms[-1]
    best = Candidate(
        name="r1-w0-v0",
        round=1,
        description="autotuned",
        author="input",
        verdict=Log(checks=[Check(stage=Stage.SMOKE, name="own", passed=True)]).correct(),
        measurement=Measurement(
            source="modelled", time_ms=1.0, gpu="H200", configs=dict(form.pins)
        ),
    )
    written = standalone(problem, source, best)
    (again,) = capture(written, problem).forms
    assert form.pins and not again.pins
    one, other = (disassemble(f.compiled.binaries[0].cubin, {}, {}).text for f in (form, again))
    assert one == other
    strange = written.replace("num_warps:", "num_worps:")
    assert len(capture(strange, problem).forms) > 1, "another Triton's words are passed over"


TUNED = changed(
    (
        "@triton.jit",
        "CONFIGS = [\n"
        "    triton.Config({'BLOCK': n}, pre_hook=lambda named: named['y_ptr'].fill_(2.5))\n"
        "    for n in (512, 1024)\n]\n\n\n"
        "@triton.autotune(CONFIGS, key=['total'])\n@triton.jit",
    ),
    (
        LAUNCH,
        "    grid = lambda meta: (triton.cdiv(x.numel(), meta['BLOCK']),)\n"
        "    scale_kernel[grid](x, bias, y, x.numel(), x.shape[1])\n",
    ),
)


def test_a_block_that_no_thread_can_hold_is_not_compiled_where_others_fit(capture: Capture) -> None:
    wide = TUNED.replace("y_ptr'].fill_(2.5))", "y_ptr'].fill_(2.5), num_warps=1)")
    found = capture(wide.replace("(512, 1024)", "(512, 1 << 14)"))
    assert [form.plan.launches[0].grid for form in found.forms] == [(ROWS * COLUMNS // 512, 1, 1)]
    alone = capture(wide.replace("(512, 1024)", "(1 << 14,)"))
    (form,) = alone.forms  # the only one is its author's business
    assert reason_hopeless(form.plan) == (
        "not compiled: one block of scale_kernel would take 512 registers a thread, which has 255"
    )


def test_an_unrolled_loop_that_compiles_for_long_is_not_where_others_are_short(
    capture: Capture,
) -> None:
    unrolled = changed(
        ("BLOCK: tl.constexpr", "BLOCK: tl.constexpr, TIMES: tl.constexpr"),
        (
            "    tl.store(",
            "    for _ in tl.static_range(TIMES):\n        tl.debug_barrier()\n    tl.store(",
        ),
        source=TUNED,
    )
    unrolled = unrolled.replace("{'BLOCK': n}", "{'BLOCK': 512, 'TIMES': n}")
    found = capture(unrolled.replace("(512, 1024)", "(2, 5000)"))
    assert [form.plan.launches[0].config for form in found.forms] == [
        found.forms[0].plan.launches[0].config
    ]
    assert "TIMES: 2," in str(found.forms[0].plan.launches[0].config)
    (alone,) = capture(unrolled.replace("(512, 1024)", "(5000,)")).forms
    assert "lines of Triton's IR, which take too long" in str(reason_hopeless(alone.plan))


def test_what_a_configuration_fills_beforehand_is_a_step(capture: Capture) -> None:
    found = capture(TUNED)
    assert found.rejection is None, found.rejection
    grids = set()
    for form in found.forms:
        fill, launch = form.plan.steps
        assert isinstance(fill, Fill)
        assert isinstance(launch, Launch)
        assert fill.value == 2.5
        assert fill.target.size == (ROWS, COLUMNS)
        assert fill.target.buffer == launch.arguments[2].buffer  # type: ignore[union-attr]
        grids.add(launch.grid[0])
    assert grids == {ROWS * COLUMNS // 512, ROWS * COLUMNS // 1024}


def test_blocks_of_descriptors_that_a_configuration_sets_are_those_of_its_form(
    capture: Capture,
) -> None:
    found = capture(*suite("honest_more/linear_descriptors_pre_hook"))
    assert found.rejection is None, found.rejection
    blocks = [[d.block_shape for d in f.plan.launches[0].arguments[:3]] for f in found.forms]  # type: ignore[union-attr]
    assert sorted(blocks) == [
        [(128, 64), (64, 64), (128, 64)],
        [(128, 64), (128, 64), (128, 128)],
    ]


def test_what_is_bound_by_position_is_told(capture: Capture) -> None:
    source = changed(("(x, bias):\n", "(data, bias):\n    x = data\n"))
    found = capture(source)
    plan_of(found)
    (check,) = [check for check in found.log.checks if check.name == "binding"]
    assert check.message == "by position: data is x"
    assert not [c for c in capture(SCALE_KERNEL).log.checks if c.name == "binding"]


MODEL = """

class ModelNew(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.bias = torch.nn.Parameter(torch.zeros(4096))

    def forward(self, x):
        return run(x, self.bias)
"""


def test_a_module_has_the_references_parameters(capture: Capture) -> None:
    plan = plan_of(capture(changed(("def kernel_function", "def run")) + MODEL))
    x, bias, y = plan.launches[0].arguments[:3]
    assert [plan.buffers[place.buffer].given for place in (x, bias)] == [0, 1]  # type: ignore[union-attr]
    assert roles(plan) == ["given", "given", "made"]


HONEST = {
    "is on a GPU": "    assert x.is_cuda and x.device.type == 'cuda'\n",
    "names its device": "    assert str(x.device) == 'cuda:0' and x.get_device() == 0\n",
    "on its device": "    with torch.cuda.device(x.device):\n        pass\n",
    "properties": (
        "    found = torch.cuda.get_device_properties(x.device)\n"
        "    assert found.multi_processor_count == 132 and found.major == 9\n"
    ),
    "capability": "    assert torch.cuda.get_device_capability() == (9, 0)\n",
    "available": "    assert torch.cuda.is_available() and torch.cuda.device_count() == 1\n",
    "the current stream": "    torch.cuda.current_stream().cuda_stream\n",
    "synchronizes": "    torch.cuda.synchronize()\n",
    "alignment": "    assert x.data_ptr() % 16 == 0 and x.is_contiguous()\n",
}


@pytest.mark.parametrize("name", HONEST)
def test_host_code_finds_the_gpu_that_the_plan_is_for(capture: Capture, name: str) -> None:
    assert len(plan_of(capture(before_call(HONEST[name]))).steps) == 1


def test_a_candidates_process_sees_no_gpu(capture: Capture) -> None:
    peek = "import os\nprint('visible', repr(os.environ['CUDA_VISIBLE_DEVICES']))\n"
    inside = before_call("    print('inside', repr(os.environ['CUDA_VISIBLE_DEVICES']))\n")
    found = capture(peek + inside)
    plan_of(found)
    assert "visible ''" in found.log.output[0]
    assert "inside ''" in found.log.output[0]
