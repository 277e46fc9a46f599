"""The live view of a run: a panel in a terminal, plain lines everywhere else."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Collection
from pathlib import Path
from typing import IO, TYPE_CHECKING

from beamsearch.cli.account import account, differences, swept
from beamsearch.cli.numbers import clock, of_products, progress, tell
from beamsearch.proposer.prompts.facts import one_line
from beamsearch.records.baselines import BASELINES, called

if TYPE_CHECKING:
    from rich.console import Console, Group

    from beamsearch.records.baselines import Baselines
    from beamsearch.records.candidate import Candidate
    from beamsearch.records.round import RoundRecord
    from beamsearch.records.run import RunRecord


WINNER = "optimized_kernel_beam_search.py"
"""A run's best kernel, in the run's folder."""


class Clock:
    """Elapsed time of this process's part of a run, and how long is left."""

    def __init__(self) -> None:
        self.started = time.monotonic()
        self.first_round: float | None = None
        self.rounds_done = 0

    @property
    def elapsed_s(self) -> float:
        """Seconds since the start."""
        return time.monotonic() - self.started

    def round_started(self, round: int) -> None:
        """Rounds are counted from the first that this process sees."""
        if round and self.first_round is None:
            self.first_round = time.monotonic()

    def round_ended(self) -> None:
        """Round 0 does not count."""
        self.rounds_done += self.first_round is not None

    def left_s(self, rounds_left: int, limit_s: float | None) -> float | None:
        """Seconds to the end at the pace of the rounds so far, at most to the time limit."""
        left = None
        if self.rounds_done and self.first_round is not None:
            left = (time.monotonic() - self.first_round) / self.rounds_done * rounds_left
        if limit_s is not None:
            to_limit = max(0.0, limit_s - self.elapsed_s)
            left = to_limit if left is None else min(left, to_limit)
        return left


def opening(record: RunRecord) -> list[str]:
    """What a run says up front: the problem, where times come from, what cannot be measured."""
    settings = record.settings
    kept = f"beam {settings.beam}" if settings.strategy == "beam" else settings.strategy
    rule = ", no TF32 anywhere" if settings.precision == "strict" else ""
    rule += ", with gradients" if settings.backward else ""
    scaled = f" scaled to {record.scaled}," if record.scaled else ""
    lines = [
        *flaws_in_words(record),
        f"{record.problem}{scaled} in {record.problem_dtype}{rule}: {settings.rounds} rounds of "
        f"{settings.workers} workers, {kept}, {settings.variants} variants each; "
        f"who thinks: {record.who_thinks}",
    ]
    lines += [f"note: {text}" for text in record.notes]
    return lines


def flaws_in_words(record: RunRecord) -> list[str]:
    """A line that says why a win on this problem may mean little; none where nothing was found."""
    if not record.flaws:
        return []
    told = "; ".join(f"{fault.flaw}: {fault.told}" for fault in record.flaws)
    return [f"a win on {record.problem} may mean little: {told}"]


def yardsticks(record: RunRecord) -> list[str]:
    """The floor and the baselines, as far as they are known."""
    lines = []
    if record.floor is not None:
        floor = record.floor
        rate = "measured" if floor.bandwidth_source == "measured" else "datasheet"
        lines.append(
            f"floor {floor.time_ms:.4g} ms: {floor.least_bytes / 1e9:.3f} GB at "
            f"{floor.bandwidth_gb_s:.0f} GB/s ({rate}, {floor.gpu}), "
            f"{floor.flops / 1e9:.1f} GFLOP{of_products(floor)}"
        )
        lines += [f"note: {floor.corrected}"] if floor.corrected else []
    baselines = record.confirmation.baselines if record.confirmation else record.baselines
    times = {name: getattr(baselines, name) for name in BASELINES}
    told = [f"{called(name)} {time}" for name, time in times.items() if time is not None]
    if told:
        again = ", kept from an earlier visit and scaled" if baselines.rescaled_from else ""
        lines.append(f"baselines: {', '.join(told)}{again}")
    lines += [f"no {called(name)}: {why}" for name, why in absent(baselines).items()]
    return lines


