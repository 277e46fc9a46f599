"""The curated metrics: one table that readers, prompts, pages and docs share."""

from __future__ import annotations

from kernel_profiling.profile import Record


class Metric(Record):
    """One number of a launch: what we call it, what Nsight Compute calls it, what it means."""

    name: str
    group: str
    ncu: tuple[str, ...]
    """Nsight Compute's names; the first that the report holds is taken (names differ by chip)."""
    unit: str
    meaning: str
    scale: float = 1.0
    """What the report's number is multiplied by to get `unit`."""


def _group(group: str, *rows: tuple[str, str | tuple[str, ...], str, str] | Metric) -> list[Metric]:
    metrics = []
    for row in rows:
        if isinstance(row, Metric):
            metrics.append(row)
            continue
        name, ncu, unit, meaning = row
        names = (ncu,) if isinstance(ncu, str) else ncu
        metrics.append(Metric(name=name, group=group, ncu=names, unit=unit, meaning=meaning))
    return metrics


_PEAK = ".avg.pct_of_peak_sustained_elapsed"
_L1 = "l1tex__t_sectors_pipe_lsu_mem_global_op_"
_STALL = "smsp__average_warps_issue_stalled_"
_ISSUED = "_per_issue_active.ratio"

METRICS: tuple[Metric, ...] = tuple(
    [
        *_group(
            "time",
            Metric(
                name="duration_us",
                group="time",
                ncu=("gpu__time_duration.sum",),
                unit="us",
                meaning="time of the launch on the GPU",
                scale=1e-3,
            ),
            ("sm_clock_hz", "sm__cycles_elapsed.avg.per_second", "Hz", "clock while profiled"),
            ("elapsed_cycles", "sm__cycles_elapsed.max", "cycle", "SM cycles of the launch"),
            ("active_cycles", "sm__cycles_active.avg", "cycle", "cycles an SM had a warp, average"),
        ),
        *_group(
            "dram",
            ("dram_read_bytes", "dram__bytes_read.sum", "byte", "read from device memory"),
            ("dram_write_bytes", "dram__bytes_write.sum", "byte", "written to device memory"),
            (
                "dram_busy",
                ("gpu__dram_throughput" + _PEAK, "dram__throughput" + _PEAK),
                "%",
                "device memory's throughput, of the chip's theoretical peak",
            ),
        ),
        *_group(
            "l2",
            (
                "l2_sectors",
                ("lts__t_sectors_srcunit_tex.sum",),
                "sector",
                "32-byte sectors the SMs asked of the L2, reads and writes",
            ),
            ("l2_hit_rate", "lts__t_sector_hit_rate.pct", "%", "sectors found in the L2"),
            ("l2_busy", "lts__t_sectors" + _PEAK, "%", "L2 lookups, of peak"),
            ("l2_to_sm_busy", "lts__lts2xbar_cycles_active" + _PEAK, "%", "L2 to SMs, of peak"),
            ("sm_to_l2_busy", "lts__xbar2lts_cycles_active" + _PEAK, "%", "SMs to L2, of peak"),
            (
                "atomic_sectors",
                "lts__t_sectors_srcunit_tex_op_atom.sum",
                "sector",
                "sectors of atomics that return a value",
            ),
            (
                "reduction_sectors",
                "lts__t_sectors_srcunit_tex_op_red.sum",
                "sector",
                "sectors of atomics that return nothing",
            ),
            (
                "atomic_busy",
                "lts__d_atomic_input_cycles_active.max.pct_of_peak_sustained_elapsed",
                "%",
                "atomic unit of the busiest L2 slice, of peak",
            ),
        ),
        *_group(
            "l1",
            ("l1_load_sectors", _L1 + "ld.sum", "sector", "global loads, as the L1 serves them"),
            ("l1_store_sectors", _L1 + "st.sum", "sector", "global stores, as the L1 takes them"),
            (
                "load_requests",
                "l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum",
                "request",
                "global load instructions of a warp with a lane on",
            ),
            (
                "store_requests",
                "l1tex__t_requests_pipe_lsu_mem_global_op_st.sum",
                "request",
                "global store instructions of a warp with a lane on",
            ),
            ("l1_hit_rate", "l1tex__t_sector_hit_rate.pct", "%", "sectors found in the L1"),
            (
                "l1_busy",
                "l1tex__data_pipe_lsu_wavefronts" + _PEAK,
                "%",
                "passes through the L1 data stage, of peak",
            ),
            ("lsu_busy", "l1tex__lsuin_requests" + _PEAK, "%", "memory instructions, of peak"),
            (
                "l1_writeback_busy",
                "l1tex__lsu_writeback_active" + _PEAK,
                "%",
                "data from the L1 to the registers, of peak",
            ),
            (
                "local_load_sectors",
                "l1tex__t_sectors_pipe_lsu_mem_local_op_ld.sum",
                "sector",
                "loads of spilled registers and stack",
            ),
            (
                "local_store_sectors",
                "l1tex__t_sectors_pipe_lsu_mem_local_op_st.sum",
                "sector",
                "stores of spilled registers and stack",
            ),
            (
                "tma_read_bytes",
                "l1tex__m_xbar2l1tex_read_bytes_mem_global_op_tma_ld.sum",
                "byte",
                "read by the bulk copy engine",
            ),
        ),
        *_group(
            "shared",
            (
                "shared_wavefronts",
                "l1tex__data_pipe_lsu_wavefronts_mem_shared.sum",
                "wavefront",
                "passes that shared memory needed",
            ),
            (
                "bank_conflicts",
                "l1tex__data_bank_conflicts_pipe_lsu_mem_shared.sum",
                "wavefront",
                "passes more than one, because lanes met in a bank",
            ),
        ),
        *_group(
            "occupancy",
            (
                "theoretical_occupancy",
                "sm__maximum_warps_per_active_cycle_pct",
                "%",
                "warps that fit on an SM, of its maximum",
            ),
            (
                "achieved_occupancy",
                "sm__warps_active.avg.pct_of_peak_sustained_active",
                "%",
                "warps that were on an SM, of its maximum",
            ),
            ("waves", "launch__waves_per_multiprocessor", "wave", "grid over what fits at once"),
        ),
        *_group(
            "issue and stalls",
            (
                "instructions",
                "smsp__inst_executed.sum",
                "instruction",
                "executed warp instructions",
            ),
            ("issue_busy", "sm__inst_issued" + _PEAK, "%", "issue slots used"),
            (
                "lanes_on",
                "smsp__thread_inst_executed_pred_on_per_inst_executed.ratio",
                "lane",
                "lanes an instruction works for, of 32",
            ),
            (
                "lanes_active",
                "smsp__thread_inst_executed_per_inst_executed.ratio",
                "lane",
                "lanes that follow the warp's branch, of 32",
            ),
            (
                "stall_memory",
                _STALL + "long_scoreboard" + _ISSUED,
                "warp",
                "warps that wait for L2 or device memory, per issue",
            ),
            (
                "stall_barrier",
                _STALL + "barrier" + _ISSUED,
                "warp",
                "warps that wait at a barrier, per issue",
            ),
            (
                "stall_math_pipe",
                _STALL + "math_pipe_throttle" + _ISSUED,
                "warp",
                "warps that wait for a busy arithmetic pipe, per issue",
            ),
            (
                "stall_dependency",
                _STALL + "wait" + _ISSUED,
                "warp",
                "warps that wait a fixed time for an earlier result, per issue",
            ),
        ),
        *_group(
            "pipes",
            (
                "alu_busy",
                "sm__inst_executed_pipe_alu" + _PEAK,
                "%",
                "pipe of integer compare, logic, shift, minimum and maximum",
            ),
            (
                "fma_busy",
                ("sm__pipe_fma_cycles_active" + _PEAK, "sm__inst_executed_pipe_fma" + _PEAK),
                "%",
                "pipe of float and integer multiply-add",
            ),
            (
                "fma_heavy_busy",
                (
                    "sm__pipe_fmaheavy_cycles_active" + _PEAK,
                    "sm__pipe_fmaheavy_cycles_active.sum.pct_of_peak_sustained_elapsed",
                ),
                "%",
                "the half of the multiply-add pipe that integers use",
            ),
            (
                "special_busy",
                "sm__inst_executed_pipe_xu" + _PEAK,
                "%",
                "pipe of conversions, square roots, exponentials, sines",
            ),
            (
                "fp64_busy",
                ("sm__pipe_fp64_cycles_active" + _PEAK, "sm__inst_executed_pipe_fp64" + _PEAK),
                "%",
                "double precision pipe",
            ),
            (
                "uniform_busy",
                "sm__inst_executed_pipe_uniform" + _PEAK,
                "%",
                "pipe of values that are the same for a whole warp",
            ),
            (
                "matrix_busy",
                ("sm__pipe_tensor_cycles_active" + _PEAK, "sm__inst_executed_pipe_tensor" + _PEAK),
                "%",
                "matrix units",
            ),
        ),
    ]
)
"""Every curated metric. A report that lacks one leaves it absent from `Launch.metrics`."""

