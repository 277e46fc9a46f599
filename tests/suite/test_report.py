"""The report on a suite, from recorded runs on an H200."""

import csv
import json
import shutil
from html.parser import HTMLParser

import pytest

from beamsearch.records.suite import Entry, Suite
from beamsearch.records.trace import write_record
from beamsearch.settings import Settings
from beamsearch.suite.report import make_report, write_report
from tests import ROOT
from tests.commands import beamsearch

RUN = ROOT / "artifacts" / "playbook" / "36_RMSNorm"
NAME = '<script>alert("1")</script>'.replace("/", "∕") + "&amp;[red]"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A suite of a finished run and of one that failed, both called what no page should believe."""
    folder = tmp_path_factory.mktemp("suite")
    shutil.copytree(RUN, folder / NAME)
    entries = [
        Entry(name=NAME, path="a.py", state="finished"),
        Entry(name="<i>", path="b.py", state="failed", reason='<b>no, it\'s "broken"</b>'),
    ]
    write_record(folder / "suite.json", Suite(settings=Settings(), entries=entries))
    return folder


class Cells(HTMLParser):
    """Every tag, and the text of every cell."""

    def __init__(self):
        super().__init__()
        self.tags, self.texts, self.inside = set(), [], False

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)
        self.inside = tag == "td"
        self.texts += [""] * self.inside

    def handle_endtag(self, tag):
        self.inside = False

    def handle_data(self, data):
        if self.inside:
            self.texts[-1] += data


def test_the_files_hold_names_and_numbers_as_they_are(folder):
    write_report(folder, make_report(folder))
    finished, failed = csv.DictReader((folder / "results.csv").read_text().splitlines())
    assert (finished["name"], failed["name"]) == (NAME, "<i>")
    assert failed["notes"] == '<b>no, it\'s "broken"</b>' and failed["time_ms"] == ""

    # All times are the confirmation's
    times = json.loads((RUN / "run.json").read_text())["confirmation"]
    own = times["winner"]["time_ms"]
    assert float(finished["time_ms"]) == pytest.approx(own, rel=1e-3)
    for name in ("eager", "compile", "max_autotune"):
        expected = times["baselines"][name]["time_ms"] / own
        assert float(finished[f"over_{name}"]) == pytest.approx(expected, abs=1e-3)
    assert float(finished["over_input"]) == pytest.approx(times["input"]["time_ms"] / own, abs=1e-3)
    assert finished["headroom_share"] == "", "max-autotune is within 1.1 times the floor"
    assert (finished["candidates"], finished["attempts_to_last_win"]) == ("8", "1")

    page = Cells()
    page.feed((folder / "report.html").read_text())
    assert NAME in page.texts and '<b>no, it\'s "broken"</b>' in page.texts
    assert not page.tags & {"script", "b", "i", "link", "img"}


@pytest.mark.parametrize("damage", ["lost", "unreadable"])
def test_a_run_whose_records_are_gone_is_a_row_with_its_reason(folder, tmp_path, damage):
    folder = shutil.copytree(folder, tmp_path / "suite")
    for path in (folder / NAME).iterdir():
        path.unlink() if path.is_file() else None
    if damage == "unreadable":
        (folder / NAME / "run.json").write_text("{}")
    one, other = make_report(folder).rows
    assert (one.state, other.state) == ("failed", "failed")
    expected = "is not a RunRecord" if damage == "unreadable" else "its run is gone"
    assert expected in one.notes[0]


def test_a_tie_with_max_autotune_is_no_win(folder):
    (source,) = make_report(folder).figures
    assert source.source == "measured" and source.gpus == ["NVIDIA H200"]
    assert source.won == [] and source.faster_baseline == [] and source.little_headroom == [NAME]
    assert source.raw.fast["eager"] == dict.fromkeys(
        ("0", "0.5", "0.8", "1", "1.2", "1.5", "2"), 0.5
    )
    assert source.raw.fast["compile"]["1.5"] == 0.5 and source.raw.fast["compile"]["2"] == 0


def test_the_report_is_made_again_at_any_moment(folder):
    done = beamsearch("suite", str(folder), "--report")
    assert done.returncode == 1, "one failed"
    row = next(line for line in done.stdout.splitlines() if line.startswith(NAME))
    assert "finished" in row and "1.81" in row
    assert '<i>: <b>no, it\'s "broken"</b>' in done.stdout


def test_what_waits_is_said_last(tmp_path):
    entries = [
        Entry(name="one", path="a.py", state="failed", reason="does not load"),
        Entry(name="two", path="b.py", state="waits for answers", reason="to 3 requests"),
        Entry(name="three", path="c.py"),
    ]
    write_record(tmp_path / "suite.json", Suite(settings=Settings(), entries=entries))
    done = beamsearch("suite", "--output", str(tmp_path), "--report", "--json")
    assert done.returncode == 5
    assert done.stderr.splitlines() == ["two waits for answers: to 3 requests; 1 more wait"]
    assert [row["state"] for row in json.loads(done.stdout)["rows"]][1] == "waits for answers"


def test_another_folder_is_left_alone(tmp_path):
    (tmp_path / "mine.txt").write_text("")
    done = beamsearch("suite", "43", "--output", str(tmp_path), "--llm", "playbook")
    assert done.returncode == 2 and "holds no suite" in done.stderr
