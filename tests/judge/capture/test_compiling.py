"""Kernels compiled again from their IR: the same machine code, and a plan told from another."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import triton

from beamsearch.errors import BeamsearchError
from beamsearch.judge.capture.compiling import compile_plan
from beamsearch.records.plan import Plan
from kernel_profiling.compiler.disassembly import disassemble
from kernel_profiling.compiler.launches import CompiledLaunch, describe, machine_code
from kernel_profiling.errors import CompileFailed
from kernel_profiling.gpus import find_gpu
from tests.judge.capture import kernels
from tests.judge.capture.kernels import Original, plan_of, scale

H200 = find_gpu("h200")

KINDS: dict[str, Callable[[], Original]] = {
    "elementwise": scale,
    "pipelined product": kernels.dot,
    "host descriptors": kernels.host_descriptors,
    "device descriptors": kernels.device_descriptors,
    "cooperative": lambda: scale(launch_cooperative_grid=True),
    "dependent": lambda: scale(launch_pdl=True),
    "cluster": lambda: scale(num_ctas=2),
    "assembly": lambda: kernels.original(
        kernels.assembly_kernel, kernels.FLOATS, {"BLOCK": 512}, num_warps=2
    ),
    "tuned shape": lambda: scale(4096, num_warps=8, maxnreg=32),
    "library functions": lambda: kernels.original(
        kernels.library_kernel, kernels.FLOATS, {"BLOCK": 512}
    ),
    "division": lambda: kernels.original(
        kernels.divide_kernel, {**kernels.FLOATS, "n": "i32"}, {"BLOCK": 512}
    ),
    "no fused multiply-add": lambda: scale(enable_fp_fusion=False),
    "specialised warps": kernels.specialised,
}


def text_of(cubin: bytes) -> str:
    return disassemble(cubin, {}, {}).text


@pytest.mark.parametrize("kind", KINDS)
def test_compiled_again_is_the_same_code_on_the_same_lines(kind: str) -> None:
    # Given a kernel as its Python compiles
    first = KINDS[kind]()
    code = machine_code(first.compiled.metadata, first.compiled.asm, kernels.__file__)
    before = describe(CompiledLaunch(code, (4, 1, 1), ()), H200)
    # When its IR alone is compiled, after a journey through JSON
    plan = Plan.model_validate_json(plan_of(first).model_dump_json())
    found = compile_plan(plan, H200)
    # Then machine code, resources and every line's table are what they were
    (binary,), (launch,) = found.binaries, found.profile.launches
    assert text_of(binary.cubin) == text_of(first.compiled.asm["cubin"])
    assert launch.model_copy(update={"fingerprint": None}) == before.model_copy(
        update={"fingerprint": None}
    )
    assert any("tl." in line.text or ".load(" in line.text for line in launch.lines)
    assert binary.name == first.compiled.metadata.name
    assert binary.profile_bytes == 0


@pytest.mark.parametrize("kind", ["pipelined product", "division", "specialised warps"])
def test_without_its_instructions_a_kernel_is_described_as_with_them(kind: str) -> None:
    plan = plan_of(KINDS[kind]())
    whole, brief = compile_plan(plan, H200), compile_plan(plan, H200, brief=True)
    assert brief.binaries == whole.binaries
    (full,), (short,) = whole.profile.launches, brief.profile.launches
    for fact in ("registers", "spill_bytes", "shared_bytes", "occupancy", "threads", "lowering"):
        assert getattr(short, fact) == getattr(full, fact), fact
    assert full.instruction_mix and not short.instruction_mix and short.load_bits is None


def test_equal_code_is_known_without_its_instructions() -> None:
    def told(**options: Any) -> str | None:
        plan = plan_of(scale(**options))
        lower = plan.kernels[0].ttir.replace('.py":', '.py":9')  # the same code on other lines
        moved = plan.with_values(kernels=[plan.kernels[0].with_values(ttir=lower)])
        prints = {compile_plan(p, H200, brief=True).profile.fingerprint for p in (plan, moved)}
        assert lower != plan.kernels[0].ttir and len(prints) == 1
        return prints.pop()

    assert told() == told(num_stages=5)  # nothing is pipelined
    assert told() != told(num_warps=8)
    assert told() != told(maxnreg=32)


def binary_of(kind: str) -> Any:
    return compile_plan(plan_of(KINDS[kind]()), H200).binaries[0]


def test_what_a_launch_needs_is_told() -> None:
    plain = binary_of("elementwise")
    assert (plain.threads, plain.shared_bytes, plain.cluster) == (128, 0, (1, 1, 1))
    assert (plain.cooperative, plain.dependent, plain.scratch_bytes) == (False, False, 0)
    assert plain.descriptors is None
    assert binary_of("cooperative").cooperative
    assert binary_of("dependent").dependent
    assert binary_of("cluster").cluster == (2, 1, 1)
    assert binary_of("pipelined product").shared_bytes == 3 * 2 * 128 * 64 * 2
    on_device = binary_of("device descriptors")
    assert (on_device.scratch_bytes, on_device.scratch_align) == (2 * 128, 128)
    assert on_device.descriptors is None
    on_host = binary_of("host descriptors").descriptors
    assert [told["block_size"] for told in on_host] == [[64, 64], [64, 64]]


def test_warps_that_specialisation_adds_are_counted() -> None:
    first = kernels.specialised()
    asked = first.kernel.options["num_warps"] * 32
    (binary,) = compile_plan(plan_of(first), H200).binaries
    assert binary.threads > asked
    assert f".reqntid {binary.threads}" in first.compiled.asm["ptx"]


def with_options(**options: Any) -> Plan:
    first = scale()
    told = first.kernel.model_copy(update={"options": {**first.kernel.options, **options}})
    return plan_of(first).model_copy(update={"kernels": [told]})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("extern_libs", {"libdevice": "/tmp/own.bc"}),
        ("ptx_options", "--opt-level 0"),
        ("ir_override", "/tmp/own.ttgir"),
        ("debug", True),
        ("backend_name", "hip"),
        ("instrumentation_mode", "consan"),
        ("ptx_version", 80),
        ("arch", "sm80"),
        ("warp_size", 64),
        ("invented", 1),
        ("invented", None),
    ],
)
def test_other_options_are_refused(name: str, value: object) -> None:
    with pytest.raises(CompileFailed, match=f"asks for {name}=.*num_warps"):
        compile_plan(with_options(**{name: value}), H200)


def test_all_options_may_be_told_where_they_are_as_usual() -> None:
    metadata = scale().compiled.metadata
    usual = {
        name: getattr(metadata, name)
        for name in ("debug", "backend_name", "ptx_options", "extern_libs", "arch", "warp_size")
    }
    compile_plan(with_options(**usual, supported_fp8_dtypes=metadata.supported_fp8_dtypes), H200)


def changed_ir(change: Callable[[str], str]) -> Plan:
    first = scale()
    told = first.kernel.model_copy(update={"ttir": change(first.kernel.ttir)})
    assert told.ttir != first.kernel.ttir
    return plan_of(first).model_copy(update={"kernels": [told]})


UNREADABLE = "scale_kernel does not compile for H200 SXM: "


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda ttir: "", "not the IR of one Triton function"),
        (lambda ttir: ttir.replace("@scale_kernel", '@"../scale"'), "not the IR of one"),
        (lambda ttir: ttir[: len(ttir) // 2], UNREADABLE),
        (lambda ttir: ttir.replace("tt.store", "tt.invented"), UNREADABLE),
        (lambda ttir: ttir.replace("tensor<1024xf32>", "tensor<1000xf32>"), UNREADABLE),
    ],
    ids=["empty", "a name with a path", "cut", "unknown operation", "no power of two"],
)
def test_broken_ir_is_a_reason(change: Callable[[str], str], reason: str) -> None:
    with pytest.raises(CompileFailed, match=reason):
        compile_plan(changed_ir(change), H200)


def test_a_name_that_is_a_path_is_refused() -> None:
    plan = plan_of(scale())
    named = plan.kernels[0].model_copy(update={"name": "../scale"})
    with pytest.raises(CompileFailed, match="no name of a kernel"):
        compile_plan(plan.model_copy(update={"kernels": [named]}), H200)


def test_what_the_gpu_would_refuse_is_said() -> None:
    with pytest.raises(CompileFailed, match=r"shared memory a block, H200.*fewer stages"):
        compile_plan(plan_of(kernels.dot(num_stages=8)), H200)
    with pytest.raises(CompileFailed, match=r"2048 threads a block.*fewer warps"):
        compile_plan(plan_of(scale(num_warps=64)), H200)
    with pytest.raises(CompileFailed, match=r"grid \(1073741824, 1, 1\) exceeds"):
        compile_plan(plan_of(scale(num_ctas=2), (1 << 30, 1, 1)), H200)


def test_plans_of_another_triton_or_gpu_are_refused() -> None:
    plan = plan_of(scale())
    with pytest.raises(CompileFailed, match=r"made by Triton 3\.1\.0"):
        compile_plan(plan.model_copy(update={"triton": "3.1.0"}), H200)
    with pytest.raises(CompileFailed, match="compute capability 90"):
        compile_plan(plan, find_gpu("a100"))


def test_settings_that_change_code_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DISABLE_PTXAS_OPT", "1")
    with pytest.raises(BeamsearchError, match="DISABLE_PTXAS_OPT changes what Triton compiles"):
        compile_plan(plan_of(scale()), H200)


def test_a_cache_is_not_believed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Given a cache in which a candidate has put another machine code under this IR's name
    first, other = scale(), scale(2048)
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    source = tmp_path / "scale_kernel.ttir"
    source.write_text(first.kernel.ttir)
    target, options = first.compiled.metadata.target, first.kernel.options
    triton.compile(str(source), target=target, options=options)
    for cubin in tmp_path.rglob("*.cubin"):
        cubin.write_bytes(other.compiled.asm["cubin"])
    poisoned = triton.compile(str(source), target=target, options=options)
    assert text_of(poisoned.asm["cubin"]) == text_of(other.compiled.asm["cubin"])
    # When the plan is compiled
    (binary,) = compile_plan(plan_of(first), H200).binaries
    # Then it is what its IR says
    assert text_of(binary.cubin) == text_of(first.compiled.asm["cubin"])
    assert os.environ["TRITON_CACHE_DIR"] == str(tmp_path)


def test_lines_are_told_of_sources_only(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("hidden\n" * 100)
    plan = plan_of(scale())
    for path in (secret, Path("/dev/zero"), tmp_path / "absent.py"):
        named = plan.kernels[0].model_copy(update={"source_file": str(path)})
        found = compile_plan(plan.model_copy(update={"kernels": [named]}), H200)
        assert {line.text for line in found.profile.launches[0].lines} == {""}


def test_equal_kernels_are_compiled_once(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled: list[str] = []
    compile_one = triton.compile

    def count(path: str, **rest: Any) -> Any:
        compiled.append(path)
        return compile_one(path, **rest)

    plan, other = plan_of(scale()), scale(num_warps=8).kernel
    monkeypatch.setattr(triton, "compile", count)
    (launch,) = plan.launches
    again = [launch.model_copy(update={"kernel": number}) for number in (1, 2)]
    several = {"kernels": [plan.kernels[0], plan.kernels[0], other], "steps": [launch, *again]}
    found = compile_plan(plan.model_copy(update=several), H200)
    assert len(compiled) == 2
    assert [binary.threads for binary in found.binaries] == [128, 128, 256]
    assert [launch.threads for launch in found.profile.launches] == [128, 128, 256]


def test_importing_is_cheap() -> None:
    code = (
        "import sys, beamsearch.judge.capture.compiling\n"
        "assert not {'torch', 'triton', 'numpy'} & sys.modules.keys()"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
