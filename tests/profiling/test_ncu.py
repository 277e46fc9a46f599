"""Running a profiler: a stand-in program that behaves as `ncu` does, as real processes."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import pytest

from kernel_profiling.errors import NcuFailed, NcuUnusable, ProfilingError
from kernel_profiling.ncu.run import check_permission, find_ncu, ncu_version, profile_command

REPORT = Path(__file__).parents[1] / "data/input_82.ncu-rep"
TARGET = [sys.executable, "-c", "print('ran')"]

CALL = """
import torch, triton, triton.language as tl

@triton.jit
def copy_kernel(x, y, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + at, tl.load(x + at))

x = torch.rand(1 << 28, device="cuda")
y = torch.empty_like(x)
copy_kernel[(1 << 18,)](x, y, BLOCK=1024)
torch.cuda.synchronize()
torch.cuda.profiler.start()
copy_kernel[(1 << 18,)](x, y, BLOCK=1024)
y.fill_(1)
torch.cuda.synchronize()
torch.cuda.profiler.stop()
"""

STAND_IN = """#!/bin/sh
if [ "$1" = --version ]; then echo "Version {version} (build 1)"; exit 0; fi
while [ $# -gt 0 ]; do
    case $1 in -o) out=$2; shift;; --*) ;; "{python}") break;; esac
    shift
