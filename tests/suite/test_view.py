"""What a suite shows in a terminal: lines, and a row for each run that goes on."""

import io
import shutil

from rich.console import Console

from beamsearch.cli.suite_view import Screen, make_watcher
from beamsearch.records.suite import Entry
from beamsearch.settings import Settings
from beamsearch.suite.places import Place
from tests import ROOT

RUN = ROOT / "artifacts" / "playbook" / "82_conv_depthwise_2D_square_input_square_kernel"


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_every_run_that_goes_on_has_a_row_until_it_ends(tmp_path):
    shutil.copytree(RUN, tmp_path / "begun")
    terminal = Terminal()
    screen = make_watcher(terminal, tmp_path)
    assert isinstance(screen, Screen)
    begun = Entry(name="begun", path="begun.py", state="finished")
    fresh = Entry(name="fresh[1]", path="fresh.py", state="failed", reason="it is broken")
    with screen:
        screen.begins(1, 2, begun, Settings(), [Place("GPU-a", "H100", 0)])
        screen.begins(2, 2, fresh, Settings(), [Place("GPU-b", "H100", 1)])
        drawn = Console(file=io.StringIO(), width=200, record=True)
        drawn.print(screen._table())
        rows = drawn.export_text().splitlines()
        assert "begun" in rows[1] and "on GPU 0" in rows[1] and "eager" in rows[1]
        assert "fresh[1]" in rows[2] and "begins" in rows[2]
        screen.ended(2, 2, fresh)
        drawn.print(screen._table())
        assert "fresh" not in drawn.export_text()
    assert "[2/2] fresh[1] failed: it is broken" in terminal.getvalue()
    assert "[1/2] begun begins on GPU 0" in terminal.getvalue()
