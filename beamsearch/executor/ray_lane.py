"""A lane on a cluster: an actor of Ray, as who gives it jobs sees it."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any, cast

from beamsearch.errors import Stopped
from beamsearch.executor.asked import JOB_S, SILENT_S, Asked
from beamsearch.executor.client import LaneDied, LaneSpec
from beamsearch.executor.cluster import Cluster, Met
from beamsearch.executor.lane_actor import LaneActor
from beamsearch.executor.messages import ANSWERS, Answer, Request
from beamsearch.records.job import Job, Subject
from beamsearch.records.record import R
from beamsearch.records.run import Node
from beamsearch.records.usage import LaneUse
from kernel_profiling.errors import one_line

BEAT_S = 1.0
"""How often it is asked whether it is there."""
OPEN_S = 600.0
"""What a lane may take to begin once it has a place; torch from a cold network disk and a GPU that
others use take minutes."""
WAITS_S = 60.0
"""Without a place for so long, it says what it waits for."""
CLOSE_S = 10.0
"""What a lane may take to end by itself."""


class RayLane:
    """Begins an actor, and speaks with it. Implements `LaneClient`.

    Ray decides where it is, when there is room, and whether its machine is still there.
    """

    def __init__(
        self,
        spec: LaneSpec,
        cluster: Cluster,
        *,
        met: Met = lambda node, uuid: None,
        tell: Callable[[str], None] = lambda note: None,
        silent_s: float = SILENT_S,
        job_s: float = JOB_S,
    ) -> None:
        self.placed: Future[None] = Future()
        self.pid: int | None = None
        """Of its process, on whichever machine that is."""
        self.node = ""
        """Ray's id of its machine."""
        self._asked = Asked(silent_s, job_s)
        self.facts = self._asked.facts
        self._spec = spec
        self._cluster = cluster
        self._ray = cluster.ray
        self._met = met
        self._tell = tell
        self._actor: Any = None
        self._lock = threading.Lock()
        self._early: list[Request] | None = []
        """What was asked before it was ready; none from then on."""
        self._trouble = threading.Event()
        self._error: Exception | None = None
        self._death: Exception | None = None
        self._ended = False
        self._closing = False
        self._hung = False
        self._life = threading.Thread(target=self._live, daemon=True)
        self._life.start()

    @property
    def alive(self) -> bool:
        """Whether it can still answer."""
        return not (self._ended or self._closing)

    def submit(self, job: Job[R]) -> Future[R]:
        """Begin a job. See `LaneClient`."""
        return self._ask(lambda number: Request.of(number, job), ANSWERS[type(job)])

    def prepare(self, subjects: Sequence[Subject]) -> None:
        """Begin what the CPU has to do for them."""
        self._send(Request(number=0, op="prepare", subjects=list(subjects)))

    def missing_isolation(self) -> dict[str, str]:
        """What of the isolation the system refuses there. Raises LaneDied."""
        asked: Future[Any] = self._ask(lambda number: Request(number=number, op="isolation"), None)
        return cast("dict[str, str]", asked.result())

    def use(self) -> LaneUse:
        """What it was used for, as it last said."""
        return self._asked.use

    def close(self) -> None:
        """End it and all that it started. Nothing of it calls Ray afterwards, which would join the
        cluster again."""
        self._closing = True
        self._trouble.set()
        self._life.join()
        if self._actor is not None:
            if self.facts.done() and self._error is None:
                self._ray.wait([self._actor.close.remote()], timeout=CLOSE_S)
            self._ray.kill(self._actor)
        self._lost()

    def _ask(self, request: Callable[[int], Request], kind: type[Any] | None) -> Future[Any]:
        number, asked = self._asked.add(kind)
        self._send(request(number))
        if not self.alive:
            self._lost()
        return asked

    def _send(self, request: Request) -> None:
        with self._lock:
            if self._early is not None:
                self._early.append(request)
                return
        if self.alive:
            jobs = self._actor.answer.options(concurrency_group="jobs")
            jobs.remote(request.model_dump_json()).future().add_done_callback(self._answered)

    def _answered(self, answer: Future[str]) -> None:
        """In a thread of Ray's, which nothing may keep."""
        if error := answer.exception():
            self._fails(error)
        else:
            self._asked.heard(Answer.model_validate_json(answer.result()))

    def _fails(self, error: BaseException) -> None:
        self._error = self._error or cast("Exception", error)
        self._trouble.set()

    def _live(self) -> None:
        """From the wait for a place to the end."""
        try:
            self._begin()
            self._watch()
        except Exception as error:  # noqa: BLE001 - raised where the jobs came from
            self._error = self._error or error
        self._ended = True
        if self._actor is not None and not self._closing:
            self._ray.kill(self._actor)
        self._lost()

    def _begin(self) -> None:
        node, uuid = self._place()
        self._met(node, uuid)
        if self._spec.gpu_uuid is not None:
            self._spec = self._spec.with_values(gpu_uuid=uuid)
        spec = self._spec.with_values(shared_by=max(1, node.lanes))
        self.placed.set_result(None)
        avoided = self._cluster.not_for_captures()
        opened = self._actor.open.remote(spec.model_dump_json(), avoided)
        said = self._value(opened, limit_s=OPEN_S)
        answer = Answer.model_validate_json(said)
        if answer.error is not None:
            raise answer.raised()
        with self._lock:
            early, self._early = self._early or [], None
        for request in early:
            self._send(request)
        self._asked.heard(answer)

    def _place(self) -> tuple[Node, str | None]:
        """Where Ray put it; elsewhere, where that is no machine for this run."""
        while True:
            self._actor = self._cluster.begin(LaneActor)
            told, uuid, self.node, self.pid = self._value(self._actor.where.remote(), waits=True)
            node = self._cluster.met(Node.model_validate_json(told), self.node)
            if not node.left_out:
                return node, uuid
            self._tell(f"{self._spec.name} does not use {node.address}: {node.left_out}")
            self._met(node, None)
            self._ray.kill(self._actor)

    def _value(self, asked: Any, *, waits: bool = False, limit_s: float = math.inf) -> Any:
        """What is answered. Raises Stopped, LaneDied past the limit, and what Ray raises."""
        waited = 0.0
        while not self._ray.wait([asked], timeout=BEAT_S)[0]:
            if self._closing:
                raise Stopped("the executor is closed")
            waited += BEAT_S
            if waited >= limit_s:
                self._hung = True
                raise LaneDied(f"it did not begin in {limit_s:.0f} s")
            if waits and waited == WAITS_S:
                self._tell(f"{self._spec.name} waits for room in the cluster")
        return self._ray.get(asked)

    def _watch(self) -> None:
        """Until it ends, or does not answer."""
        beat = None
        while not self._trouble.wait(BEAT_S):
            if beat is None:
                beat = self._actor.beat.remote()
            if self._ray.wait([beat], timeout=0)[0]:
                self._asked.heard(Answer.model_validate_json(self._ray.get(beat)))
                beat = None
            if told := self._asked.reason_to_give_up():
                self._hung = True
                raise LaneDied(told)

    def _lost(self) -> None:
        """It is gone: so say all that wait for it."""
        try:
            death = self._death or self._how_it_ended()
        except Exception as fault:  # noqa: BLE001 - of the program; raised where the jobs came from
            death = fault
        self._death = death
        self._asked.lost(lambda: death)
        with self._lock:
            if not self.placed.done():
                self.placed.set_result(None)

    def _is_closing(self) -> bool:
        return self._closing

    def _how_it_ended(self) -> Exception:
        if self._closing:
            return Stopped("the executor is closed")
        lane_died = isinstance(self._error, LaneDied | self._ray.exceptions.RayError)
        if self._error is not None and not lane_died:
            return self._error
        here = self._hung or not self.node or self._cluster.is_there(self.node, self._is_closing)
        reason = _told(self._error) if here else "its machine left the cluster"
        return LaneDied(f"{self._spec.name}: {reason}", hung=self._hung, left=not here)


def _told(error: Exception | None) -> str:
    """What Ray says of an actor's end, without numbers that differ from one to the next."""
    lines = [line for line in str(error).splitlines() if line.strip()]
    last = one_line(lines[-1]) if lines else "it ended"
    return last.split(" Worker exit detail:")[0]