done
{body}
"""


def stand_in(folder: Path, body: str, version: str = "2025.3.1.0") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    program = folder / "ncu"
    program.write_text(STAND_IN.format(body=body, version=version, python=sys.executable))
    program.chmod(0o755)
    return program


def test_runs_the_command_and_reads_its_report(tmp_path: Path) -> None:
    marker = tmp_path / "marker"
    ncu = stand_in(tmp_path, f'"$@" && cp {REPORT} "$out.ncu-rep"')
    command = [
        sys.executable,
        "-c",
        "import os; open(os.environ['MARK'], 'w').write(os.getcwd())",
    ]

    profile = profile_command(
        command,
        cwd=tmp_path,
        env=os.environ | {"MARK": str(marker)},
        timeout_s=60,
        keep_report=tmp_path / "kept/report.ncu-rep",
        kernels=["depthwise_conv2d_kernel"],
        ncu=ncu,
    )

    assert marker.read_text() == str(tmp_path)
    assert profile.launches[0].name == "depthwise_conv2d_kernel"
    assert profile.launches[0].triton
    assert (tmp_path / "kept/report.ncu-rep").read_bytes() == REPORT.read_bytes()


@pytest.mark.parametrize(
    ("body", "version", "error", "words"),
    [
        (
            'echo "==ERROR== ERR_NVGPUCTRPERM - The user does not have permission"; exit 1',
            "2025.3.1.0",
            NcuUnusable,
            "CAP_SYS_ADMIN",
        ),
        ('"$@"', "2021.2.0.0", NcuUnusable, r"2021\.2\.0\.0"),
        (
            """echo "==ERROR== unrecognised option '--import-source'"; exit 1""",
            "2024.1.0.0",
            NcuUnusable,
            "import-source",
        ),
        (
            '"$@"; echo "==WARNING== No kernels were profiled."',
            "2025.3.1.0",
            NcuFailed,
            "inside",
        ),
        ('"$@"', "2025.3.1.0", NcuFailed, "no report was written: ran"),
        (
            'echo "ValueError: bad"; echo "==ERROR== The application returned 1"; exit 1',
            "2025.3.1.0",
            NcuFailed,
            r"exit status 1: ValueError: bad \(==ERROR==",
        ),
    ],
)
def test_each_way_to_fail_has_its_error(
    tmp_path: Path, body: str, version: str, error: type[ProfilingError], words: str
) -> None:
    ncu = stand_in(tmp_path, body, version)

    with pytest.raises(error, match=words):
        profile_command(TARGET, timeout_s=60, ncu=ncu)


def test_a_hang_is_ended_with_everything_it_started(tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    ncu = stand_in(tmp_path, f'trap "" TERM; sleep 60 & echo $! > {pid_file}; "$@"')
    start = time.monotonic()

    with pytest.raises(NcuFailed, match="0.5 s"):
        profile_command(
            [sys.executable, "-c", "import time; time.sleep(60)"], timeout_s=0.5, ncu=ncu
        )

    assert time.monotonic() - start < 10
    grandchild = Path(f"/proc/{int(pid_file.read_text())}/stat")
    while not is_gone(grandchild) and time.monotonic() - start < 15:
        time.sleep(0.05)  # killed, but the kernel may not have got to it yet
    assert is_gone(grandchild)


def is_gone(stat: Path) -> bool:
    """Whether a process is over, though perhaps nobody has asked for its status yet."""
    try:
        return stat.read_text().rsplit(") ", 1)[1][0] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return True


def ends(process: Path, within_s: float = 10) -> bool:
    """Whether the process whose id a file holds, or will in a moment, is over in that time."""
    written = time.monotonic() + 10
    while not process.read_text():
        assert time.monotonic() < written, "no process said its id"
        time.sleep(0.01)
    stat = Path(f"/proc/{process.read_text()}/stat")
    until = time.monotonic() + within_s
    while not is_gone(stat) and time.monotonic() < until:
        time.sleep(0.01)
    return is_gone(stat)


def test_finds_the_newest_where_none_is_on_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    assert find_ncu(tmp_path) is None
    cuda = stand_in(tmp_path / "usr/local/cuda-12.8/bin", "")
    assert find_ncu(tmp_path) == cuda
    stand_in(tmp_path / "opt/nvidia/nsight-compute/2024.3.2", "")
    newest = stand_in(tmp_path / "opt/nvidia/nsight-compute/2025.1.0", "")
    assert find_ncu(tmp_path) == newest
    on_path = stand_in(tmp_path / "bin", "", version="2024.1.1.0")
    assert find_ncu(tmp_path) == on_path
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/bin:/usr/bin")
    assert ncu_version(on_path) == "2024.1.1.0"
    assert ncu_version(tmp_path / "absent") is None


@pytest.mark.skipif(find_ncu() is not None, reason="this machine has Nsight Compute")
def test_missing_says_what_to_install() -> None:
    with pytest.raises(NcuUnusable, match="install"):
        profile_command(TARGET, timeout_s=5)


@pytest.mark.parametrize(
    ("params", "capabilities", "allowed"),
    [
        (None, "0", None),
        ("RmProfilingAdminOnly: 0\n", "0", True),
        ("Foo: 1\nRmProfilingAdminOnly: 1\n", "000001ffffffffff", True),
        ("RmProfilingAdminOnly: 1\n", "00000000a80425fb", False),
    ],
    ids=["no driver", "everybody", "administrator", "root in a container"],
)
def test_permission(
    tmp_path: Path, params: str | None, capabilities: str, allowed: bool | None
) -> None:
    for folder in ("driver/nvidia", "self"):
        (tmp_path / folder).mkdir(parents=True)
    if params is not None:
        (tmp_path / "driver/nvidia/params").write_text(params)
    (tmp_path / "self/status").write_text(f"Name:\tpython\nCapEff:\t{capabilities}\n")

    permission = check_permission(tmp_path)

    assert permission.allowed is allowed
    assert permission.reason


@pytest.mark.gpu
def test_profiles_a_real_kernel(tmp_path: Path) -> None:
    if find_ncu() is None or check_permission().allowed is not True:
        pytest.skip("needs Nsight Compute and the permission to use it")
    script = tmp_path / "call.py"
    script.write_text(CALL)

    profile = profile_command([sys.executable, str(script)], timeout_s=120)

    own = [launch for launch in profile.launches if launch.triton]
    assert [launch.name for launch in own] == ["copy_kernel"]
    assert own[0].metrics["dram_read_bytes"] == pytest.approx(1 << 30, rel=0.1)
    assert any(not launch.triton for launch in profile.launches), "and the framework's fill"
