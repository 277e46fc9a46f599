"""A time, with its spread and where it came from."""

from typing import Literal

from pydantic import model_validator

from beamsearch.records.record import Record


class Measurement(Record):
    """Time of one bound call of a kernel, in milliseconds.

    A modelled time has no spread, GPU or visit and prints with `~`; it is never compared with a
    measured one.
    """

    source: Literal["measured", "modelled"]
    time_ms: float
    """Median of the timed calls, or the model's time."""
    p20_ms: float | None = None
    p80_ms: float | None = None
    count: int | None = None
    """Timed calls behind the median."""
    gpu: str
    """Device name as the driver reports it, or the target modelled."""
    gpu_uuid: str | None = None
    visit: str | None = None
    """One stay on one GPU; times of two visits are compared only by their ratio to an anchor."""

    graph: bool | None = None
    """Whether the call was timed as a CUDA graph, so that the host has no part in it."""
    plain_ms: float | None = None
    """Median of the same call without a graph."""
    host_us: float | None = None
    """Microseconds of Python in a plain call, by the kernel's own process: nothing is ranked by
    it."""
    configs: dict[str, str] = {}
    """Function -> the configuration of its autotuner that was timed, in Triton's words."""
    clock_start_mhz: int | None = None
    """SM clock before the first timed call."""
    clock_end_mhz: int | None = None
    """SM clock after the last."""
    temperature_c: int | None = None
    """The GPU's before the first timed call."""

    @model_validator(mode="after")
    def _measured_is_complete(self) -> "Measurement":
        measured = (self.p20_ms, self.p80_ms, self.count, self.gpu_uuid, self.visit)
        if self.source == "measured" and None in measured:
            raise ValueError("a measured time carries its spread, count, GPU UUID and visit")
        if self.source == "modelled" and any(value is not None for value in measured):
            raise ValueError("a modelled time has no spread, count, GPU UUID or visit")
        return self

    def scaled(self, factor: float) -> "Measurement":
        """The same call where everything takes so many times as long."""
        times = {which: getattr(self, which) for which in ("time_ms", "p20_ms", "p80_ms")}
        return self.with_values(**{k: v * factor for k, v in times.items() if v is not None})

    def __str__(self) -> str:
        tilde = "~" if self.source == "modelled" else ""
        return f"{tilde}{self.time_ms:.4g} ms"