DERIVED: tuple[Metric, ...] = (
    Metric(
        name="integer_share",
        group="issue and stalls",
        ncu=("inst_executed",),
        unit="1",
        meaning="executed instructions that compute integers: addresses, indices, masks",
    ),
    Metric(
        name="wide_address_share",
        group="issue and stalls",
        ncu=("inst_executed",),
        unit="1",
        meaning="executed instructions that compute 64-bit addresses",
    ),
    Metric(
        name="alu_integer_share",
        group="pipes",
        ncu=("inst_executed",),
        unit="1",
        meaning="share of the compare-and-logic pipe's instructions that compute integers",
    ),
    Metric(
        name="fma_integer_share",
        group="pipes",
        ncu=("inst_executed",),
        unit="1",
        meaning="share of the multiply-add pipe's instructions that compute integers",
    ),
    Metric(
        name="load_lanes_on",
        group="l1",
        ncu=("thread_inst_executed_true", "inst_executed"),
        unit="lane",
        meaning="lanes that a masked global load really loads for, of 32",
    ),
    Metric(
        name="sectors_over_ideal",
        group="l1",
        ncu=(
            "memory_l2_theoretical_sectors_global",
            "memory_l2_theoretical_sectors_global_ideal",
        ),
        unit="1",
        meaning="global sectors moved over the fewest that the lanes' bytes need",
    ),
    Metric(
        name="lane_bytes",
        group="l1",
        ncu=("thread_inst_executed_true",),
        unit="byte",
        meaning="global bytes that lanes load into and store from registers, each use counted",
    ),
    Metric(
        name="lane_flops",
        group="pipes",
        ncu=("thread_inst_executed_true",),
        unit="FLOP",
        meaning="float additions and multiplications on the ordinary cores, in all lanes",
    ),
    Metric(
        name="idle_memory",
        group="issue and stalls",
        ncu=("smsp__pcsamp_warps_issue_stalled_long_scoreboard_not_issued",),
        unit="1",
        meaning="share of the time in which nothing issued because warps waited for memory",
    ),
    Metric(
        name="idle_barrier",
        group="issue and stalls",
        ncu=("smsp__pcsamp_warps_issue_stalled_barrier_not_issued",),
        unit="1",
        meaning="share of the time in which nothing issued because warps waited at barriers",
    ),
    Metric(
        name="idle_shared",
        group="issue and stalls",
        ncu=("smsp__pcsamp_warps_issue_stalled_short_scoreboard_not_issued",),
        unit="1",
        meaning="share of the time in which nothing issued because warps waited for shared memory",
    ),
    Metric(
        name="idle_dependency",
        group="issue and stalls",
        ncu=("smsp__pcsamp_warps_issue_stalled_wait_not_issued",),
        unit="1",
        meaning="share of the time in which nothing issued because warps waited for arithmetic",
    ),
)
"""Computed from the report's counters per instruction; absent where those are."""

BY_NAME: dict[str, Metric] = {metric.name: metric for metric in (*METRICS, *DERIVED)}
"""Name -> metric."""
