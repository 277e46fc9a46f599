"""What a run prints as it goes: plain lines."""

from __future__ import annotations

import threading
import time
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING

from beamsearch.cli.account import account, differences, in_all, swept
from beamsearch.cli.clean import clean
from beamsearch.cli.screen import search_in_words
from beamsearch.paths import command
from beamsearch.proposer.prompts.wording import one_line
from beamsearch.records.activity import Activity
from beamsearch.records.amounts import amount
from beamsearch.records.baselines import BASELINES, called
from beamsearch.records.trace import Trace
from beamsearch.report.numbers import clock, configuration, of_products, plus_minus, progress, tell

if TYPE_CHECKING:
    from beamsearch.records.baselines import Baselines
    from beamsearch.records.candidate import Candidate
    from beamsearch.records.round import RoundRecord
    from beamsearch.records.run import RunRecord
    from beamsearch.search.directions import Plan

WINNER = "optimized_kernel_beam_search.py"
"""A run's best kernel, in the run's folder."""
STOPPING = "stopping after the step under way; Ctrl-C again stops at once"


def opening(record: RunRecord) -> list[str]:
    """What a run says up front: the problem, where times come from, what cannot be measured."""
    settings = record.settings
    rule = ", no TF32 anywhere" if settings.precision == "strict" else ""
    rule += ", with gradients" if settings.backward else ""
    scaled = f" scaled to {record.scaled}," if record.scaled else ""
    lines = [
        *flaws_in_words(record),
        f"{record.problem}{scaled} in {record.problem_dtype}{rule}: "
        f"{', '.join(search_in_words(record))}; who thinks: {record.who_thinks}",
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
        # Ratios are of one visit, whose times may be others than the rounds' are.
        beside = f"; beside them the input kernel {baselines.anchor}" if baselines.anchor else ""
        again = "; kept from an earlier visit and scaled" if baselines.rescaled_from else ""
        lines.append(f"baselines: {', '.join(told)}{beside}{again}")
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
        word = "ended" if record.status == "finished" else "not ended"
        lines.append(f"{word}: {record.stop_reason}")
    lines.append(
        f"{amount(totals.candidates, 'candidate')}, {totals.correct} correct, "
        f"{amount(totals.wins, 'win')}, "
        f"{clock(totals.seconds)}"
    )
    lines += account(totals)
    if (folder / WINNER).is_file():
        lines.append(f"kernel: {folder / WINNER}")
    page = Trace(folder).page_file
    if page.is_file():
        lines.append(f"page:   {page}")
    lines.append(f"trace:  {folder}")
    lines += [f"note: {text}" for text in record.notes if text not in told]
    return lines


def paid_in_all(record: RunRecord, folder: Path) -> list[str]:
    """What the models were paid, in one line; nothing where none was asked."""
    if not record.totals.model_calls:
        return []
    from beamsearch.llm.costs import paid, run_prices

    trace = Trace(folder)
    return [in_all(paid(trace, run_prices(trace, record.settings.prices), {}))]


def describe_candidate(candidate: Candidate, description: str | None = None) -> str:
    """A candidate in one line: name, time or failure, description (its own, if none is given)."""
    verdict = candidate.verdict
    if candidate.measurement is not None:
        found = f"{candidate.measurement}{plus_minus(candidate.measurement)}"
    elif verdict.correct:
        found = "correct, not timed"
    else:
        at = f" at {verdict.stage}" if verdict.stage else ""
        found = f"{verdict.outcome}{at}: {one_line(verdict.reason, 100)}"
    origin, share = candidate.built_from, candidate.built_share
    named = {candidate.parent, candidate.repair_of, candidate.tuned_from}
    text = candidate.description if description is None else description
    chosen = configuration(candidate.measurement)
    strange = origin is not None and origin not in named
    built = f"; {share:.0%} of its lines are {origin}'s" if strange and share else ""
    whose = "a person's: " if candidate.is_persons else ""
    return f"{candidate.name}  {found}  ({whose}{one_line(text, 70)}{built}){chosen}"


class PlainDisplay:
    """Plain lines, for logs and pipes."""

    def __init__(self, stream: IO[str]) -> None:
        self.stream = stream
        self.activity = Activity(started=time.time())
        self.lock = threading.RLock()
        self.told: set[str] = set()
        """Notes that were said."""
        self.again = ""
        """The command that goes on with the run."""
        self._yardsticks: set[str] = set()
        """Their lines that were said; baselines are known later than the floor."""

    def say(self, text: str) -> None:
        """Print a line or several."""
        with self.lock:
            self.stream.write(clean(text, lines=True) + "\n")
            self.stream.flush()

    def run_started(self, record: RunRecord, folder: Path) -> None:
        """Print the opening."""
        self.activity = self.activity.with_values(seconds_before=record.totals.seconds)
        self.again = command("resume", folder)
        self.told |= set(record.notes)
        self.say("\n".join(opening(record)))
        self.say(f"trace: {folder}")

    def round_started(self, round: int, plan: Plan) -> None:
        """Print the round's plan."""
        self.activity = self.activity.round_started(time.time())
        told = "; ".join(f"w{a.worker} {a.parent}: {a.direction}" for a in plan.assignments)
        self.say(f"round {round}: {told}" if told else f"round {round}")

    def worker(self, worker: int, doing: str, round: int | None = None) -> None:
        """Nothing: a log of every step would hide what matters."""

    def candidate(self, candidate: Candidate) -> None:
        """Print the candidate's line."""
        self.say(f"  {describe_candidate(candidate)}")

    def round_ended(self, record: RoundRecord, run: RunRecord) -> None:
        """Print the running best."""
        self.activity = self.activity.round_ended(record.round)
        self.tell_round(record, run)

    def tell_round(self, record: RoundRecord, run: RunRecord) -> None:
        """Print what a round came to."""
        self._tell_yardsticks(run)
        for line in [*swept(record), *differences(record)]:
            self.say(f"  {line}")
        kind = "win; " if run.environment.gpu else "modelled win; "
        won = kind if record.win else "no win; " if record.round else ""
        now, rounds_left = time.time(), run.settings.rounds - record.round
        left = self.activity.left_s(now, rounds_left, run.settings.time_limit_s)
        eta = f", about {clock(left)} left" if left else ""
        took = self.activity.elapsed_s(now) if record.seconds is None else record.seconds
        self.say(
            f"round {record.round} of {run.settings.rounds}: {won}best {tell(progress(run))} "
            f"[{clock(took)}{eta}]"
        )

    def _tell_yardsticks(self, run: RunRecord) -> None:
        for line in yardsticks(run):
            if line not in self._yardsticks and line.removeprefix("note: ") not in self.told:
                self.say(line)
        self._yardsticks |= set(yardsticks(run))

    def note(self, text: str) -> None:
        """Print the note."""
        self.told.add(text)
        self.say(f"note: {text}")

    def stopping(self, at_once: bool) -> None:
        """Say what happens now; the second time, give the terminal back first."""
        if not at_once:
            self.say(STOPPING)
            return
        with suppress(RuntimeError):  # the signal came while the stream was written to
            self.close()
            PlainDisplay.say(self, f"stopped at once; go on with: {self.again}")  # to be copied

    def run_stopped(self, record: RunRecord) -> None:
        """Print what was measured meanwhile; why it stops is the command's last line."""
        if record.status == "waiting":
            self._tell_yardsticks(record)

    def run_ended(self, record: RunRecord, folder: Path) -> None:
        """Print the closing."""
        self.close()
        self.say("\n".join([*closing(record, folder, self.told), *paid_in_all(record, folder)]))

    def close(self) -> None:
        """Nothing to put back."""
