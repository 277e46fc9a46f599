"""A lane as an actor of Ray, on whichever machine Ray puts it."""

from __future__ import annotations

import os
import subprocess
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from beamsearch.errors import BeamsearchError
from beamsearch.executor.client import LaneSpec
from beamsearch.executor.messages import Answer, Request, kind_of_error
from beamsearch.executor.node_folder import hidden_here, own_folder

if TYPE_CHECKING:
    from beamsearch.executor.lane_server import LaneServer


class LaneActor:
    """Answers as a lane's process does: JSON both ways. Its methods run in several threads."""

    def __init__(self) -> None:
        from beamsearch.gpu.usage import Usage

        self._usage = Usage()
        self._lane: LaneServer | None = None
        self._remover: subprocess.Popen[bytes] | None = None

    def where(self) -> tuple[str, str | None, str, int]:
        """Facts of this machine as JSON, the UUID of the GPU that Ray gave, Ray's id of the
        machine, and that of this process."""
        import ray

        from beamsearch.executor.node_facts import facts

        node, uuid = facts()
        where = ray.get_runtime_context().get_node_id()
        return node.model_dump_json(), uuid, where, os.getpid()

    def open(self, spec: str, avoided: list[str]) -> str:
        """Become a lane, in a folder of its own that goes when this process does. `avoided`: where
        no kernel is captured, by Ray's ids of machines."""
        from beamsearch.executor.lane_server import LaneServer
        from beamsearch.executor.ray_captures import RayCaptures

        folder, self._remover = own_folder("beamsearch-lane-")
        try:
            asked = LaneSpec.model_validate_json(spec)
            here = asked.with_values(scratch=str(folder), hidden=hidden_here(Path(asked.scratch)))
            self._lane = LaneServer(here, self._usage, partial(RayCaptures, asked, avoided))
        except BeamsearchError as error:
            return Answer(error=str(error), error_kind=kind_of_error(error)).model_dump_json()
        return self._said(Answer(facts=self._lane.facts))

    def answer(self, text: str) -> str:
        """The answer to a request."""
        assert self._lane is not None
        request = Request.model_validate_json(text)
        self._lane.begins(request)
        return self._said(self._lane.answer(request))

    def beat(self) -> str:
        """That it is there, and its account."""
        return self._said(Answer())

    def close(self) -> None:
        """End every process that it started."""
        if self._lane is not None:
            self._lane.close()

    def _said(self, answer: Answer) -> str:
        return answer.with_values(use=self._usage.so_far()).model_dump_json()
