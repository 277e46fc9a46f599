"""A recorded run as it was while its last round went on, worked on by this process."""

import shutil
import time
from contextlib import contextmanager

from beamsearch.records.activity import Activity, Task
from beamsearch.records.packed import opened_run
from beamsearch.records.trace import Trace, read_record, write_record
from beamsearch.run.lock import folder_lock
from beamsearch.search.directions import Plan


def before_the_end(recorded, folder):
    """A copy of a recorded run, before its last round ended."""
    shutil.copytree(opened_run(recorded).folder, folder)
    trace = Trace(folder)
    record = trace.run_record()
    (trace.round(record.rounds[-1].round) / "round.json").unlink()
    before = {"status": "running", "stop_reason": None, "confirmation": None}
    write_record(trace.run_file, record.with_values(rounds=record.rounds[:-1], **before))
    return trace


@contextmanager
def worked_on(trace, doing="judging a kernel"):
    """The run goes on: each worker of the round under way does something since a minute."""
    number = len(trace.completed_rounds())
    now = time.time()
    plan = read_record(trace.round(number) / "plan.json", Plan)
    tasks = [
        Task(round=number, worker=a.worker, doing=doing, since=now - 60) for a in plan.assignments
    ]
    activity = Activity(
        started=now - 700,
        first_round=now - 700,
        round=now - 100,
        rounds_done=number - 1,
        tasks=tasks,
    )
    write_record(trace.activity_file, activity)
    with folder_lock(trace.folder):
        yield activity
