"""Counters that say something, of two kernels."""

import pytest

from beamsearch.report.counters import (
    TRAFFIC,
    bank_conflicts,
    below_least,
    changed,
    counters,
    finding_measured,
    hottest,
    is_unchanged,
    scope,
    waits,
)
from kernel_profiling.profile import FindingKind, Launch, LineCounters, Profile


def profile(matrix: int = 0, dram: float = 2.126e9, **metrics: float) -> Profile:
    launch = Launch(
        name="k", triton=True, grid=(1, 1, 1), threads=128, registers=32, metrics=metrics
    )
    launch = launch.with_values(matrix_instructions=matrix, spill_bytes=0)
    return Profile(source="ncu", gpu="H200", launches=[launch], traffic={"dram": dram})


def names(before: Profile | None, after: Profile | None) -> list[str]:
    return [row.name for row in counters(before, after)]


def test_what_is_nothing_in_both_kernels_is_left_out():
    quiet = profile(fp64_busy=0.0, l1_hit_rate=0.2, dram_busy=90.0, atomic_sectors=0.0)
    assert names(quiet, quiet) == ["traffic at dram", "registers", "dram busy"]
    assert names(None, quiet) == names(quiet, quiet)
    assert "l1 hit rate" in names(quiet, profile(l1_hit_rate=30.0))
    assert "atomic sectors" in names(profile(atomic_sectors=5.0), quiet)


def test_large_amounts_are_told_in_their_units():
    one = profile(dram=2.126e9, sm_clock_hz=1.75e9, dram_read_bytes=999_999.0, instructions=2.5e6)
    two = profile(dram=0.5e9, sm_clock_hz=1.5e9, dram_read_bytes=4.0, instructions=9000.0)
    told = {row.name: (row.before, row.after, row.told) for row in counters(one, two)}
    assert told["traffic at dram"] == ("2.126", "0.5", f"GB: {TRAFFIC['dram']}")
    assert told["sm clock hz"][:2] == ("1.75", "1.5")
    assert told["sm clock hz"][2].startswith("GHz: ")
    assert told["dram read bytes"][:2] == ("999,999", "4")
    assert told["dram read bytes"][2].startswith("byte: ")
    assert told["instructions"][:2] == ("2,500,000", "9000")


def test_matrix_units_are_told_of_where_a_matrix_instruction_ran():
    assert "matrix busy" not in names(profile(matrix_busy=3.0), profile(matrix_busy=8.0))
    found = names(profile(matrix_busy=3.0), profile(matrix=64, matrix_busy=8.0))
    assert "matrix busy" in found and "matrix instructions" in found
    unknown = profile(matrix_busy=60.0)
    launch = unknown.launches[0].with_values(matrix_instructions=None)
    assert "matrix busy" in names(None, unknown.with_values(launches=[launch]))


def test_less_than_the_least_bytes_has_a_reason():
    told = below_least(profile(), 2_147_483_648)
    assert told.startswith("2.126 GB at device memory are less than the least bytes, 2.147 GB: ")
    assert "still in the L2" in told
    assert below_least(profile(dram=2.2e9), 2_147_483_648) == "" == below_least(None, 1)


def test_what_is_counted_over_the_call_is_told_from_what_one_launch_did():
    one = profile()
    short, long = (
        one.launches[0].with_values(name=n, share=s) for n, s in (("a", 0.2), ("b", 0.8))
    )
    both = one.with_values(launches=[short, long])
    assert scope(one, one) == "" == scope(None, one)
    told = "traffic is of the whole call, the rest of its longest launch: "
    assert scope(None, both) == told + "b"
    assert scope(one, both) == told + "k and b"


def test_what_differs_clearly_between_two_kernels_is_told():
    before = profile(dram=2.0e9, issue_busy=20.0, achieved_occupancy=50.0, dram_busy=3.0)
    after = profile(dram=0.9e9, issue_busy=57.0, achieved_occupancy=51.0, dram_busy=8.0)
    launches = [after.launches[0].with_values(registers=162)] * 2
    told = changed(before, after.with_values(launches=launches))
    assert told == [
        "device memory moves 2 GB, now 0.9 GB",
        "launches 1, now 2",
        "in the longest launch registers a thread 32, now 162, issue slots used 20%, now 57%",
    ]
    assert changed(before, before) == [] == changed(None, after)
    slow = before.with_values(launches=[before.launches[0].with_values(duration_us=1647.0)])
    fast = before.with_values(launches=[before.launches[0].with_values(duration_us=1799.0)])
    assert changed(slow, fast) == ["in the longest launch 1.647 ms, now 1.799 ms"]
    assert changed(slow, fast, "~") == ["in the longest launch ~1.647 ms, now ~1.799 ms"]


