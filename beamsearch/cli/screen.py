"""A run on one screen: what it came to so far, and what each worker does right now."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from beamsearch.cli.clean import clean
from beamsearch.records.amounts import amount
from beamsearch.report.numbers import clock, progress, ratio, sign, speedups

if TYPE_CHECKING:
    from rich.text import Text

    from beamsearch.records.run import RunRecord
    from beamsearch.run.snapshot import Snapshot

BARS = "▁▂▃▄▅▆▇█"
PARENT, DIRECTION = 14, 26
"""Widest columns of the workers' table, in characters."""


def draw(now: Snapshot, at: float, size: tuple[int, int], word: str, told: Sequence[str]) -> Text:
    """A snapshot as lines of a screen of `size` (columns, rows). `at` is the time, in Unix seconds;
    `word` stands in the last row; `told` is shown where there is room, the last of it."""
    from rich.text import Text

    width, height = size
    head = [
        *_title(now.record, width),
        "",
        (_state(now, at), "bold yellow" if _is_stopping(now) else "bold"),
        *_why_stopped(now, width),
        *_best(now.record, width),
        *_ahead(now),
        *_sparkline(now.record, width),
        "",
    ]
    foot = ["", *_wrapped(_counts(now), width), *_wrapped(_costs(now), width)]
    room = height - len(head) - len(foot) - 1
    rows = _workers(now, at, width, max(2, room))
    room -= len(rows) + 2  # an empty row before and after
    recent = list(told)[-room:] if room > 0 else []
    body = [*head, *rows, *foot, *(["", *((line, "dim") for line in recent)] if recent else [])]
    shown = body[: height - 1]
    shown += [""] * (height - 1 - len(shown))
    text = Text(no_wrap=True, overflow="ellipsis", end="")
    for line in [*shown, (word, "dim")]:
        words, style = (line, "") if isinstance(line, str) else line
        part = Text(clean(words), style)
        part.truncate(width, overflow="ellipsis")
        text.append_text(part)
        text.append("\n")
    text.right_crop(1)
    return text


def search_in_words(run: RunRecord) -> list[str]:
    """How large the search is."""
    settings = run.settings
    return [
        f"{amount(settings.rounds, 'round')} of {amount(settings.workers, 'worker')}",
        f"beam {settings.beam}" if settings.strategy == "beam" else settings.strategy,
        f"{amount(settings.variants, 'variant')} each",
    ]


def _title(run: RunRecord, width: int) -> Iterator[tuple[str, str]]:
    dtype = f" in {run.problem_dtype}"
    scaled = f" scaled to {run.scaled}" if run.scaled else ""
    problem = run.problem
    most = width - len(dtype)
    if len(problem) > most:  # names of problems are long, and their beginnings tell them apart
        problem = f"{problem[: most - 1]}…"
    yield f"{problem}{dtype}{scaled}", "bold"
    where = run.environment
    gpu = where.gpu or f"no GPU, times are modelled (~) for {where.target}"
    yield from ((line, "") for line in _wrapped([gpu, *search_in_words(run)], width))


def _is_stopping(now: Snapshot) -> bool:
    return now.activity is not None and now.activity.stopping


def _state(now: Snapshot, at: float) -> str:
    """Where the run is, and how long it takes."""
    rounds, settings = len(now.rounds), now.record.settings
    done = max(0, rounds - 1)
    at_round = f"{amount(done, 'round')} done"
    if now.plan:
        at_round = f"round {rounds} of {settings.rounds}"
    if not rounds:
        at_round = "first kernel and floor"
    if now.activity is None:
        took = clock(now.record.totals.seconds)
        return f"{at_round}, {took} so far" + ("" if now.is_worked_on else "; nobody works on it")
    parts = [at_round, f"{clock(now.activity.elapsed_s(at))} so far"]
    left = now.activity.left_s(at, settings.rounds - done, settings.time_limit_s)
    if now.activity.stopping:
        parts.append("stopping")
    elif left:
        parts.append(f"about {clock(left)} left")
    elif left is None and now.plan and settings.rounds > 1:
        parts.append("time left is known after a round")
    return ", ".join(parts)


def _why_stopped(now: Snapshot, width: int) -> Iterator[tuple[str, str]]:
    """What a run waits for that nobody works on."""
    if not now.is_worked_on and now.record.stop_reason:
        yield from ((line, "yellow") for line in textwrap.wrap(now.record.stop_reason, width))


def _best(run: RunRecord, width: int) -> Iterator[tuple[str, str]]:
    """The best kernel, its time with its spread, and how far it is."""
    now = progress(run)
    if now.best is None or now.time is None:
        yield "best  nothing correct yet", ""
        return
    spread = ""
    if now.time.p20_ms is not None and now.time.p80_ms is not None:
        spread = f" [{now.time.p20_ms:.4g}, {now.time.p80_ms:.4g}]"
    floor = f", {sign(now.time)}{now.of_floor:.2f}x the floor" if now.of_floor is not None else ""
    yield f"best  {now.best}  {now.time}{spread}{floor}", "bold green"
    for line in _wrapped(speedups(now), width - 6):
        yield f"      {line}", "green"


