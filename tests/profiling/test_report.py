"""Reading reports that Nsight Compute wrote on an H200, of the problems' own first kernels.

They are as `profile_command` collects them; only the folder's name in them was replaced.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from kernel_profiling.compiler.sass import instruction_class
from kernel_profiling.errors import ReportUnreadable
from kernel_profiling.ncu import report as ncu_report
from kernel_profiling.ncu.line_counters import Instruction, annotate, load_lanes_on
from kernel_profiling.ncu.metrics import BY_NAME, DERIVED, METRICS
from kernel_profiling.ncu.report import read_report

ROOT = Path(__file__).parents[2]
DATA = ROOT / "tests/data"
KERNELS = {
    number: next((ROOT / "problems").glob(f"{number}_*/input_kernel.py")) for number in ("04", "82")
}


def report(number: str) -> Path:
    return DATA / f"input_{number}.ncu-rep"


def test_matvec_reads_its_matrix_once() -> None:
    profile = read_report(report("04"))

    (launch,) = profile.launches
    assert (profile.source, profile.gpu) == ("ncu", "NVIDIA H200")
    assert (launch.name, launch.triton) == ("matvec_kernel", True)
    assert (launch.grid, launch.threads, launch.share) == ((2048, 1, 1), 128, 1.0)
    assert launch.duration_us == pytest.approx(1000.2, abs=0.1)
    assert profile.traffic["dram"] == pytest.approx(2048 * 1048576 * 2, rel=0.1)
    assert launch.metrics["dram_write_bytes"] < 0.01 * launch.metrics["dram_read_bytes"]
    assert (launch.registers, launch.spill_bytes, launch.shared_bytes) == (28, 0, 16)
    assert (launch.occupancy, launch.occupancy_limiter) == (1.0, "warps")
    assert (launch.load_bits, launch.store_bits, launch.matrix_instructions) == (128, 16, 0)
    assert "shuffle" in launch.instruction_mix, "tl.sum over a block goes through shuffles"


def test_depthwise_reads_and_writes_its_planes_once() -> None:
    profile = read_report(report("82"))

    (launch,) = profile.launches
    read, written = (16 * 64 * side * side * 2 for side in (512, 510))
    assert launch.duration_us == pytest.approx(1825.1, abs=0.1)
    assert launch.metrics["dram_read_bytes"] == pytest.approx(read, rel=0.1)
    assert launch.metrics["dram_write_bytes"] == pytest.approx(written, rel=0.1)
    assert profile.traffic["dram"] == pytest.approx(read + written, rel=0.1)
    assert profile.traffic["l1"] > 7 * profile.traffic["dram"], "each input serves nine windows"
    assert (launch.registers, launch.occupancy_limiter) == (72, "registers")
    assert launch.occupancy == pytest.approx(28 / 64)
    # Nine multiply-adds an output is all the arithmetic there is; the rest finds its operands.
    assert launch.metrics["integer_share"] == pytest.approx(0.71, abs=0.02)


def test_lines_are_those_of_the_kernel_file() -> None:
    source = KERNELS["82"].read_text().splitlines()
    (launch,) = read_report(report("82")).launches

    load = max(launch.lines, key=lambda line: line.instruction_share or 0)
    assert load.text == source[load.line - 1].strip()
    assert "tl.load(x_ptr" in load.text
    assert (load.load_bits, load.store_bits) == (16, None)
    # 32 lanes of two bytes are two sectors; rows of 510 start anywhere in a sector.
    assert load.ideal_sectors_per_request == pytest.approx(2, abs=0.05)
    assert load.sectors_per_request == pytest.approx(2.9, abs=0.1)
    divisions = [line.text for line in launch.lines if line.divisions]
    assert divisions == ["channel = plane % channels", "oh = index // out_w"]
    for share in ("stall_share", "instruction_share"):
        assert sum(getattr(line, share) for line in launch.lines) == pytest.approx(1, abs=0.01)


def test_a_kernel_compiled_on_another_machine_has_its_lines_from_who_asks(monkeypatch) -> None:
    expected = read_report(report("82"))

    class WithoutSource:
        """An action of a report that no file was put into."""

        def __init__(self, action) -> None:
            self._action = action

        def __getattr__(self, name: str):
            return getattr(self._action, name)

        def __getitem__(self, name: str):
            return self._action[name]

        def source_files(self) -> dict[str, str]:
            return {}

    actions = ncu_report._actions
    monkeypatch.setattr(ncu_report, "_actions", lambda path: map(WithoutSource, actions(path)))
    assert not any(line.text for line in read_report(report("82")).launches[0].lines)
    assert read_report(report("82"), source=KERNELS["82"].read_text()) == expected


def test_what_was_inlined_from_elsewhere_is_not_blamed_on_the_kernels_lines() -> None:
    source = KERNELS["04"].read_text().splitlines()
    (launch,) = read_report(report("04")).launches

    assert all(line.text == source[line.line - 1].strip() for line in launch.lines)
    assert all("tl.sum" not in line.text for line in launch.lines), "its code is in the library"
    assert sum(line.instruction_share or 0 for line in launch.lines) < 1
    elsewhere = 1 - sum(line.stall_share or 0 for line in launch.lines)
    assert sum(launch.inlined_stalls.values()) == pytest.approx(elsewhere, abs=0.002)
    assert launch.inlined_stalls["barrier"] > 0


def test_annotated_source_has_numbers_only_where_they_are_known() -> None:
    profile = read_report(report("82"))
    source = KERNELS["82"].read_text()

    rows = annotate(profile, source).splitlines()[1:]
    assert [row.split(" |", 1)[1].strip() for row in rows] == [
        line.strip() for line in source.splitlines()
    ]
    (load,) = (row for row in rows if "tl.load(x_ptr" in row)
    assert load.split("|")[0].split() == ["39.6", "37.6", "2.9", "16"]
    (comment,) = (row for row in rows if "import triton.language" in row)
    assert not comment.split("|")[0].strip()

    edited = annotate(profile, source.replace("mask=valid & inside", "mask=inside"))
    (load,) = (row for row in edited.splitlines() if "tl.load(x_ptr" in row)
    assert not load.split("|")[0].strip(), "another text than was profiled has no numbers"


def test_rules_come_with_their_estimates() -> None:
    (launch,) = read_report(report("82")).launches

    rule = next(rule for rule in launch.rules if rule.name == "Uncoalesced Global Accesses")
    assert rule.estimated_speedup_percent == pytest.approx(30.0, abs=0.1)
    assert "@" not in "".join(rule.message for rule in launch.rules)


def test_names_and_fingerprints() -> None:
    named = read_report(report("82"), kernels={"another_kernel"})
    again = read_report(report("82"))

    assert not named.launches[0].triton
    assert named.launches[0].fingerprint == again.launches[0].fingerprint
    assert again.launches[0].fingerprint != read_report(report("04")).launches[0].fingerprint


def test_the_table_names_every_metric_that_a_launch_has() -> None:
    (launch,) = read_report(report("82")).launches

    assert len(BY_NAME) == len(METRICS) + len(DERIVED), "no name stands for two metrics"
    assert set(launch.metrics) <= set(BY_NAME)
    assert {metric.name for metric in METRICS} <= set(launch.metrics), "an H200 has them all"


@pytest.mark.parametrize(
    "content",
    [None, b"", b"not a report at all", report("04").read_bytes()[:1_500_000]],
    ids=["no file", "empty", "text", "cut short"],
)
def test_what_is_no_report_is_a_clear_error(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "broken.ncu-rep"
    if content is not None:
        path.write_bytes(content)

    with pytest.raises(ReportUnreadable, match=r"broken\.ncu-rep"):
        read_report(path)


def test_reading_and_ranking_is_quick_and_needs_no_torch() -> None:
    program = (
        "import sys, time, ncu_report\n"
        "from pathlib import Path\n"
        "from kernel_profiling.findings.findings import find\n"
        "from kernel_profiling.profile import Floor\n"
        "from kernel_profiling.ncu.report import read_report\n"
        "floor = Floor(least_bytes=10**9, flops=5 * 10**9, bandwidth_gb_s=4300,\n"
        "    flops_rate_tflop_s=718, bandwidth_source='measured', gpu='NVIDIA H200')\n"
        "start = time.process_time()\n"
        "assert find(read_report(Path(sys.argv[1])), floor, None)\n"
        "assert not {'torch', 'triton', 'beamsearch'} & set(sys.modules)\n"
        "print(time.process_time() - start)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(report("82"))],
        capture_output=True,
        text=True,
        cwd=ROOT,
        check=True,
    )
    assert float(done.stdout) < 2


def test_lanes_of_a_copy_that_one_lane_begins_are_not_switched_off() -> None:
    def of(code: str, lanes: float) -> Instruction:
        counts = dict.fromkeys(("sectors", "ideal_sectors", "shared_passes", "ideal_shared_passes"))
        kind = instruction_class(code)
        return Instruction(code, kind, "k.py", 1, {}, executed=4.0, lanes_on=lanes, **counts)

    masked = of("@P0 LDG.E.128 R4, desc[UR4][R2.64]", 4 * 24.0)
    copied = of("@P1 UTMALDG.3D [UR8], [UR6]", 4.0)
    assert load_lanes_on([masked]) == load_lanes_on([masked, copied]) == 24
    assert load_lanes_on([copied]) is None
