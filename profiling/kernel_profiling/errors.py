"""What can go wrong between a command line and a profile."""

from __future__ import annotations


class ProfilingError(Exception):
    """Base of this package's errors: the message is one line and ends with what to do."""


class NcuUnusable(ProfilingError):
    """Nsight Compute is missing, too old or not permitted: to try again does not help."""


class NcuFailed(ProfilingError):
    """One run of the profiler, or of the command under it, failed."""


class ReportUnreadable(ProfilingError):
    """A report file that the installed `ncu-report` package cannot read."""

    def __init__(self, path: object, cause: object) -> None:
        super().__init__(
            f"cannot read the report {path}: {cause}; see that the file is a whole .ncu-rep, and "
            "update the ncu-report package where the file comes from a newer Nsight Compute"
        )


class CompileFailed(ProfilingError):
    """A launch that does not compile for the target, or that the target would refuse."""


class BrokenExtension(ProfilingError):
    """Something that another package brings, and that cannot be imported."""


def one_line(text: str, most: int = 600) -> str:
    """The text on one line; of a long one its beginning and its end, where the error is."""
    text = " ".join(text.split())
    return text if len(text) <= most else f"{text[: most // 3]} … {text[-2 * most // 3 :]}"
