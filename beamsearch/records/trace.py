"""Where a run's records stand, and how they get there: each file whole or not at all."""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

from pydantic import BaseModel, ValidationError

from beamsearch.errors import UsageError
from beamsearch.records.candidate import Candidate
from beamsearch.records.measurement import Measurement
from beamsearch.records.record import R
from beamsearch.records.round import RoundRecord
from beamsearch.records.run import RunRecord
from beamsearch.records.steering import Steering

WORKER_FILES = (
    "input_ncu_metrics.json",
    "bottleneck_prompt.txt",
    "bottleneck_response.txt",
    "strategy.json",
    "opt_prompt.txt",
    "opt_reply.txt",
    "reflexion.txt",
    "optimized_ncu_metrics.json",
    "kernel.py",
)
"""What a worker leaves, and what the round's folder holds a copy of from its best worker (beside
`benchmark_results.json`, which speaks of the whole round there)."""
CANDIDATES = "r*-[vp]*.json"
"""The records of those judged in a round's folder of a worker, or of a person's kernels."""


def write_text(path: Path, text: str) -> None:
    """Write a file whole or not at all, also when the process is killed or the disk is full."""
    partial = path.with_name(f".{path.name}.partial")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with partial.open("w") as stream:
            stream.write(text)
            stream.flush()
            os.fsync(stream.fileno())
        partial.replace(path)
    except OSError as error:
        with suppress(OSError):
            partial.unlink()
        raise UsageError(
            f"cannot write {path}: {error}; what was written before is kept"
        ) from error


def write_record(path: Path, record: BaseModel) -> None:
    """Write a record as indented JSON."""
    write_text(path, record.model_dump_json(indent=2) + "\n")


def read_record(path: Path, kind: type[R]) -> R:
    """Read a record. Raises UsageError where the file is missing or not of this kind."""
    try:
        return kind.model_validate_json(path.read_text())
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"cannot read {path}: {error}") from error
    except ValidationError as error:
        raise UsageError(f"{path} is not a {kind.__name__}: {error}") from error


def recorded(path: Path, kind: type[R], make: Callable[[], R]) -> R:
    """The record in a file; where there is none, made and written first. A step runs once."""
    if path.is_file():
        return read_record(path, kind)
    record = make()
    write_record(path, record)
    return record


def kept_secret(path: Path) -> int:
    """The secret number in a file that only its owner can read, drawn where there is none yet.

    Raises UsageError where the file cannot be read or holds something else.
    """
    if not path.is_file():
        partial = path.with_name(f"{path.name}.partial")
        partial.unlink(missing_ok=True)
        with os.fdopen(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.write(f"{secrets.randbits(128)}\n")
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)
    try:
        return int(path.read_text())
    except (OSError, ValueError) as error:
        raise UsageError(f"cannot read the run's secret seed in {path}: {error}") from error


