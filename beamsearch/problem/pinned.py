"""A kernel whose autotuners have the configurations that were timed, and no others."""

from __future__ import annotations

from collections.abc import Mapping

PINNED = '''def _pin(tuner, choice):
    """Choose what was timed, where this Triton still has it under that name."""
    while not hasattr(tuner, "configs"):
        tuner = tuner.fn
    tuner.configs = [c for c in tuner.configs if str(c) == choice] or tuner.configs


'''
"""What stands below an autotuned kernel, so that it does not tune itself again."""


def pinned(source: str, configs: Mapping[str, str]) -> str:
    """The source with each function's autotuner held to a configuration, in Triton's words."""
    whole = source.rstrip() + "\n"
    if not configs:
        return whole
    pins = [f"_pin({name}, {config!r})\n" for name, config in configs.items()]
    return whole + "\n\n" + PINNED + "".join(pins)
