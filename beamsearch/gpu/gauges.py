"""Clocks and temperature of a GPU, from NVIDIA's management library; nothing where it is absent."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass

_GRAPHICS_SM_CLOCK = 1  # NVML_CLOCK_SM
_GPU_SENSOR = 0  # NVML_TEMPERATURE_GPU


@dataclass(frozen=True)
class Reading:
    """One look at a GPU; None where it does not tell."""

    sm_clock_mhz: int | None = None
    temperature_c: int | None = None


class Gauges:
    """One GPU's gauges, by UUID as nvidia-smi prints it. A reading takes microseconds."""

    def __init__(self, uuid: str) -> None:
        self._library: ctypes.CDLL | None = None
        self._device = ctypes.c_void_p()
        try:
            library = ctypes.CDLL("libnvidia-ml.so.1")
        except OSError:
            return
        name = uuid.encode()
        found = library.nvmlInit_v2() == 0
        if found and library.nvmlDeviceGetHandleByUUID(name, ctypes.byref(self._device)) == 0:
            self._library = library

    def read(self) -> Reading:
        """What the gauges show now."""
        return Reading(
            sm_clock_mhz=self._ask("nvmlDeviceGetClockInfo", _GRAPHICS_SM_CLOCK),
            temperature_c=self._ask("nvmlDeviceGetTemperature", _GPU_SENSOR),
        )

    def _ask(self, name: str, what: int) -> int | None:
        if self._library is None:
            return None
        value = ctypes.c_uint()
        status = getattr(self._library, name)(self._device, what, ctypes.byref(value))
        return value.value if status == 0 else None