class Trace:
    """The folder of one run: names of its files, nothing of what they mean."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.run_file = folder / "run.json"
        self.problem_file = folder / "problem.py"
        self.results_file = folder / "results.tsv"
        self.ledger_file = folder / "ledger.jsonl"
        self.prices_file = folder / "prices.toml"
        """The user's own price list, as it was when the run started."""
        self.best_kernel_file = folder / "optimized_kernel_beam_search.py"
        self.confirmation_file = folder / "confirmation.json"
        self.page_file = folder / "report.html"
        self.picture_file = folder / "progress.svg"
        self.secret_file = folder / ".secret_seed"
        """What the judge's inputs are drawn from, where no seed was asked for."""
        self.rounds_folder = folder / "optimization_trace"
        self.input_file = folder / "input_kernel.py"
        self.input_record = self.round(0) / "r0-s0.json"
        self.learned_file = folder / "learned.json"
        """What earlier runs taught, as it was when the run started."""
        self.steering_file = folder / "steering.json"
        self.scratch = folder / ".scratch"
        """Compile caches and candidates' own folders; nothing of the run's record."""
        self.activity_file = self.scratch / "activity.json"

    def round(self, number: int) -> Path:
        """Folder of a round."""
        return self.rounds_folder / f"round_{number}"

    def worker(self, number: int, worker: int | None) -> Path:
        """Folder of a worker in a round; of none, that of a person's kernels."""
        return self.round(number) / ("person" if worker is None else f"workers/w{worker}")

    def judged(self, number: int) -> list[Path]:
        """Records of a round's candidates so far: a person's kernels, then by worker."""
        folder = self.round(number)
        return sorted([*folder.glob(f"person/{CANDIDATES}"), *folder.glob(f"*/w*/{CANDIDATES}")])

    def visit(self, visit: str) -> Path:
        """The anchor's time in one visit."""
        return self.folder / "visits" / f"{visit}.json"

    def visits(self) -> list[str]:
        """Those of which the anchor's time is here."""
        return [path.stem for path in self.visit("").parent.glob("*.json")]

    def examination(self, candidate: str) -> Path:
        """The verdict of a closer look at a candidate that may win the run."""
        return self.folder / "examinations" / f"{candidate}.json"

    def profile(self, candidate: str) -> Path:
        """The profile of a candidate, taken once."""
        return self.rounds_folder / "profiles" / f"{candidate}.json"

    def relative(self, path: Path) -> str:
        """A path as records write it: relative to the run's folder."""
        return path.relative_to(self.folder).as_posix()

    def first_source(self) -> str:
        """Source of the first kernel; empty where a model has yet to write it."""
        return self.input_file.read_text() if self.input_file.is_file() else ""

    def kernel_source(self, candidate: Candidate) -> str:
        """Source of a candidate that has one."""
        assert candidate.kernel_file is not None
        return (self.folder / candidate.kernel_file).read_text()

    def input_time_ms(self, visit: str | None) -> float:
        """The input kernel's time in a visit to a GPU; of no visit, its modelled time."""
        if visit is not None:
            return read_record(self.visit(visit), Measurement).time_ms
        return read_record(self.input_record, Candidate).time_ms

    def run_record(self) -> RunRecord:
        """`run.json`. Raises UsageError where there is none."""
        if not self.run_file.is_file():
            told = "no run.json in it; one that is starting has it soon; `runs` lists what is below"
            raise UsageError(f"{self.folder} holds no run ({told})")
        return read_record(self.run_file, RunRecord)

    def steering(self) -> Steering:
        """What people gave the run so far."""
        path = self.steering_file
        return read_record(path, Steering) if path.is_file() else Steering()

    def round_record(self, number: int) -> RoundRecord:
        """`round.json` of a completed round."""
        return read_record(self.round(number) / "round.json", RoundRecord)

    def completed_rounds(self) -> list[RoundRecord]:
        """Records of the rounds completed, from round 0."""

        def upwards() -> Iterator[RoundRecord]:
            number = 0
            while (self.round(number) / "round.json").is_file():
                yield self.round_record(number)
                number += 1

        return list(upwards())

    def barely_begun(self) -> bool:
        """Whether the folder is not there, or holds at most what a run writes before `run.json`."""
        there = {path.name for path in self.folder.iterdir()} if self.folder.exists() else set()
        files = [self.problem_file, self.input_file, self.prices_file, self.run_file]
        files += [self.learned_file]
        first = {path.name for path in files}
        first |= {f".{name}.partial" for name in first} | {".lock"}
        return not there or (there <= first and ".lock" in there)

    def paid_for(self) -> list[str]:
        """What is here of answers, in words; a batch that was handed over is paid for too, and what
        a person gave was work."""
        found = {
            "recorded answers": self.rounds_folder.glob("round_*/workers/*/calls/*.json"),
            "answers to a batch": self.folder.glob("responses*.jsonl"),
            "a batch that was handed over": self.folder.glob("requests*.jsonl"),
            "hints or kernels that a person gave": self.folder.glob(self.steering_file.name),
        }
        return [what for what, files in found.items() if any(files)]

    def sweep(self) -> None:
        """Remove what a killed process left half-written; a person may be writing a hint."""
        for partial in self.folder.rglob(".*.partial"):
            if self.steering_file.name not in partial.name:
                partial.unlink(missing_ok=True)
