"""The curated metrics: one table that readers, prompts, pages and docs share."""

from __future__ import annotations

from kernel_profiling.profile import Record

PEAK = ".avg.pct_of_peak_sustained_elapsed"


class Metric(Record):
    """One number of a launch: what we call it, what Nsight Compute calls it, what it means."""

    name: str
    group: str
    ncu: tuple[str, ...] = ()
    """Nsight Compute's names; the first that the report holds is taken (names differ by chip). None
    for what is computed from counters of instructions."""
    unit: str
    meaning: str
    scale: float = 1.0
    """What the report's number is multiplied by to get `unit`."""


def _read(table: str) -> tuple[Metric, ...]:
    """`[group]`, then for each metric `name unit: meaning` and, indented, Nsight Compute's names,
    in which % stands for PEAK."""
    metrics: list[Metric] = []
    group = ""
    for line in table.strip().splitlines():
        if line.startswith("["):
            group = line.strip("[]")
        elif not line.startswith(" "):
            head, meaning = line.split(": ", 1)
            name, unit = head.split()
            metrics.append(Metric(name=name, group=group, unit=unit, meaning=meaning))
        else:
            names, _, scale = line.partition(" * ")
            ncu = (*metrics[-1].ncu, *names.replace("%", PEAK).split())
            metrics[-1] = metrics[-1].with_values(ncu=ncu, scale=float(scale or 1))
    return tuple(metrics)


