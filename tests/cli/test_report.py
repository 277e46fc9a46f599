"""report, and show --open: pages as a user makes them."""

import shutil

from beamsearch.records.packed import opened_run
from beamsearch.records.suite import Entry, Suite
from beamsearch.records.trace import write_record
from beamsearch.settings import Settings
from tests import ROOT

PACKED = ROOT / "artifacts" / "playbook" / "36_RMSNorm"


def unpacked(folder):
    shutil.copytree(opened_run(PACKED).folder, folder)
    return folder


def test_a_page_stands_in_the_runs_folder_with_a_picture(beamsearch, tmp_path):
    run = unpacked(tmp_path / "run")
    done = beamsearch("report", "run")
    assert (done.returncode, done.stdout) == (0, "run/report.html\n"), done.stderr
    assert "36_RMSNorm" in (run / "report.html").read_text()
    assert (run / "progress.svg").read_text().startswith("<svg")


def test_a_packed_run_is_left_as_it_is(beamsearch, tmp_path):
    before = sorted(PACKED.iterdir())
    done = beamsearch("report", str(PACKED))
    assert (done.returncode, done.stdout) == (0, "36_RMSNorm.html\n"), done.stderr
    assert (tmp_path / "36_RMSNorm.html").is_file() and sorted(PACKED.iterdir()) == before


def test_several_runs_and_a_suite(beamsearch, tmp_path):
    unpacked(tmp_path / "suite" / "36")
    assert beamsearch("report", "suite/36").returncode == 0
    done = beamsearch("report", "suite/36", str(PACKED), "--output", "both.html")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "both.html").read_text().count("<tr>") == 3
    entry = Entry(name="36", path="36.py", state="finished")
    write_record(tmp_path / "suite" / "suite.json", Suite(settings=Settings(), entries=[entry]))
    done = beamsearch("report", "suite")
    assert (done.returncode, done.stdout) == (0, "suite/report.html\n"), done.stderr
    assert '<a href="36/report.html">36</a>' in (tmp_path / "suite" / "report.html").read_text()


def test_open_makes_a_missing_page_and_hands_it_to_the_browser(beamsearch, tmp_path):
    unpacked(tmp_path / "run")
    browser = tmp_path / "browser"
    browser.write_text('#!/bin/sh\necho "$1" > "$(dirname "$0")/opened"\n')
    browser.chmod(0o755)
    done = beamsearch("show", "run", "--open", BROWSER=f"{browser} %s")
    assert done.returncode == 0, done.stderr
    page = tmp_path / "run" / "report.html"
    assert (tmp_path / "opened").read_text().strip() == page.as_uri() and page.is_file()


def test_what_cannot_be_is_one_line(beamsearch, tmp_path):
    (tmp_path / "empty").mkdir()
    for words, told in (
        (["empty"], "holds no run"),
        ([str(PACKED), "--output", "empty"], "is a folder; give a file"),
        ([str(PACKED), str(PACKED)], "given twice"),
    ):
        done = beamsearch("report", *words)
        assert done.returncode == 2 and told in done.stderr
        assert len(done.stderr.splitlines()) == 1
