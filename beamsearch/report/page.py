"""One file for a browser: everything that a run's records say, readable without a network."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from markupsafe import Markup, escape

from beamsearch.records.amounts import amount
from beamsearch.records.baselines import called
from beamsearch.records.candidate import Candidate
from beamsearch.records.trace import Trace, write_text
from beamsearch.report import belief, plots, tried, words
from beamsearch.report.code import annotated, difference, highlighted, visible
from beamsearch.report.counters import below_least, counters, hottest, scope
from beamsearch.report.limits import limits
from beamsearch.report.lineage import in_all, lineage
from beamsearch.report.numbers import clock, progress
from beamsearch.report.roofline import roofline
from beamsearch.report.run_data import INPUT, RunData
from beamsearch.report.texts import Texts
from kernel_profiling.profile import Launch

if TYPE_CHECKING:
    from jinja2 import Environment

_NAME = re.compile(r"\br\d+-[swp]\d+(-v\d+)?(-[ft]\d+)*\b")
_CODE = re.compile(r"`([^`\n]+)`")
NO_PLOTS = "no plots: matplotlib is not installed here; `pip install matplotlib`, then `report RUN`"


def write_report(run: RunData, page: Path) -> None:
    """Write a run's page. Raises UsageError where a file cannot be read or written."""
    texts = Texts(page, run.trace)
    write_text(page, run_page(run, texts))
    texts.write()


def read_ahead(trace: Trace, candidates: Sequence[Candidate]) -> None:
    """Do what the page of a run will need of these, and takes long."""
    for candidate in candidates:
        if candidate.kernel_file is not None:
            highlighted(trace.kernel_source(candidate))
    plots.can_plot()  # imports matplotlib


def leave_report(trace: Trace) -> None:
    """`report.html` and `progress.svg` beside `run.json`. Raises UsageError where the run has no
    completed round, or a file cannot be read or written."""
    run = RunData(trace)
    write_report(run, trace.page_file)
    if plots.can_plot():
        write_text(trace.picture_file, plots.small_curve(run))


def write_comparison(runs: Mapping[str, RunData], pages: Mapping[str, str], page: Path) -> None:
    """Write one page of several runs: a table, and curves by problem. `pages`: name -> where the
    run's own page is read. Raises UsageError where it cannot be written."""
    problems: dict[str, list[tuple[str, RunData]]] = {}
    for name, run in runs.items():
        key = f"{run.record.problem} {run.record.scaled}".strip()
        problems.setdefault(f"{key}, {'modelled' if run.modelled else 'measured'}", []).append(
            (name, run)
        )
    drawn = plots.can_plot()
    text = _rendered(
        "runs.html.j2",
        title=f"{len(runs)} runs",
        rows=[(name, run, progress(run.record)) for name, run in runs.items()],
        pages=pages,
        curves={
            problem: plots.several(number, some) if drawn else None
            for number, (problem, some) in enumerate(problems.items())
        },
        texts={},
    )
    write_text(page, text)


def run_page(run: RunData, texts: Texts) -> str:
    """The page's HTML; what it has no room for is linked, and stands in `texts`."""
    for name in run.important:
        texts.add(f"card {name}", _card(run, texts, run.candidates[name]))
    winner = run.winner
    line = run.lineage(winner)
    return _rendered(
        "run.html.j2",
        run=run,
        title=f"{run.record.problem}: {winner.name}",
        plots=_plots(run),
        lineage=lineage(run),
        line={c.name for c in line},
        bests=[
            (c, run.against(c, before.name), before.name)
            for before, c in zip(run.bests, run.bests[1:], strict=False)
        ],
        ties=belief.tied(run),
        tree=_children(run),
        annotated=_annotated(run, winner),
        hottest=hottest(run.profile(winner.name), run.source(winner) or ""),
        counters=counters(run.profile(INPUT), run.profile(winner.name)),
        scope=scope(run.profile(INPUT), run.profile(winner.name)),
        below=_below_least(run),
        launches=_launches(run),
        problem=_problem(run),
        difference=Markup("\n").join(map(Markup, _difference(run, winner, INPUT))),
        texts=texts.packed,
    )


def _launches(run: RunData) -> list[tuple[str, Launch]]:
    """Those of the input kernel and of the winner, each behind its name."""
    profiles = {name: run.profile(name) for name in dict.fromkeys([INPUT, run.winner.name])}
    return [(name, launch) for name, p in profiles.items() if p for launch in p.launches]


def _below_least(run: RunData) -> str:
    """The note on the winner's traffic, where it is below what must be moved."""
    floor = run.record.floor
    return below_least(run.profile(run.winner.name), floor.least_bytes) if floor else ""


def _problem(run: RunData) -> Markup:
    """Its source, highlighted; nothing where the run's folder has none."""
    file = run.trace.problem_file
    lines = highlighted(file.read_text()) if file.is_file() else []
    return Markup("\n").join(map(Markup, lines))


def _plots(run: RunData) -> dict[str, plots.Plot | None]:
    if not plots.can_plot():
        return {}
    return {
        "curve": plots.curve(run),
        "effort": plots.effort(run),
        "roofline": roofline(run),
    }


