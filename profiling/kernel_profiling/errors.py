"""What can go wrong between a command line and a profile; each error says what to do about it."""

from __future__ import annotations


class ProfilingError(Exception):
    """Base of this package's errors: the message is one line and ends with what to do."""


class NcuMissing(ProfilingError):
    """Nsight Compute is not on this machine."""

    def __init__(self) -> None:
        super().__init__(
            "Nsight Compute (ncu) is not on PATH, in /opt/nvidia/nsight-compute or in "
            "/usr/local/cuda*/bin; install it (package nsight-compute, or the CUDA toolkit) "
            "or add its folder to PATH"
        )


class NcuPermission(ProfilingError):
    """The driver keeps its counters from this user (ERR_NVGPUCTRPERM)."""

    def __init__(self) -> None:
        super().__init__(
            "no permission to read GPU performance counters (ERR_NVGPUCTRPERM); run as root, give "
            "the container CAP_SYS_ADMIN, or load the driver with the module option "
            "NVreg_RestrictProfilingToAdminUsers=0"
        )


class NcuTooOld(ProfilingError):
    """This Nsight Compute cannot profile this GPU or driver, or lacks an option we need."""

    def __init__(self, version: str | None, cause: str) -> None:
        super().__init__(
            f"Nsight Compute {version or '(unknown version)'} is too old here: {cause}; install "
            "version 2023.3 or later, and one no older than the driver's CUDA"
        )


class NcuTimeout(ProfilingError):
    """Profiling took longer than it was given; the whole process group was ended."""

    def __init__(self, timeout_s: float) -> None:
        super().__init__(
            f"profiling did not end within {timeout_s:g} s and was stopped; allow more time, or "
            "see whether the kernel ends on its own without the profiler"
        )


class NcuEmptyReport(ProfilingError):
    """The command ran, but no kernel was launched while the profiler was on."""

    def __init__(self) -> None:
        super().__init__(
            "the report holds no kernel: nothing was launched between torch.cuda.profiler.start() "
            "and stop(); see that the call runs on the GPU and inside these two"
        )


class NcuFailed(ProfilingError):
    """The profiler or the command it ran failed for another reason."""

    def __init__(self, cause: str) -> None:
        super().__init__(f"profiling failed: {cause}; run the command without ncu to see its error")


class ReportUnreadable(ProfilingError):
    """A report file that the installed `ncu-report` package cannot read."""

    def __init__(self, path: str, cause: str) -> None:
        super().__init__(
            f"cannot read the report {path}: {cause}; see that the file is a whole .ncu-rep, and "
            "update the ncu-report package where the file comes from a newer Nsight Compute"
        )


class CompileFailed(ProfilingError):
    """A launch that does not compile for the target, or that the target would refuse."""
