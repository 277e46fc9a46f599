"""Does the judge accept the references themselves, and time them fairly?

`python tools/check_references.py FILE…` needs a GPU. Each problem's reference takes a candidate's
place, which only this tool can let it do: it is held against its oracle on the input sets that
every candidate meets, and timed as one beside eager PyTorch. One line a problem: sets it is right
on, its time, eager's, torch.compile's, what it takes over eager's (1.00 ± 0.02 is fair), and the
floor. `--untuned` leaves torch.compile's max-autotune out.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from unittest.mock import patch

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "profiling")]


def look(path: Path, kinds: list[str]) -> str:
    """What is seen of one problem, on one line."""
    from beamsearch.baselines.floor import measure_floor
    from beamsearch.executor.local import LocalExecutor
    from beamsearch.executor.opened import lane
    from beamsearch.gpu.machine import find_machine
    from beamsearch.judge.on_gpu import TRUE_SETS
    from beamsearch.judge.rejection import GPU_CALL_S, Log
    from beamsearch.judge.runner.client import CALL, Replay
    from beamsearch.judge.runner.reference import problem_message
    from beamsearch.judge.verification.stages import run_sets
    from beamsearch.problem.problem import find_problem
    from beamsearch.records.job import CompareJob, Subject
    from beamsearch.records.verdict import Stage

    problem, machine = find_problem(str(path)), find_machine(0)
    with lane(problem, machine) as (executor, _):
        assert isinstance(executor, LocalExecutor)
        judge = executor._measuring
        assert judge is not None
        runner, log = judge._baseline_runner(), Log()
        given = {"name": CALL, "problem": problem_message(problem), "mode": None}
        with judge._holding("judging"):
            true = judge._true_sets("reference", TRUE_SETS)
            with judge._visit.timed_inputs(true) as timed:
                runner.ask("reference", 120, **given)
                replay = Replay(runner, CALL)
                run_sets(replay, true, Stage.TRUE_SHAPES, log, GPU_CALL_S, 60)
                right = sum(check.passed for check in log.checks)
                # All of its time is in torch's own operations, which is refused to a candidate.
                with patch.object(judge._visit, "_check_share"):
                    alone = judge._visit.measure(replay, timed, log)
                replay.unbind()
        subjects = [Subject(name=kind, kind=kind) for kind in ("eager", *kinds)]
        found = executor.run(CompareJob(subjects=subjects))
    times = {name: found.measurements[name].time_ms for name in found.measurements}
    times = {"as a candidate": alone.time_ms, **times}
    least = measure_floor(problem, machine).time_ms
    told = " ".join(f"{name} {ms:.4f}" for name, ms in times.items())
    ratio = times["as a candidate"] / times["eager"]
    below = [name for name, ms in times.items() if ms < least]
    lost = "".join(f"; {name}: {reason[:90]}" for name, reason in found.failed.items())
    note = f"; BELOW THE FLOOR: {', '.join(below)}" if below else ""
    return (
        f"right on {right} sets; {told} ms; over eager {ratio:.3f}; floor {least:.4f}{note}{lost}"
    )


def main() -> None:
    """Look at each file; a problem that fails does not end the others."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--untuned", action="store_true")
    asked = parser.parse_args()
    for path in asked.files:
        began = time.monotonic()
        try:
            told = look(path, ["compile"] if asked.untuned else ["compile", "max_autotune"])
        except Exception as error:  # noqa: BLE001 - the others are to be seen too
            told = f"FAILED: {type(error).__name__}: {error}"
        print(f"{path.stem[:44]:<44} {time.monotonic() - began:5.0f} s  {told}", flush=True)


if __name__ == "__main__":
    main()