def _children(run: RunData) -> dict[str | None, list[tuple[Candidate, str]]]:
    """Name -> the candidates made from it, each with what sets it apart from the others."""
    found: dict[str | None, list[Candidate]] = {}
    for candidate in run.candidates.values():
        origin = run.origin(candidate)
        found.setdefault(origin if origin in run.candidates else None, []).append(candidate)
    told = {origin: words.different_words(some) for origin, some in found.items()}
    return {origin: [(c, told[origin][c.name]) for c in some] for origin, some in found.items()}


def _card(run: RunData, texts: Texts, candidate: Candidate) -> str:
    """What opens where a candidate is chosen."""
    shown: list[tuple[str, str]] = []
    beside: list[tuple[str, str]] = []
    brief = texts.full
    source = None if brief else run.source(candidate)
    if source is not None:
        profiled = " beside its profile" if run.profile(candidate.name) else ""
        shown.append(
            (f"source{profiled}", texts.add(f"code {candidate.name}", _source_html(run, candidate)))
        )
        origin = run.origin(candidate)
        if changed := _difference(run, candidate, origin):
            html = f'<pre class="code diff" tabindex="0">{chr(10).join(changed)}</pre>'
            shown.append((f"difference to {origin}", texts.add(f"diff {candidate.name}", html)))
    if brief:
        files = {"profile": run.trace.profile(candidate.name)}
        if candidate.kernel_file:
            files["source"] = run.trace.folder / candidate.kernel_file
        beside += [(title, texts.link(path)) for title, path in files.items() if path.is_file()]
    for title, path in run.worker_files(candidate):
        name = f"text {run.trace.relative(path)}"
        if brief and name not in texts.packed:
            beside.append((title, texts.link(path)))
        else:
            shown.append((title, texts.add(name, visible(path.read_text()))))
    titles = {title for title, _ in (*shown, *beside)}
    answered = [t.removesuffix("reply") for t in titles if t.endswith("reply")]
    alone = any(f"{title}prompt" not in titles for title in answered)
    return _rendered(
        "card.html.j2",
        run=run,
        c=candidate,
        promptless="A reply without its prompt: the run's folder has that no more."
        if alone
        else "",
        shown=shown,
        beside=beside,
        brief=brief,
        counters=[] if brief else counters(None, run.profile(candidate.name)),
        scope="" if brief else scope(None, run.profile(candidate.name)),
    )


def _annotated(run: RunData, candidate: Candidate) -> str:
    """A source beside its profile; with line numbers alone where it has none."""
    return Markup(_source_html(run, candidate))


def _source_html(run: RunData, candidate: Candidate) -> str:
    source, profile = run.source(candidate) or "", run.profile(candidate.name)
    if profile is None:
        head, rows = "", [("", 0.0, html) for html in highlighted(source)]
    else:
        head, rows = annotated(source, profile)
    lines = [
        f'<span class="l" style="--heat:{min(share, 1):.3f}">'
        f'<span class="m">{number:4} {margin}</span>{html}\n</span>'
        for number, (margin, share, html) in enumerate(rows, 1)
    ]
    top = f'<span class="l head"><span class="m">line {head}</span>\n</span>' if head else ""
    return f'<pre class="code" tabindex="0">{top}{"".join(lines)}</pre>'


def _difference(run: RunData, candidate: Candidate, other: str | None) -> list[str]:
    before = run.candidates.get(other or "")
    sources = [run.source(c) if c else None for c in (before, candidate)]
    if sources[0] is None or sources[1] is None:
        return []
    return difference(sources[0], sources[1])


def _rendered(template: str, **values: Any) -> str:
    return _environment().get_template(template).render(**values)


@cache
def _environment() -> Environment:
    """Every string that a template prints is escaped, and what nobody would see is made visible."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    folder = Path(__file__).parent
    environment = Environment(
        loader=FileSystemLoader(folder),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=lambda value: (
            visible(value) if isinstance(value, str) and not isinstance(value, Markup) else value
        ),
    )
    script = (folder / "page.js").read_text()
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    environment.globals |= {
        "words": words,
        "tried": tried,
        "limits": limits,
        "in_all": in_all,
        "belief": belief,
        "amount": amount,
        "clock": clock,
        "called": called,
        "no_plots": NO_PLOTS,
        "style": Markup(plots.theme() + (folder / "page.css").read_text()),
        "script": Markup(script),
        "script_hash": digest,
        "linked": linked,
        "svg": lambda plot, run: Markup(_titled(plot.svg, run)),
    }
    return environment


def linked(run: RunData, text: str) -> Markup:
    """The text, in which the names of candidates lead to their cards, and what stands between
    backticks is code."""
    names = _NAME.sub(
        lambda found: (
            f'<a href="#{found[0]}">{found[0]}</a>' if found[0] in run.candidates else found[0]
        ),
        str(escape(visible(text))),
    )
    return Markup(_CODE.sub(r"<code>\1</code>", names))


def _titled(svg: str, run: RunData) -> str:
    """A plot whose marks say what they are, and are no stops of the keyboard: the tables are."""
    for name, candidate in run.candidates.items():
        told = Markup("<title>{}: {}</title>").format(name, words.timed(run, candidate))
        link = f'<a xlink:href="#{name}" target="_blank">'
        svg = svg.replace(link, f'<a xlink:href="#{name}" tabindex="-1">{told}')
    return svg