def absent(baselines: Baselines) -> dict[str, str]:
    """Why baselines are absent; one reason for all is shown once."""
    reasons = set(baselines.absent.values())
    if len(baselines.absent) > 1 and len(reasons) == 1:
        return {"baselines": reasons.pop()}
    return baselines.absent


def closing(record: RunRecord, folder: Path, told: Collection[str]) -> list[str]:
    """What a run says at its end. `told`: notes that were said before."""
    totals = record.totals
    lines = [f"best: {tell(progress(record))}", *flaws_in_words(record)]
    if record.stop_reason:
        lines.append(f"ended: {record.stop_reason}")
    lines.append(
        f"{totals.candidates} candidates, {totals.correct} correct, {totals.wins} wins, "
        f"{clock(totals.seconds)}"
    )
    lines += account(totals)
    if (folder / WINNER).is_file():
        lines.append(f"kernel: {folder / WINNER}")
    lines.append(f"trace:  {folder}")
    lines += [f"note: {text}" for text in record.notes if text not in told]
    return lines


def describe_candidate(candidate: Candidate) -> str:
    """A candidate in one line: name, time or failure, description."""
    verdict = candidate.verdict
    if candidate.measurement is not None:
        found = str(candidate.measurement)
    elif verdict.correct:
        found = "correct, not timed"
    else:
        at = f" at {verdict.stage}" if verdict.stage else ""
        found = f"{verdict.outcome}{at}: {one_line(verdict.reason, 100)}"
    origin, share = candidate.built_from, candidate.built_share
    named = {candidate.parent, candidate.repair_of, candidate.tuned_from}
    strange = origin is not None and origin not in named
    built = f"; {share:.0%} of its lines are {origin}'s" if strange and share else ""
    whose = "a person's: " if candidate.is_persons else ""
    return f"{candidate.name}  {found}  ({whose}{one_line(candidate.description, 70)}{built})"


class PlainDisplay:
    """Plain lines, for logs and pipes."""

    def __init__(self, stream: IO[str]) -> None:
        self.stream = stream
        self.clock = Clock()
        self.lock = threading.RLock()
        self.told: set[str] = set()
        """Notes that were said."""
        self._yardsticks: set[str] = set()
        """Their lines that were said; baselines are known later than the floor."""

    def say(self, text: str, style: str = "") -> None:
        """Print a line or several."""
        with self.lock:
            self.stream.write(text + "\n")
            self.stream.flush()

    def run_started(self, record: RunRecord, folder: Path) -> None:
        """Print the opening."""
        self.told |= set(record.notes)
        self.say("\n".join(opening(record)))
        self.say(f"trace: {folder}", "dim")

    def round_started(self, round: int, plans: list[str]) -> None:
        """Print the round's plans."""
        self.clock.round_started(round)
        plan = "; ".join(f"w{worker} {text}" for worker, text in enumerate(plans))
        self.say(f"round {round}: {plan}" if plan else f"round {round}")

    def worker(self, worker: int, doing: str) -> None:
        """Nothing: a log of every step would hide what matters."""

    def candidate(self, candidate: Candidate) -> None:
        """Print the candidate's line."""
        self.say(f"  {describe_candidate(candidate)}", "" if candidate.verdict.correct else "dim")

    def round_ended(self, record: RoundRecord, run: RunRecord) -> None:
        """Print the running best."""
        for line in yardsticks(run):
            if line not in self._yardsticks and line.removeprefix("note: ") not in self.told:
                self.say(line)
        self._yardsticks |= set(yardsticks(run))
        self.clock.round_ended()
        for line in [*swept(record), *differences(record)]:
            self.say(f"  {line}")
        won = "win; " if record.win else "no win; " if record.round else ""
        left = self.clock.left_s(run.settings.rounds - record.round, run.settings.time_limit_s)
        eta = f", about {clock(left)} left" if left else ""
        self.say(
            f"round {record.round} of {run.settings.rounds}: {won}best {tell(progress(run))} "
            f"[{clock(self.clock.elapsed_s)}{eta}]",
            "bold green" if record.win else "bold",
        )

    def note(self, text: str) -> None:
        """Print the note."""
        self.told.add(text)
        self.say(f"note: {text}", "yellow")

    def run_ended(self, record: RunRecord, folder: Path) -> None:
        """Print the closing."""
        self.close()
        self.say("\n".join(closing(record, folder, self.told)))

    def close(self) -> None:
        """Nothing to put back."""