def test_the_hottest_lines_are_those_of_the_launches_that_take_long():
    line = LineCounters(line=3, text="a")
    short = Launch(name="a", triton=True, grid=(1, 1, 1), threads=32, share=0.1)
    short = short.with_values(lines=[line.with_values(stall_share=0.9)])
    waits = {"memory": 0.6, "barrier": 0.35, "branch": 0.05}
    last = [
        line.with_values(line=7, stall_share=0.6, stall_reasons=waits),
        line.with_values(line=8, stall_share=0.001),
    ]
    long = short.with_values(share=0.9, lines=last)
    both = profile().with_values(launches=[short, long])
    told = "Most of the stalls are on line 7 (54%: memory 60%, barrier 35%), line 3 (9%)."
    assert hottest(both, "") == told
    assert hottest(None, "") == ""
    source = (
        "x = 1\n" * 5 + "y = tl.inline_asm_elementwise(\n    'add', '=r', [x], tl.int32, True, 1)\n"
    )
    also = " Line 7 stands for inline assembly: a profile counts all of its instructions there"
    assert hottest(both, source).startswith(told + also)


def test_waiting_is_told_in_one_unit():
    before = profile(stall_memory=7.6, idle_memory=0.5, idle_barrier=0.18)
    after = profile(stall_memory=1.2, idle_memory=0.16, idle_barrier=0.19)
    rows = {row.name: row for row in counters(before, after)}
    assert "stall memory" not in rows and "stall memory" in names(None, profile(stall_memory=1.2))
    assert (rows["wait for memory"].before, rows["wait for memory"].after) == ("50", "16")
    assert changed(before, after) == [
        "in the longest launch waits for memory 50% of the time, now 16%"
    ]
    assert waits(after.launches[0]) == [("barriers", 0.19), ("memory", 0.16)]


def test_bank_conflicts_are_a_share_of_the_passes():
    one = profile(shared_wavefronts=100.0, bank_conflicts=40.0).launches[0]
    few = profile(shared_wavefronts=100.0, bank_conflicts=4.0).launches[0]
    told = "40% of its passes through shared memory are bank conflicts"
    assert bank_conflicts(one, few) == f"{told} (in the input kernel 4%)."
    assert bank_conflicts(one, None) == f"{told}." and bank_conflicts(few, one) == ""
    assert bank_conflicts(profile().launches[0], one) == ""


@pytest.mark.parametrize(
    ("kind", "told"),
    [
        (FindingKind.OCCUPANCY, "12% of an SM's warps, now 30%"),
        (FindingKind.SYNCHRONISATION, "18% of the time waiting at barriers, now 29%"),
        (FindingKind.MANY_LAUNCHES, "1 launches, now 2"),
        (FindingKind.EXCESS_TRAFFIC, "device memory moves 2 GB, now 1 GB"),
        (FindingKind.SPILLS, "0 bytes spilled, now 0"),
        (FindingKind.ATOMICS, ""),
        (FindingKind.AT_FLOOR, ""),
        ("another package's", ""),
    ],
)
def test_a_finding_is_told_by_its_measure_in_both_kernels(kind, told):
    before = profile(dram=2e9, achieved_occupancy=12.1, idle_barrier=0.18)
    after = profile(dram=1e9, achieved_occupancy=30.0, idle_barrier=0.29)
    after = after.with_values(launches=[*after.launches, after.launches[0]])
    assert finding_measured(kind, before, after) == told
    assert finding_measured(kind, before, None) == ""


def test_a_measure_says_whether_it_changed():
    one = profile(dram=2e9, achieved_occupancy=12.1)
    near, other = profile(achieved_occupancy=12.2), profile(achieved_occupancy=30.0)
    assert is_unchanged(FindingKind.OCCUPANCY, one, near), "12% in both"
    assert not is_unchanged(FindingKind.OCCUPANCY, one, other)
    assert is_unchanged(FindingKind.SPILLS, one, other)
    for kind in (FindingKind.EXCESS_TRAFFIC, FindingKind.ATOMICS, "another package's"):
        assert not is_unchanged(kind, one, one), "nothing that is told twice"
    assert not is_unchanged(FindingKind.OCCUPANCY, one, None)
    before, after = profile(matrix_flops=1.455e12), profile(matrix_flops=1.288e12)
    told = "1,455 GFLOP in the matrix units, now 1,288"
    assert finding_measured(FindingKind.EXCESS_ARITHMETIC, before, after) == told