def _ahead(now: Snapshot) -> Iterator[tuple[str, str]]:
    """The fastest candidate of the round under way, where it seems faster than the best."""
    best = progress(now.record).time
    gains = {c.name: (ratio(best, c.measurement) or 0.0, c) for c in now.under_way}
    gain, ahead = max(gains.values(), key=lambda item: item[0], default=(0.0, None))
    if ahead is not None and gain > 1:
        about = sign(ahead.measurement)
        told = f"{ahead.name}  {ahead.measurement}, {about}{gain:.2f}x over it; not confirmed yet"
        yield f"      {told}", "green"


def _sparkline(run: RunRecord, width: int) -> Iterator[tuple[str, str]]:
    """The best so far after each round, over the input kernel; of many rounds, the last."""
    values = [line.speedup for line in run.rounds]
    if len(values) < 2:
        return
    low, high, about = min(values), max(values), sign(run.rounds[-1].best_time)
    told = f"  {about}{values[0]:.2f}x to {about}{values[-1]:.2f}x over input, by round"
    values = values[-(width - 6 - len(told)) :]
    steps = len(BARS) - 1
    bars = (BARS[round((v - low) / (high - low) * steps) if high > low else 0] for v in values)
    yield f"      {''.join(bars)}{told}", "green"


def _workers(now: Snapshot, at: float, width: int, most: int) -> list[tuple[str, str] | str]:
    """A row a worker: parent, direction, what it does, for how long."""
    own = now.activity.tasks if now.activity else []
    tasks = {(task.round or 0, task.worker): task for task in own}
    dealt = {
        (number, a.worker): (a.parent, str(a.direction))
        for number, plan in now.plans.items()
        for a in plan
    }
    rows = []
    for number, worker in sorted(dealt.keys() | tasks.keys()):
        parent, direction = dealt.get((number, worker), ("", ""))
        task = tasks.get((number, worker))
        lasts = clock(at - task.since) if task and task.doing != "done" else ""
        name = f"r{number}-w{worker}" if len(now.plans) > 1 else f"w{worker}" if dealt else ""
        rows.append((name, parent, direction, lasts, task.doing if task else ""))
    if not rows:
        return []
    if not dealt:
        return [f"{doing}  {lasts}" for _, _, _, lasts, doing in rows]
    heading = ("", "parent", "direction", "for", "does")
    widths = [max(map(_cells, column)) for column in zip(heading, *rows, strict=True)]
    widths[1], widths[2] = min(widths[1], PARENT), min(widths[2], DIRECTION)
    widths[4] = max(4, width - 8 - sum(widths[:4]))
    hidden = len(rows) + 1 - most
    if hidden > 0:
        rows = rows[: most - 2]
    lines: list[tuple[str, str] | str] = [(_row(heading, widths), "dim")]
    lines += [_row(row, widths) for row in rows]
    return [*lines, f"and {hidden + 1} more workers"] if hidden > 0 else lines


def _row(cells: Sequence[str], widths: Sequence[int]) -> str:
    from rich.cells import set_cell_size

    shown = [
        set_cell_size(cell, most) if _cells(cell) <= most else f"{set_cell_size(cell, most - 1)}…"
        for cell, most in zip(map(clean, cells), widths, strict=True)
    ]
    return "  ".join(shown)


def _cells(text: str) -> int:
    from rich.cells import cell_len

    return cell_len(clean(text))


def _counts(now: Snapshot) -> list[str]:
    """Verdicts so far, and of the round under way."""
    outcomes = now.outcomes
    if not outcomes:
        return ["no candidates judged yet"]
    total = f"{amount(outcomes.total(), 'candidate')}: "
    told = [f"{count} {word.replace('_', ' ')}" for word, count in outcomes.most_common()]
    return [total + told[0], *told[1:]]


def _costs(now: Snapshot) -> list[str]:
    """Tokens and cost, where a model is asked."""
    paid = now.paid
    if not paid.calls:
        return [f"{now.record.who_thinks} thinks: no model is asked, nothing is paid"]
    cached = f" ({paid.tokens_cached:,} cached)" if paid.tokens_cached else ""
    return [
        f"{now.record.who_thinks}: {amount(paid.calls, 'call')}",
        f"{paid.tokens_in:,} tokens in{cached}",
        f"{paid.tokens_out:,} out",
        *([paid.cost] if paid.cost else []),
    ]


def _wrapped(parts: Iterable[str], width: int) -> list[str]:
    """The parts, with commas between them, on as few lines as hold them whole."""
    lines: list[str] = []
    for part in parts:
        if lines and len(lines[-1]) + 2 + len(part) < width:
            lines[-1] += f", {part}"
        else:
            if lines:
                lines[-1] += ","
            lines.append(part)
    return lines