class LiveDisplay(PlainDisplay):
    """The same lines above a panel that is redrawn: round, workers, best, elapsed, time left."""

    def __init__(self, console: Console) -> None:
        from rich.live import Live

        super().__init__(console.file)
        self.console = console
        self.run: RunRecord | None = None
        self.round = 0
        self.plans: list[str] = []
        self.doing: dict[int, str] = {}
        self.verdicts: Counter[str] = Counter()
        self.live = Live(
            get_renderable=self._draw, console=console, refresh_per_second=4, transient=True
        )

    def _draw(self) -> Group:
        from rich.console import Group
        from rich.text import Text

        with self.lock:
            if self.run is None:
                return Group()
            settings = self.run.settings
            left = self.clock.left_s(settings.rounds - self.round + 1, settings.time_limit_s)
            eta = f"   about {clock(left)} left" if left is not None else ""
            at = f"round {self.round} of {settings.rounds}   {clock(self.clock.elapsed_s)}{eta}"
            lines = [Text(at, "bold"), Text(f"best {tell(progress(self.run))}", "green")]
            for worker, doing in sorted(self.doing.items()):
                plan = self.plans[worker] if worker < len(self.plans) else ""
                lines.append(Text(f"  w{worker}  {plan:<34}  {doing}", no_wrap=True))
            if self.verdicts:
                seen = ", ".join(f"{count} {word}" for word, count in sorted(self.verdicts.items()))
                lines.append(Text(f"  candidates: {seen}", "dim"))
            return Group(*lines)

    def say(self, text: str, style: str = "") -> None:
        """Print above the panel."""
        self.console.print(text, style=style, markup=False, highlight=False, soft_wrap=True)

    def run_started(self, record: RunRecord, folder: Path) -> None:
        """Print the opening and start the panel."""
        self.run = record
        super().run_started(record, folder)
        self.live.start()

    def round_started(self, round: int, plans: list[str]) -> None:
        """Put the round's plans into the panel."""
        self.clock.round_started(round)
        with self.lock:
            self.round, self.plans = round, plans
            self.doing = dict.fromkeys(range(len(plans)), "")
            self.verdicts.clear()

    def worker(self, worker: int, doing: str) -> None:
        """Put what the worker does into the panel."""
        with self.lock:
            self.doing[worker] = doing

    def candidate(self, candidate: Candidate) -> None:
        """Print the candidate's line, and count its outcome in the panel."""
        with self.lock:
            self.verdicts[str(candidate.verdict.outcome)] += 1
        super().candidate(candidate)

    def round_ended(self, record: RoundRecord, run: RunRecord) -> None:
        """Print the running best, and put it into the panel."""
        with self.lock:
            self.run, self.doing = run, {}
        super().round_ended(record, run)

    def close(self) -> None:
        """Give the terminal back."""
        self.live.stop()


def make_display(json: bool) -> PlainDisplay | LiveDisplay:
    """The view for this process: live in a terminal; plain lines elsewhere, on stderr for JSON."""
    import sys

    if json:
        return PlainDisplay(sys.stderr)
    if not sys.stdout.isatty():
        return PlainDisplay(sys.stdout)
    from rich.console import Console

    return LiveDisplay(Console())