METRICS = _read("""
[time]
duration_us us: time of the launch on the GPU
    gpu__time_duration.sum * 0.001
sm_clock_hz Hz: clock while profiled
    sm__cycles_elapsed.avg.per_second
elapsed_cycles cycle: SM cycles of the launch
    sm__cycles_elapsed.max
active_cycles cycle: cycles an SM had a warp, average
    sm__cycles_active.avg
[dram]
dram_read_bytes byte: read from device memory
    dram__bytes_read.sum
dram_write_bytes byte: written to device memory
    dram__bytes_write.sum
dram_busy %: device memory's throughput, of the chip's theoretical peak
    gpu__dram_throughput% dram__throughput%
[l2]
l2_sectors sector: 32-byte sectors the SMs asked of the L2, reads and writes
    lts__t_sectors_srcunit_tex.sum
l2_hit_rate %: sectors found in the L2
    lts__t_sector_hit_rate.pct
l2_busy %: L2 lookups, of peak
    lts__t_sectors%
l2_to_sm_busy %: L2 to SMs, of peak
    lts__lts2xbar_cycles_active%
sm_to_l2_busy %: SMs to L2, of peak
    lts__xbar2lts_cycles_active%
atomic_sectors sector: sectors of atomics that return a value
    lts__t_sectors_srcunit_tex_op_atom.sum
reduction_sectors sector: sectors of atomics that return nothing
    lts__t_sectors_srcunit_tex_op_red.sum
atomic_busy %: atomic unit of the busiest L2 slice, of peak
    lts__d_atomic_input_cycles_active.max.pct_of_peak_sustained_elapsed
[l1]
l1_load_sectors sector: global loads, as the L1 serves them
    l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum
l1_store_sectors sector: global stores, as the L1 takes them
    l1tex__t_sectors_pipe_lsu_mem_global_op_st.sum
load_requests request: global load instructions of a warp with a lane on
    l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum
store_requests request: global store instructions of a warp with a lane on
    l1tex__t_requests_pipe_lsu_mem_global_op_st.sum
l1_hit_rate %: sectors found in the L1
    l1tex__t_sector_hit_rate.pct
l1_busy %: passes through the L1 data stage, of peak
    l1tex__data_pipe_lsu_wavefronts%
lsu_busy %: memory instructions, of peak
    l1tex__lsuin_requests%
l1_writeback_busy %: data from the L1 to the registers, of peak
    l1tex__lsu_writeback_active%
local_load_sectors sector: loads of spilled registers and stack
    l1tex__t_sectors_pipe_lsu_mem_local_op_ld.sum
local_store_sectors sector: stores of spilled registers and stack
    l1tex__t_sectors_pipe_lsu_mem_local_op_st.sum
tma_read_bytes byte: read by the bulk copy engine
    l1tex__m_xbar2l1tex_read_bytes_mem_global_op_tma_ld.sum
[shared]
shared_wavefronts wavefront: passes that shared memory needed
    l1tex__data_pipe_lsu_wavefronts_mem_shared.sum
bank_conflicts wavefront: passes more than one, because lanes met in a bank
    l1tex__data_bank_conflicts_pipe_lsu_mem_shared.sum
[occupancy]
theoretical_occupancy %: warps that fit on an SM, of its maximum
    sm__maximum_warps_per_active_cycle_pct
achieved_occupancy %: warps that were on an SM, of its maximum
    sm__warps_active.avg.pct_of_peak_sustained_active
waves wave: grid over what fits at once
    launch__waves_per_multiprocessor
[issue and stalls]
instructions instruction: executed warp instructions
    smsp__inst_executed.sum
issue_busy %: issue slots used
    sm__inst_issued%
lanes_on lane: lanes an instruction works for, of 32
    smsp__thread_inst_executed_pred_on_per_inst_executed.ratio
lanes_active lane: lanes that follow the warp's branch, of 32
    smsp__thread_inst_executed_per_inst_executed.ratio
stall_memory warp: warps that wait for L2 or device memory, per issue
    smsp__average_warps_issue_stalled_long_scoreboard_per_issue_active.ratio
stall_barrier warp: warps that wait at a barrier, per issue
    smsp__average_warps_issue_stalled_barrier_per_issue_active.ratio
stall_math_pipe warp: warps that wait for a busy arithmetic pipe, per issue
    smsp__average_warps_issue_stalled_math_pipe_throttle_per_issue_active.ratio
stall_dependency warp: warps that wait a fixed time for an earlier result, per issue
    smsp__average_warps_issue_stalled_wait_per_issue_active.ratio
[pipes]
alu_busy %: pipe of integer compare, logic, shift, minimum and maximum
    sm__inst_executed_pipe_alu%
fma_busy %: pipe of float and integer multiply-add
    sm__pipe_fma_cycles_active% sm__inst_executed_pipe_fma%
fma_heavy_busy %: the half of the multiply-add pipe that integers use
    sm__pipe_fmaheavy_cycles_active%
    sm__pipe_fmaheavy_cycles_active.sum.pct_of_peak_sustained_elapsed
special_busy %: pipe of conversions, square roots, exponentials, sines
    sm__inst_executed_pipe_xu%
fp64_busy %: double precision pipe
    sm__pipe_fp64_cycles_active% sm__inst_executed_pipe_fp64%
uniform_busy %: pipe of values that are the same for a whole warp
    sm__inst_executed_pipe_uniform%
matrix_busy %: matrix units
    sm__pipe_tensor_cycles_active% sm__inst_executed_pipe_tensor%
""")
"""Every curated metric. A report that lacks one leaves it absent from `Launch.metrics`."""

DERIVED = _read("""
[issue and stalls]
integer_share 1: executed instructions that compute integers: addresses, indices, masks
wide_address_share 1: executed instructions that compute 64-bit addresses
[pipes]
alu_integer_share 1: share of the compare-and-logic pipe's instructions that compute integers
fma_integer_share 1: share of the multiply-add pipe's instructions that compute integers
[l1]
load_lanes_on lane: lanes that a masked global load really loads for, of 32
sectors_over_ideal 1: global sectors moved over the fewest that the lanes' bytes need
lane_bytes byte: global bytes that lanes load into and store from registers, each use counted
[pipes]
lane_flops FLOP: float additions and multiplications on the ordinary cores, in all lanes
matrix_flops FLOP: multiplications and additions of the matrix units
[issue and stalls]
idle_memory 1: share of the time in which nothing issued because warps waited for memory
idle_barrier 1: share of the time in which nothing issued because warps waited at barriers
idle_shared 1: share of the time in which nothing issued because warps waited for shared memory
idle_dependency 1: share of the time in which nothing issued because warps waited for arithmetic
""")
"""Computed from the report's counters per instruction; absent where those are."""

BY_NAME: dict[str, Metric] = {metric.name: metric for metric in (*METRICS, *DERIVED)}
"""Name -> metric."""
