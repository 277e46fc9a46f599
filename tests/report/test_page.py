"""A run's page, held against the records that it is made from."""

import base64
import gzip
import json
import math
import re
import sys
import time
from datetime import UTC, datetime, timedelta
from html import unescape
from html.parser import HTMLParser
from pathlib import Path

import pytest

from beamsearch.records.packed import opened_run
from beamsearch.records.trace import write_record
from beamsearch.records.verdict import Outcome, Verdict
from beamsearch.report.belief import tied
from beamsearch.report.code import visible
from beamsearch.report.page import leave_report, linked, write_comparison, write_report
from beamsearch.report.roofline import roofline
from beamsearch.report.run_data import INPUT, Change, RunData
from beamsearch.report.tried import beside_the_line, failures, in_the_line, in_vain, swept
from beamsearch.report.words import spread
from tests.report.made import (
    HOSTILE,
    PLAYBOOK,
    WITH_FAILURE,
    WITH_MODEL,
    confirmed,
    copied,
    hostile,
    modelled,
    multiplied,
)

KINDS = ("lessons", "patterns_to_avoid")


def as_shown(text: str) -> str:
    """An author's text as a page shows it: what stands between backticks is code."""
    return re.sub(r"`([^`\n]+)`", r"\1", visible(text))


class Page(HTMLParser):
    """Tags with their attributes, the text outside scripts, and the cells of every table."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.html = html
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self.rows: list[list[str]] = []
        self._inside: list[str] = []
        self.feed(html)
        data = re.search(r'<script type="application/json" id="texts">(.*?)</script>', html, re.S)
        assert data
        self.packed: dict[str, str] = json.loads(data[1])

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        self._inside.append(tag)
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self.rows[-1].append("")

    def handle_endtag(self, tag):
        while self._inside and self._inside.pop() != tag:
            pass

    def handle_data(self, data):
        if not {"script", "style"} & set(self._inside):
            self.words.append(data)
        if {"td", "th"} & set(self._inside):
            self.rows[-1][-1] += data

    @property
    def text(self) -> str:
        return " ".join("".join(self.words).split())

    def unpacked(self, name: str) -> str:
        return gzip.decompress(base64.b64decode(self.packed[name])).decode()


def made(run: RunData, path: Path) -> Page:
    write_report(run, path)
    return Page(path.read_text())


@pytest.fixture(scope="module")
def run() -> RunData:
    return RunData(opened_run(WITH_MODEL))


@pytest.fixture(scope="module")
def page(run, tmp_path_factory) -> Page:
    return made(run, tmp_path_factory.mktemp("page") / "run.html")


def test_the_top_says_what_a_stranger_needs(run, page):
    confirmed, totals = run.record.confirmation, run.record.totals
    time = confirmed.winner.time_ms
    for baseline in (confirmed.baselines.eager, confirmed.baselines.max_autotune, confirmed.input):
        assert f"{baseline.time_ms / time:.2f}x" in page.text
    assert f"{time / run.record.floor.time_ms:.2f}x" in page.text
    assert spread(confirmed.winner) in page.text and "NVIDIA H200" in page.text
    checks = run.examination.checks
    assert f"{sum(c.passed for c in checks)} of {len(checks)} in the final examination" in page.text
    assert f"{totals.tokens_in:,} tokens in" in page.text and "known price" not in page.text


def test_the_problem_and_the_launches_are_there(run, page):
    code = " ".join(run.trace.problem_file.read_text().split())
    assert code in page.text
    launches = {row[1]: row for row in page.rows if row and row[0] == run.winner.name}
    for launch in run.profile(run.winner.name).launches:
        row = launches[launch.name]
        assert row[2] == f"{launch.duration_us / 1e3:.4g}" and row[5] == str(launch.registers)
        assert row[4] == str(math.prod(launch.grid))


def test_how_it_was_timed_and_python_s_part_are_told(tmp_path):
    trace = copied(WITH_MODEL, tmp_path / "run")
    record = trace.run_record()
    slow = record.confirmation.winner.with_values(graph=True, plain_ms=0.5512, host_us=312.4)
    confirmed = record.confirmation.with_values(winner=slow)
    write_record(trace.run_file, record.with_values(confirmation=confirmed))
    page = made(RunData(trace), tmp_path / "page.html")
    assert "by its CUDA graph, between two events on the GPU" in page.text
    assert f"Python's own part of a plain call is not in it: {record.best} 312 us." in page.text
    row = next(row for row in page.rows if row[0] == record.best and "0.5512" in row)
    assert row[-1] == "312"


def test_every_candidate_stands_in_the_table_as_in_the_records(run, page):
    heads = next(row for row in page.rows if row[0] == "candidate")
    rows = {
        cells["candidate"]: cells
        for row in page.rows
        if len(row) == len(heads) and (cells := dict(zip(heads, row, strict=True)))
    }
    for name, candidate in run.candidates.items():
        row = rows[name]
        assert row["time [20th, 80th percentile]"] == spread(candidate.measurement)
        its_input = run.trace.input_time_ms(candidate.measurement.visit)
        assert row["over input"] == f"{its_input / candidate.measurement.time_ms:.3f}x"
        assert row["visit"] == candidate.measurement.visit


def test_a_change_of_visit_and_a_tie_are_told(run, page):
    winner = run.winner
    assert winner.measurement.visit != run.record.confirmation.winner.visit
    assert f"In its round it took {spread(winner.measurement)}" in page.text
    assert "the two times are not compared" in page.text
    ties = tied(run)
    assert ties and f"as fast as the winner: {', '.join(ties)}." in page.text
    for name in ties:
        assert abs(run.times[name] / run.times[winner.name] - 1) < 0.0102


def test_cards_hold_code_difference_verdict_profile_prompt_and_reply(run, page):
    for name, candidate in run.candidates.items():
        card = page.unpacked(f"card {name}")
        assert spread(candidate.measurement) in card
        code = re.sub(r'<span class="m">.*?</span>|<[^>]+>', "", page.unpacked(f"code {name}"))
        assert run.source(candidate).rstrip() in unescape(code)
        if candidate.worker is None:
            continue
        assert f'data-text="diff {name}"' in card
        for _, path in run.worker_files(candidate):
            text = f"text {run.trace.relative(path)}"
            assert text in card and page.unpacked(text) == visible(path.read_text())
        assert "reflection: reply" in card and "variants: prompt" in card
        assert ("<summary>Profile and findings" in card) == (run.profile(name) is not None)


def test_what_failed_is_there_with_its_reason(tmp_path):
    run = RunData(opened_run(WITH_FAILURE))
    page = made(run, tmp_path / "run.html")
    found = failures(run)
    assert sum(len(some) for _, some in found) == 1
    for what, some in found:
        assert f"{what} ({len(some)})" in page.text
        assert all(" ".join(c.verdict.reason.split()) in page.text for c in some)


def test_nothing_is_loaded_and_it_is_small(page):
    loading = {"src", "srcset", "data", "poster", "action", "background"}
    for tag, attributes in page.tags:
        assert not loading & attributes.keys(), (tag, attributes)
        assert tag not in ("link", "iframe", "object", "embed", "img")
        for name in ("href", "xlink:href"):
            assert (attributes.get(name) or "#").startswith("#"), (tag, attributes)
    assert not re.search(r"@import|url\((?!#)", page.html)
    assert len(page.html.encode()) < 5e6


def test_plots_follow_the_theme_and_have_words(page):
    svgs = re.findall(r"<svg.*?</svg>", page.html, re.S)
    assert len(svgs) == 3
    assert all("var(--best)" in svg and "#0102" not in svg for svg in svgs)
    assert page.html.count("<figcaption>") == 3
    ids = re.findall(r'\bid="([^"]+)"', page.html)
    assert len(ids) == len(set(ids))


def test_a_hostile_run_shows_as_it_is_and_nothing_of_it_is_a_tag(tmp_path):
    run = RunData(hostile(tmp_path / "run"))
    page = made(run, tmp_path / "page.html")
    assert page.html.count("<script") == 2
    parts = [page, *(_fragment(page, name) for name in page.packed if name[:4] != "text")]
    for part in parts:
        assert not {"img", "object"} & {tag for tag, _ in part.tags}
        for _, attributes in part.tags:
            assert not [name for name in attributes if name.startswith("on")]
    assert " ".join(visible(HOSTILE).split()) in page.text
    signs = page.html + "".join(map(page.unpacked, page.packed))
    assert not re.search(
        "[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\u2028\ufeff]", signs
    )
    assert "␛[31m" in page.text and "⟨U+202E⟩" in page.text


def _fragment(page: Page, name: str) -> Page:
    empty = '<script type="application/json" id="texts">{}</script>'
    return Page(page.unpacked(name) + empty)


def test_modelled_times_carry_their_sign_everywhere(tmp_path):
    run = RunData(modelled(tmp_path / "run"))
    page = made(run, tmp_path / "page.html")
    assert "modelled for" in page.text and "Nothing was measured" in page.text
    assert "second measurement" not in page.text
    top = page.text.split("What was tried in vain")[0]
    bare = re.search(r"(?<![~\d.])\d+\.\d+(x (\(|faster|slower)| ms)", top)
    assert bare is None, top[bare.start() - 80 : bare.end() + 40]


def test_what_was_in_vain_is_told_with_what_was_learned(tmp_path):
    run = RunData(copied(WITH_MODEL, tmp_path / "run"))
    page = made(run, tmp_path / "page.html")
    section = page.text.partition("What was tried in vain")[2].partition("By direction")[0]
    vain, beside = in_vain(run), beside_the_line(run)
    assert 0 < len(vain) < len(run.workers) - len(beside) < len(run.workers)
    assert f"{len(vain)} of {len(run.workers)} workers made no kernel" in section
    assert f"{len(beside)} of {len(run.workers)} workers gained on the kernel" in section
    for kernel in [c for kernels in beside for c in kernels]:
        best = run.rounds_best[kernel.round]
        factor = run.times[kernel.name] / run.times[best]
        assert factor < 1.01 or f", {factor:.3f}x slower than {best}." in section
    told_of = [*vain, *beside]
    for kernels in run.workers:
        told = [text for kind in KINDS for text in run.lessons(kernels[0], kind)]
        assert told
        shown = [" ".join(as_shown(text).split()) in section for text in told]
        assert all(shown) if kernels in told_of else not any(shown)
        for kernel in kernels:
            assert (" ".join(as_shown(kernel.description).split()) in section) == (
                kernels in told_of
            )
    line = {c.name for c in run.lineage(run.winner)}
    others = in_the_line(run)
    assert others and not {c.name for c in others} & line
    made_fast = page.text.partition("What made it fast")[2].partition("Is the number")[0]
    assert all(" ".join(as_shown(c.description).split()) in made_fast for c in others)
    gains = [run.against(c, c.parent) for kernels in vain for c in kernels]
    assert not any(gain and gain.word == "faster" for gain in gains)


def test_nothing_is_announced_that_does_not_follow(tmp_path):
    trace = copied(PLAYBOOK, tmp_path / "run")
    run = RunData(trace)
    assert not in_vain(run) and not failures(run)
    text = made(run, tmp_path / "page.html").text
    assert "Each worker made a kernel that is faster" in text and "stands below" not in text
    verdict = Verdict(outcome=Outcome.NO_CODE, reason="an empty answer")
    record = trace.round_record(1)
    failed = record.candidates[-1].with_values(verdict=verdict, measurement=None)
    changed = record.with_values(candidates=[*record.candidates[:-1], failed])
    write_record(trace.round(1) / "round.json", changed)
    assert "What failed stands below" in made(RunData(trace), tmp_path / "page.html").text


def test_a_confirmed_time_stands_with_its_own_ratio(tmp_path):
    run = RunData(confirmed(tmp_path / "run"))
    page = made(run, tmp_path / "page.html")
    assert set(run.in_turns) == {"r1-w1-v1", "r3-w3-v1"}
    for name, turns in run.in_turns.items():
        told = f"{spread(turns.time)} in turns with {turns.beside}"
        row = next(row for row in page.rows if row[0] == name and told in row)
        assert f"{1 / run.times[name]:.3f}x" in row
        ratio = run.times[turns.beside] / run.times[name]
        assert ratio == pytest.approx(turns.its_time.time_ms / turns.time.time_ms, rel=2e-3)
        assert f"{name} {ratio:.3f}x faster than {turns.beside}" in page.text
        assert f"; {turns.time} and {turns.its_time}): faster" in page.text
        assert turns.time.visit in row
        card = _fragment(page, f"card {name}").text
        assert f"{spread(run.candidates[name].measurement)} as it was judged; {told}" in card
        assert spread(run.candidates[name].measurement) not in page.text
    assert "of confirmed wins as the confirmation measured it" in page.text


def test_a_slower_kernel_is_so_many_times_slower():
    assert Change(0.511, "slower", "").than("r1-w0-v0") == "1.957x slower than r1-w0-v0"
    assert Change(1.958, "faster", "~").than("r0-s0") == "~1.958x faster than r0-s0"
    assert Change(1.003, "tie", "").than("it") == "as fast as it within the noise (1.003x)"
    assert str(Change(0.511, "slower", "~")) == "~1.957x slower"
    assert str(Change(1.958, "faster", "")) == "1.958x faster"
    assert str(Change(0.997, "tie", "")) == "tie (0.997x)"


def test_the_roofline_names_the_kernels_that_matter():
    run = RunData(opened_run(WITH_MODEL))
    drawn = roofline(run)
    profiled = {name for name in run.times if run.profile(name)}
    named = {run.winner.name, INPUT, *(c.name for c in run.bests)} & profiled
    assert len(named) > 2 and named < profiled
    assert {name for name in profiled if f">{name}</text>" in drawn.svg} == named


def test_what_stands_between_backticks_is_code_and_stays_text():
    run = RunData(opened_run(PLAYBOOK))
    told = linked(run, "`a<b>` of `r0-s0`; a ` alone")
    assert told == ('<code>a&lt;b&gt;</code> of <code><a href="#r0-s0">r0-s0</a></code>; a ` alone')


def test_what_came_after_the_last_round_is_told(tmp_path):
    trace = copied(PLAYBOOK, tmp_path / "run")
    for each in trace.completed_rounds():
        kept = each.with_values(seconds=67.0 * each.round)
        write_record(trace.round(each.round) / "round.json", kept)
    record = trace.run_record()
    totals = record.totals.with_values(seconds=102.0)
    write_record(trace.run_file, record.with_values(totals=totals))
    page = made(RunData(trace), tmp_path / "page.html")
    (end,) = [row for row in page.rows if row and row[0] == "end"]
    assert end[1] == record.best and end[-1] == "1:42"
    assert "in 1:42 of work, 0:35 of it for the final timing and examination" in page.text
    assert "The final timing and examination came after that." in page.text


def test_how_long_a_run_was_with_all_it_waited_for_is_told(tmp_path):
    trace = copied(PLAYBOOK, tmp_path / "run")
    record = trace.run_record()
    began = datetime(2026, 11, 26, 9, tzinfo=UTC)
    for waited, told in ((59, None), (7200, "; 2:01:00 from beginning to end")):
        totals = record.totals.with_values(seconds=60.0)
        saved = began + timedelta(seconds=60 + waited)
        times = {"began": began, "saved": saved, "totals": totals}
        write_record(trace.run_file, record.with_values(**times))
        text = made(RunData(trace), tmp_path / "page.html").text
        assert told in text if told else "from beginning to end" not in text


def test_what_was_tuned_is_told(run, page):
    tuned = run.record.totals.tuning
    told = f"{tuned.sweeps} kernels, {tuned.configurations} configurations in "
    assert told in page.text and "nothing gained" in page.text
    for record in run.rounds:
        for tuning in record.tunings:
            told = rf"{tuning.of}(, [^:]*)?: {tuning.timed} configurations timed \("
            assert re.search(told, page.text)
    other = RunData(opened_run(WITH_FAILURE))
    gained = " ".join(swept(other))
    forms = [form for r in other.rounds for t in r.tunings for form in t.forms[1:]]
    failed = [form for form in forms if not form.times_ms]
    assert failed and any(form.setting in gained for form in failed)
    counts = re.findall(r"(\d+) configurations? not ", gained)
    assert sum(map(int, counts)) == len(failed)
    assert "1.05x faster" in gained and "): compiles to the same code as" in gained


@pytest.mark.slow
def test_large_runs_are_quick_and_their_texts_stand_beside_the_page(tmp_path):
    trace = multiplied(tmp_path / "run", rounds=64, workers=8)
    began = time.process_time()
    leave_report(trace)
    assert time.process_time() - began < 10
    path = trace.folder / "report.html"
    assert path.stat().st_size < 12e6
    page = Page(path.read_text())
    assert len([name for name in page.packed if name.startswith("card ")]) == 64 * 16 + 1
    beside = re.findall(r'<a href="([^"#]+)">', page.unpacked("card r60-w7-v1"))
    assert beside and all((path.parent / place).is_file() for place in beside)
    # The winner's own texts are in the page
    assert "code r64-w0-v0" in page.packed


def test_eight_rounds_of_four_workers_fit_into_one_file(tmp_path):
    run = RunData(multiplied(tmp_path / "run", rounds=8, workers=4))
    page = made(run, tmp_path / "page.html")
    assert len(page.html.encode()) < 5e6
    assert not list(tmp_path.glob("page_texts*"))
    assert all(f"code {name}" in page.packed for name in run.candidates)


def test_without_matplotlib_the_page_says_so(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    trace = copied(PLAYBOOK, tmp_path / "run")
    leave_report(trace)
    page = Page((trace.folder / "report.html").read_text())
    assert "no plots: matplotlib is not installed" in page.text
    assert not (trace.folder / "progress.svg").exists()


def test_the_page_is_rebuilt_the_same(tmp_path):
    trace = copied(PLAYBOOK, tmp_path / "run")
    leave_report(trace)
    first = {path: path.read_bytes() for path in trace.folder.glob("*.[hs][tv][mg]*")}
    assert {path.name for path in first} == {"report.html", "progress.svg"}
    leave_report(trace)
    assert all(path.read_bytes() == content for path, content in first.items())


def test_several_runs_in_one_page(tmp_path):
    runs = {path.name: RunData(opened_run(path)) for path in (WITH_MODEL, WITH_FAILURE, PLAYBOOK)}
    write_comparison(runs, {"36_RMSNorm": "a.html"}, tmp_path / "runs.html")
    page = Page((tmp_path / "runs.html").read_text())
    rows = {row[0]: row for row in page.rows}
    for name, run in runs.items():
        time = run.record.confirmation.winner
        assert spread(time) in rows[name]
        eager = run.record.confirmation.baselines.eager
        assert f"{eager.time_ms / time.time_ms:.3f}x" in rows[name]
    assert page.html.count("<svg") == 3


def test_what_reads_faster_says_why_it_is_no_win(tmp_path):
    folder = WITH_MODEL.parent / "43_Max_Pooling_3D"
    page = made(RunData(opened_run(folder)), tmp_path / "page.html")
    assert "r2-w0-v1 has 1.000 of the time of r1-w1-v1" in page.text
    assert "r3-w3-v1 beside r1-w1-v1, taking turns: 0.987 of its time" in page.text
