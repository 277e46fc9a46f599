"""What the process that works on a run does right now, for those who watch it from another."""

from beamsearch.records.record import Record


class Task(Record):
    """What a worker does."""

    worker: int
    doing: str
    since: float
    round: int | None = None
    """None before and after the rounds, where worker 0 stands for the run."""


class Activity(Record):
    """`.scratch/activity.json`: there while a process works on the run, and no part of the trace.

    Times are Unix times, in seconds. The methods return what it is after something happened.
    """

    started: float
    seconds_before: float = 0.0
    """What earlier processes took for the run."""
    first_round: float | None = None
    """When the first round that this process does whole began; round 0 does not count."""
    round: float | None = None
    """When the round under way began."""
    rounds_begun: int = 0
    """By this process: the first of one that goes on with a run may be the rest of a round."""
    rounds_done: int = 0
    """Since `first_round`."""
    tasks: list[Task] = []
    stopping: bool = False
    """Whether somebody asked the run to stop."""

    def round_started(self, now: float) -> "Activity":
        """A round begins, maybe beside others."""
        is_whole = self.rounds_begun > 0 or not self.seconds_before
        first = self.first_round or (now if is_whole else None)
        begun = self.rounds_begun + 1
        tasks = [task for task in self.tasks if task.round is not None]
        return self.with_values(first_round=first, round=now, rounds_begun=begun, tasks=tasks)

    def round_ended(self, number: int) -> "Activity":
        """A round is on disk."""
        done = self.rounds_done + (self.first_round is not None)
        tasks = [task for task in self.tasks if task.round is not None and task.round > number]
        return self.with_values(rounds_done=done, round=None, tasks=tasks)

    def turned_to(self, round: int | None, worker: int, doing: str, now: float) -> "Activity":
        """A worker of a round does something else."""
        others = [task for task in self.tasks if (task.round, task.worker) != (round, worker)]
        own = Task(round=round, worker=worker, doing=doing, since=now)
        return self.with_values(tasks=[*others, own])

    def elapsed_s(self, now: float) -> float:
        """Seconds the run took so far, in every process."""
        return self.seconds_before + max(0.0, now - self.started)

    def left_s(self, now: float, rounds_left: int, limit_s: float | None) -> float | None:
        """Seconds to the end at the pace of the rounds so far, at most to the time limit; None
        where nothing is known. `rounds_left` counts the one under way."""
        left = None
        if self.rounds_done and self.first_round is not None:
            under_way = self.round if self.round is not None else now
            pace = (under_way - self.first_round) / self.rounds_done
            left = max(pace * (rounds_left - 1), pace * rounds_left - (now - under_way), 0.0)
        if limit_s is not None:
            to_limit = max(0.0, limit_s - self.elapsed_s(now))
            left = to_limit if left is None else min(left, to_limit)
        return left
