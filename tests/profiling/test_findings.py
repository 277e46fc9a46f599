"""Findings for the problems' first kernels as measured on an H200, and for what can be missing.

The floors use the bandwidths measured on the same machine; the stories were worked out by hand.
A `.profile.json` is what `read_report` made of a report that is too large to keep here.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from kernel_profiling.findings.findings import find
from kernel_profiling.ncu.report import read_report
from kernel_profiling.profile import Finding, FindingKind, Floor, Launch, LineCounters, Profile

DATA = Path(__file__).parents[1] / "data"
# Least bytes, FLOPs and GB/s of the nearest of read, copy and write.
WORK = {
    "04": (4.297e9, 4.3e9, 4600),
    "36": (7.516e9, 7.5e9, 4297),
    "43": (2.391e9, 0, 4600),
    "77": (0.302e9, 29.0e9, 3375),
    "82": (1.070e9, 4.8e9, 4297),
}


def profile_of(number: str) -> Profile:
    kept = DATA / f"input_{number}.profile.json"
    if kept.exists():
        return Profile.model_validate_json(kept.read_text())
    return read_report(DATA / f"input_{number}.ncu-rep")


def floor_of(number: str) -> Floor:
    least_bytes, flops, bandwidth = WORK[number]
    return Floor(
        least_bytes=int(least_bytes),
        flops=int(flops),
        bandwidth_gb_s=bandwidth,
        flops_rate_tflop_s=718,
        bandwidth_source="measured",
        gpu="NVIDIA H200",
    )


def findings_of(number: str, time_ms: float | None = None) -> list[Finding]:
    return find(profile_of(number), floor_of(number), time_ms)


def kinds(findings: list[Finding]) -> list[FindingKind]:
    return [finding.kind for finding in findings]


def test_lanes_that_hold_the_same_elements_are_not_called_switched_off():
    profile = profile_of("77")
    launch = profile.launches[0]
    masked = [line for line in launch.lines if (line.load_lanes_on or 32) < 16]
    assert masked and FindingKind.DIVERGENCE in kinds(find(profile, None, None))
    even = [
        line.with_values(load_lanes_on=2.0) if line in masked else line for line in launch.lines
    ]
    metrics = launch.metrics | {"load_lanes_on": 2.0}
    again = profile.with_values(launches=[launch.with_values(lines=even, metrics=metrics)])
    assert FindingKind.DIVERGENCE not in kinds(find(again, None, None))


def test_depthwise_is_drowned_in_index_arithmetic_of_two_byte_loads() -> None:
    findings = findings_of("82")

    assert kinds(findings)[:2] == [FindingKind.INTEGER_OVERHEAD, FindingKind.NARROW_ACCESS]
    integer, narrow = findings[:2]
    assert 28 in integer.lines and 28 in narrow.lines
    assert {16, 20} <= set(integer.lines), "where it divides by channels and by out_w"
    assert 3 < integer.gain_bound < 7.4, "no more than the multiple of the floor"
    assert "16 bits" in narrow.title
    # Rows that start anywhere in a sector are no disorder, and the L1 is 20% busy.
    assert FindingKind.UNCOALESCED not in kinds(findings)
    assert FindingKind.OCCUPANCY not in kinds(findings), "44%, but the integer pipe is full"
    assert FindingKind.EXCESS_TRAFFIC not in kinds(findings)


def test_pooling_is_index_arithmetic_too_with_scattered_lanes_behind_it() -> None:
    findings = findings_of("43")

    assert findings[0].kind == FindingKind.INTEGER_OVERHEAD
    assert set(kinds(findings)) == {
        FindingKind.INTEGER_OVERHEAD,
        FindingKind.NARROW_ACCESS,
        FindingKind.OCCUPANCY,
        FindingKind.UNCOALESCED,
    }
    few = next(f for f in findings if f.kind == FindingKind.OCCUPANCY)
    assert few.seen_as == [FindingKind.LATENCY], "one bound: what it waits for is more warps"
    scattered = next(f for f in findings if f.kind == FindingKind.UNCOALESCED)
    assert scattered.lines == [31]
    assert "15.3 times" in scattered.title


def test_transposed_convolution_leads_with_the_idle_matrix_units() -> None:
    findings = findings_of("77")

    assert findings[0].kind == FindingKind.IDLE_MATRIX_UNITS
    assert "624 times above the floor" in findings[0].title
    assert findings[1].kind == FindingKind.DIVERGENCE, "work on outputs that no input reaches"
    assert findings[1].lines == [39]
    assert FindingKind.ISSUE_BOUND in kinds(findings)
    assert FindingKind.LATENCY not in kinds(findings)[:3]
    assert FindingKind.EXCESS_TRAFFIC not in kinds(findings)


def test_rms_norm_reads_twice() -> None:
    findings = findings_of("36")

    assert kinds(findings) == [FindingKind.EXCESS_TRAFFIC]
    assert findings[0].gain_bound == pytest.approx(11.254 / 7.516, abs=0.01)
    assert {17, 23} <= set(findings[0].lines), "the two loads of x"


def test_matvec_has_little_left() -> None:
    findings = findings_of("04")

    assert kinds(findings) == [FindingKind.LATENCY]
    assert findings[0].gain_bound == pytest.approx(1.07, abs=0.01)
    assert kinds(findings_of("04", time_ms=0.96)) == [FindingKind.AT_FLOOR]
    assert FindingKind.AT_FLOOR not in kinds(findings_of("04", time_ms=0.99))


def test_bounds_never_exceed_the_multiple_of_the_floor() -> None:
    for number in WORK:
        floor = floor_of(number)
        for time_ms in (1.2 * floor.time_ms, 3 * floor.time_ms):
            findings = find(profile_of(number), floor, time_ms)
            assert all(f.gain_bound <= time_ms / floor.time_ms + 1e-9 for f in findings)


def test_launches_of_a_library_and_many_launches() -> None:
    profile = profile_of("82")
    own = profile.launches[0].model_copy(update={"share": 0.75})
    other = Launch(
        name="sum_functor",
        triton=False,
        grid=(9, 1, 1),
        threads=128,
        duration_us=own.duration_us / 3 if own.duration_us else None,
        share=0.25,
    )
    findings = find(profile.model_copy(update={"launches": [own, other]}), floor_of("82"), None)

    bounds = {finding.kind: finding.gain_bound for finding in findings}
    assert bounds[FindingKind.LIBRARY_TIME] == pytest.approx(4 / 3)
    assert bounds[FindingKind.MANY_LAUNCHES] == pytest.approx(4 / 3)
    alone = findings_of("82")[0].gain_bound
    assert bounds[FindingKind.INTEGER_OVERHEAD] == pytest.approx(1 / (0.25 + 0.75 / alone))


def test_a_call_longer_than_its_kernels_is_launch_bound() -> None:
    assert FindingKind.LAUNCH_BOUND in kinds(findings_of("82", time_ms=4.0))
    assert FindingKind.LAUNCH_BOUND not in kinds(findings_of("82", time_ms=1.9))


def test_what_is_missing_is_not_taken_for_zero() -> None:
    bare = Launch(name="k", triton=True, grid=(132, 1, 1), threads=128)

    assert find(Profile(source="ncu", gpu="NVIDIA H200", launches=[bare]), None, None) == []
    assert (
        find(Profile(source="ncu", gpu="NVIDIA H200", launches=[bare]), floor_of("77"), 9.0) == []
    )
    assert find(Profile(source="compiler", gpu="h200", launches=[]), floor_of("77"), 9.0) == []
    # No floor: the counters still speak, and what needs the floor is silent.
    assert kinds(find(profile_of("77"), None, None))[0] == FindingKind.DIVERGENCE


def compiled(**launch: object) -> Profile:
    fields = {"name": "k", "triton": True, "grid": (4096, 1, 1), "threads": 128} | launch
    return Profile(source="compiler", gpu="h200", launches=[Launch.model_validate(fields)])


def test_the_compilers_profile_says_what_it_can() -> None:
    load = LineCounters(line=7, text="x = tl.load(p)", instruction_share=0.5, load_bits=16)
    profile = compiled(
        instruction_mix={"integer": 70, "float": 20, "global_load": 10},
        lines=[load],
        occupancy=0.25,
        occupancy_limiter="registers",
        registers=128,
        spill_bytes=0,
        matrix_instructions=0,
    )

    found = {f.kind: f for f in find(profile, None, None)}
    assert set(found) == {
        FindingKind.INTEGER_OVERHEAD,
        FindingKind.NARROW_ACCESS,
        FindingKind.OCCUPANCY,
    }
    assert found[FindingKind.INTEGER_OVERHEAD].gain_bound == pytest.approx(1 / 0.3)
    assert found[FindingKind.NARROW_ACCESS].lines == [7]
    assert "static" in " ".join(found[FindingKind.INTEGER_OVERHEAD].evidence)

    with_floor = {f.kind: f for f in find(profile, floor_of("77"), 2.0)}
    assert with_floor[FindingKind.IDLE_MATRIX_UNITS].gain_bound == pytest.approx(
        2.0 / floor_of("77").time_ms
    )


def test_a_modelled_kernel_that_streams_is_not_told_to_save_instructions() -> None:
    floor = floor_of("36")
    profile = compiled(instruction_mix={"integer": 70, "float": 30}).model_copy(
        update={"traffic": {"dram": 1.5 * floor.least_bytes}, "modelled_ms": 1.6 * floor.time_ms}
    )

    findings = find(profile, floor, None)
    assert kinds(findings)[0] == FindingKind.EXCESS_TRAFFIC
    assert findings[0].gain_bound == pytest.approx(1.5, abs=0.01)
    assert FindingKind.INTEGER_OVERHEAD not in kinds(findings)


@pytest.mark.parametrize(("blocks", "bound"), [(8, 132 / 8), (132, None), (200, 2 * 132 / 200)])
def test_too_few_blocks(blocks: int, bound: float | None) -> None:
    profile = compiled(grid=(blocks, 1, 1), occupancy=1.0)

    tail = [f for f in find(profile, None, None) if f.kind == FindingKind.TAIL]
    assert [f.gain_bound for f in tail] == ([pytest.approx(bound)] if bound else [])


def test_idle_sms_are_told_from_waiting_warps() -> None:
    profile = profile_of("36")
    (launch,) = profile.launches
    # The same launch as it would look on 8 of 132 SMs: every unit busy for 8/132 of what it was.
    metrics = {
        name: value * 8 / 132 if name.endswith("_busy") or name == "active_cycles" else value
        for name, value in launch.metrics.items()
    }
    metrics |= {"duration_us": launch.metrics["duration_us"] * 132 / 8}
    few = launch.model_copy(
        update={"metrics": metrics, "grid": (8, 1, 1), "duration_us": metrics["duration_us"]}
    )

    findings = find(profile.model_copy(update={"launches": [few]}), floor_of("36"), None)
    assert findings[0].kind == FindingKind.TAIL
    assert findings[0].gain_bound == pytest.approx(132 / 8, rel=0.05)
    assert "8 blocks" in findings[0].evidence[0]


@pytest.mark.parametrize(
    ("number", "top"),
    [("77", FindingKind.IDLE_MATRIX_UNITS), ("82", FindingKind.INTEGER_OVERHEAD)],
)
def test_the_compiler_alone_tells_the_story_of_the_counters(number: str, top: FindingKind) -> None:
    torch = pytest.importorskip("torch")
    pytest.importorskip("triton")
    from kernel_profiling.gpus import find_gpu
    from tools.compiled import compiled

    path = next((DATA.parents[1] / "problems").glob(f"{number}_*/input_kernel.py"))
    spec = importlib.util.spec_from_file_location(f"input_kernel_{number}", path)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)

    def tensor(*shape: int) -> object:
        return torch.empty(*shape, dtype=torch.bfloat16, device="meta")

    arguments = {
        "77": (tensor(16, 32, 16, 32, 32), tensor(32, 64, 3, 3, 3), (2,) * 3, (1,) * 3, (2,) * 3),
        "82": (tensor(16, 64, 512, 512), tensor(64, 1, 3, 3), (1, 1), (0, 0)),
    }[number]
    profile = compiled(lambda: module.kernel_function(*arguments), find_gpu("h200"))

    findings = find(profile, floor_of(number), None)
    assert findings[0].kind == top
    assert FindingKind.NARROW_ACCESS in kinds(findings)
    measured = profile_of(number).launches[0]
    assert profile.launches[0].registers == measured.registers
    assert (
        profile.launches[0].instruction_mix["global_load"]
        == (measured.instruction_mix["global_load"])
    )


def halves(number: str, share_of_bytes: float) -> Profile:
    """A recorded kernel as if two launches did its work, each with this part of its bytes."""
    (whole,) = profile_of(number).launches
    bytes_ = {n: whole.metrics[n] * share_of_bytes for n in ("dram_read_bytes", "dram_write_bytes")}
    one = whole.model_copy(update={"share": 0.5, "metrics": whole.metrics | bytes_})
    return profile_of(number).model_copy(update={"launches": [one, one]})


def test_what_several_launches_hand_over_through_memory_is_one_fault() -> None:
    found = find(halves("36", 0.5), floor_of("36"), None)
    many = next(f for f in found if f.kind == FindingKind.MANY_LAUNCHES)
    assert many.seen_as == [FindingKind.EXCESS_TRAFFIC] and {17, 23} <= set(many.lines)
    assert FindingKind.EXCESS_TRAFFIC not in kinds(found)
    assert any("GB at device memory" in line for line in many.evidence)

    # Where one launch alone moves too much, fusing it with others is not the remedy
    found = find(halves("36", 1.0), floor_of("36"), None)
    assert {FindingKind.MANY_LAUNCHES, FindingKind.EXCESS_TRAFFIC} <= set(kinds(found))


def test_every_bound_says_what_it_takes_for_granted() -> None:
    for number in WORK:
        assert all(finding.assumes for finding in findings_of(number))


def test_spills_that_hardly_ever_run_are_not_worth_their_line_s_waits() -> None:
    profile = profile_of("82")
    (launch,) = profile.launches
    first = launch.lines[0]
    for share, is_there in ((0.004, False), (0.4, True)):
        line = first.model_copy(
            update={
                "instructions": 1000,
                "spill_instructions": round(1000 * share),
                "stall_share": 0.65,
            }
        )
        spilling = launch.model_copy(update={"spill_bytes": 64, "lines": [line]})
        changed = profile.model_copy(update={"launches": [spilling]})
        assert (FindingKind.SPILLS in kinds(find(changed, floor_of("82"), None))) is is_there


def test_where_no_counter_names_a_fault_launch_parameters_are_what_is_left() -> None:
    profile, floor = profile_of("04"), floor_of("04")
    quiet = profile.model_copy(
        update={
            "launches": [
                one.model_copy(update={"metrics": {}, "lines": [], "rules": []})
                for one in profile.launches
            ]
        }
    )
    (found,) = find(quiet, floor, None)
    assert found.kind == FindingKind.LAUNCH_PARAMETERS
    assert found.gain_bound == pytest.approx(1.07, abs=0.01)
    assert "warps" in found.evidence[0] and "registers" in found.evidence[0]
    assert FindingKind.LAUNCH_PARAMETERS not in kinds(findings_of("04"))


def with_products(ratio: float, products: str = "bfloat16") -> tuple[Profile, Floor]:
    """A launch whose matrix units, its busiest, do so many times the problem's products."""
    known = profile_of("77")
    metrics = {"matrix_flops": ratio * 1e12, "matrix_busy": 80.0, "dram_busy": 30.0}
    launch = known.launches[0].with_values(metrics=metrics, matrix_instructions=8)
    floor = floor_of("77").with_values(flops=int(1e12), products=products)
    return known.with_values(launches=[launch]), floor


