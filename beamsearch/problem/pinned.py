"""A kernel whose autotuners have the configurations that were timed, and no others."""

from __future__ import annotations

from collections.abc import Mapping

PINNED = '''def _pin(name, choice):
    """Choose what was timed for this function, where this Triton has it too."""

    def words(config):  # a Triton may have more options, not set
        return {word for word in str(config).split(", ") if not word.endswith(": None")}

    for found in list(globals().values()):
        tuners = []
        while type(found).__module__.startswith("triton.") and hasattr(found, "fn"):
            tuners += [found] * hasattr(found, "configs")
            found = found.fn
        if getattr(found, "__name__", None) == name:
            for tuner in tuners:
                same = [c for c in tuner.configs if words(c) == words(choice)]
                tuner.configs = same or tuner.configs


'''
"""What stands below an autotuned kernel, so that it does not tune itself again. A function and its
autotuner may have different names; one that no name of the file stands for tunes itself."""


def pinned(source: str, configs: Mapping[str, str]) -> str:
    """The source with each function's autotuner held to a configuration, in Triton's words."""
    whole = source.rstrip() + "\n"
    if not configs:
        return whole
    pins = [f"_pin({name!r}, {config!r})\n" for name, config in configs.items()]
    return whole + "\n\n" + PINNED + "".join(pins)
