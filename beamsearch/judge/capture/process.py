"""What runs in the process that captures a candidate: no GPU, no inputs, nothing worth stealing.

It imports the kernel, binds it to stand-ins by the one binding, calls it, and answers with the plan
of what it did. The answer is the candidate's word and nothing more: a plan is checked, compiled and
run elsewhere.
"""

from __future__ import annotations

import gc
from typing import Any

import torch

from beamsearch.judge.capture.launches import Tuning, install, install_torch
from beamsearch.judge.capture.plans import plan_of
from beamsearch.judge.capture.recorder import HostTensors, Recorder
from beamsearch.judge.harness import load_kernel
from beamsearch.kernel import CallArguments, bind
from profiling.gpus import Gpu


class Capturer:
    """One candidate's process."""

    def __init__(self) -> None:
        self.source: str | None = None
        self._module: Any = None
        self._recorder = Recorder()
        self._tuning = Tuning()
        self._capability = 0

    def do_load(self, source: str, gpu: dict[str, Any]) -> dict[str, Any]:
        """Import a kernel file, for a GPU."""
        target = Gpu.model_validate(gpu)
        self.source = self._recorder.source_file = source
        self._capability = target.capability
        torch.set_num_threads(1)
        install_torch(self._recorder, target)
        install(self._recorder, self._tuning, target)
        with HostTensors(), self._recorder:
            self._module = load_kernel(source)
        return {}

    def do_capture(self, arguments: dict[str, Any], pins: dict[str, str]) -> dict[str, Any]:
        """One call: its plan, and the configurations of every autotuner met so far.

        `pins`: function -> the configuration to choose. `arguments` as `encode_arguments` gives
        them for `meta` tensors.
        """
        self._tuning.pins = pins
        recorder = self._recorder
        recorder.begin()
        with torch.no_grad(), HostTensors(), recorder:
            result = bind(self._module, self._arguments(arguments))()
        gc.collect()
        plan = plan_of(recorder, result, self._capability)
        return {"plan": plan.model_dump(mode="json"), "configs": self._tuning.met}

    def _arguments(self, message: dict[str, Any]) -> CallArguments:
        """The call's arguments as stand-ins at new addresses."""
        storages: dict[int, torch.Tensor] = {}
        seen: dict[str, Any] = {}

        def decode(value: Any) -> Any:
            if not isinstance(value, dict):
                return value
            if "tuple" in value:
                return tuple(map(decode, value["tuple"]))
            if "list" in value:
                return list(map(decode, value["list"]))
            place = value["tensor"]
            key = repr(place)
            if key not in seen:
                seen[key] = self._given(place, storages)
            return seen[key]

        return CallArguments(
            values={name: decode(value) for name, value in message["values"].items()},
            forward=tuple(message["forward"]),
            init=decode(message["init"]),
            state={name: decode(value) for name, value in message["state"].items()},
        )

    def _given(self, place: dict[str, Any], storages: dict[int, torch.Tensor]) -> Any:
        number = place["storage"]
        if number not in storages:
            size = torch.empty(place["bytes"], dtype=torch.uint8, device="meta")
            storages[number] = size
            self._recorder.memories.wrap(size, role="given", given=number)
        meta = torch.empty(0, dtype=getattr(torch, place["dtype"]), device="meta")
        meta.set_(
            storages[number].untyped_storage(), place["offset"], place["size"], place["stride"]
        )
        return self._recorder.memories.wrap(meta)