def test_tiles_beyond_the_problems_sizes_are_products_in_vain() -> None:
    excess = [f for f in find(*with_products(1.6), 4.0) if f.kind == "excess_arithmetic"]
    assert "1.60 times the products" in excess[0].title
    assert "1600 GFLOP on the matrix units; the problem has 1000" in excess[0].evidence
    assert excess[0].gain_bound == pytest.approx(1.6, rel=0.01)
    assert "excess_arithmetic" not in kinds(find(*with_products(1.05), 2.0))


def test_products_in_vain_are_on_lines_of_products() -> None:
    def line(number: int, text: str, share: float) -> LineCounters:
        return LineCounters(line=number, text=text, instruction_share=share)

    profile, floor = with_products(1.6)
    dot, other = line(7, "acc = tl.dot(a, b, acc)", 0.1), line(9, "y = tl.erf(x)", 0.6)
    main = profile.launches[0].with_values(lines=[dot, other], share=0.9)
    small = main.with_values(lines=[line(3, "w = tl.load(p)", 1.0)], share=0.1)

    def lines(*launches: Launch) -> list[int]:
        found = find(profile.with_values(launches=list(launches)), floor, 4.0)
        return next(f.lines for f in found if f.kind == "excess_arithmetic")

    assert lines(main, small) == [7]
    assert lines(main.with_values(lines=[other]), small) == [9, 3]


def test_three_products_of_tf32_are_what_one_of_float32_takes() -> None:
    assert "excess_arithmetic" not in kinds(find(*with_products(3.0, "float32"), 2.0))
    assert "excess_arithmetic" in kinds(find(*with_products(3.0, "tf32"), 2.0))


def measured(metrics: dict[str, float], *lines: LineCounters) -> Launch:
    """The one launch of a call, of 1 ms."""
    fields = {"name": "k", "triton": True, "grid": (4096, 1, 1), "threads": 128, "share": 1.0}
    fields |= {"duration_us": 1000, "metrics": metrics, "lines": list(lines)}
    return Launch.model_validate(fields)


def waiting(name: str, line: int, share: float, **reasons: float) -> LineCounters:
    return LineCounters(line=line, text=name, stall_share=share, stall_reasons=reasons)


def test_barriers_name_the_lines_that_wait_longest_and_hide_no_other_long_wait() -> None:
    lines = [waiting(f"dot {n}", n, n / 100, barrier=0.8, memory=0.2) for n in range(1, 9)]
    loop = waiting("for t in range(n):", 20, 0.6, memory=1.0)
    metrics = {"idle_barrier": 0.4, "idle_memory": 0.3, "l2_busy": 50.0}
    launch = measured(metrics, *lines, loop)
    profile = Profile(source="ncu", gpu="NVIDIA H200", launches=[launch])
    found = {f.kind: f for f in find(profile, None, 1.0)}
    barrier = found[FindingKind.SYNCHRONISATION]
    assert barrier.lines == [8, 7, 6, 5, 4]
    assert barrier.evidence[0] == "line 8: 6% of all stalls, at a barrier: dot 8"
    reduced = launch.with_values(inlined_stalls={"barrier": 0.25, "memory": 0.1})
    found_there = find(profile.with_values(launches=[reduced]), None, 1.0)
    told = next(f for f in found_there if f.kind == FindingKind.SYNCHRONISATION).evidence
    assert told[0] == "inside reductions or scans: 25% of all stalls, at a barrier"
    latency = found[FindingKind.LATENCY]
    assert "warps wait for memory" in latency.title and 20 in latency.lines
    assert latency.gain_bound == pytest.approx(1 / 0.7)

    short = launch.with_values(metrics=launch.metrics | {"idle_memory": 0.1})
    found = {f.kind: f for f in find(profile.with_values(launches=[short]), None, 1.0)}
    assert FindingKind.LATENCY not in found


def test_bytes_that_blocks_are_copied_for_are_not_put_on_lines_that_store() -> None:
    floor = floor_of("77")
    least = floor.least_bytes
    store = LineCounters(line=9, text="store", sectors_per_request=4, instructions=100)
    load = LineCounters(line=3, text="x_desc.load([m, k])", copies=10)

    def traffic(copied: float, *lines: LineCounters) -> Finding:
        launch = measured({"tma_read_bytes": copied, "l2_busy": 90.0}, *lines)
        moved = {"l2": 10.0 * least}
        profile = Profile(source="ncu", gpu="NVIDIA H200", launches=[launch], traffic=moved)
        found = find(profile, floor, 10 * floor.time_ms)
        return next(f for f in found if f.kind == FindingKind.EXCESS_TRAFFIC)

    copied = traffic(9 * least, store, load)
    assert copied.lines == [3]
    assert f"{9 * least / 1e9:.3f} GB of it is read by copies of whole blocks" in copied.evidence
    assert traffic(9 * least, store).lines == []
    assert traffic(least, store, load).lines == [9]
