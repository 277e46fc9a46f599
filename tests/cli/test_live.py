"""The live view and `watch` in a real terminal, through whole runs of a small problem."""

import json
import os
import re
import shutil
import signal
import subprocess
import time

import pytest

from beamsearch.records.event import read_event
from beamsearch.records.record import Record
from beamsearch.records.trace import Trace
from beamsearch.run.lock import folder_lock, is_worked_on
from tests.cli.test_clean import HOSTILE
from tests.cli.test_screen import RUN
from tests.cli.under_way import before_the_end, worked_on
from tests.llm.runs import PROBLEM, beamsearch, command, environment, requests
from tests.terminal import needs_tmux, terminal
from tests.traces import differences

OPTIONS = "--rounds 2 --workers 2 --variants 1 --seed 3 --llm playbook"
SETTINGS = OPTIONS.split()
HINT = "Ctrl-C stops the run cleanly, twice at once"
WATCHING = "Ctrl-C ends the watching, not the run"


def in_terminal(tty, *arguments):
    seen = environment()
    wanted = ("PYTHONPATH", "CUDA_VISIBLE_DEVICES", "TRITON_CACHE_DIR", "PATH")
    tty.start(command(*arguments), {name: seen[name] for name in wanted if name in seen})


def behind(*arguments):
    """A command in the background."""
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    return subprocess.Popen(
        command(*arguments), env=environment(), text=True, start_new_session=True, **pipes
    )


def until(condition, within_s=90):
    deadline = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    """A run that printed events, and its output."""
    folder = tmp_path_factory.mktemp("undisturbed") / "run"
    return folder, beamsearch("run", PROBLEM, *SETTINGS, "--json-lines", "--output", folder)


@pytest.mark.slow
def test_events_are_one_a_line_and_can_be_read_back(undisturbed):
    folder, done = undisturbed
    assert done.stderr == "" and done.stdout.isascii()
    events = [read_event(line) for line in done.stdout.splitlines()]
    record, rounds = Trace(folder).run_record(), Trace(folder).completed_rounds()
    assert events[0].event == "run_started" and events[0].folder == str(folder)
    assert events[-1].event == "run_ended" and events[-1].run == record
    ended = [event for event in events if event.event == "round_ended"]
    assert [event.round for event in ended] == rounds
    assert all(event.modelled and event.best_time.source == "modelled" for event in ended)
    assert ended[-1].over["input"] == pytest.approx(record.rounds[-1].speedup)
    judged = {event.candidate.name: event.candidate for event in events if isa(event, "candidate")}
    assert judged == {c.name: c for r in rounds[1:] for c in r.candidates}
    dealt = [event for event in events if isa(event, "round_started")]
    assert [len(event.dealt) for event in dealt] == [2] * len(rounds[1:])
    assert any("judging r1-w0-v0" in event.doing for event in events if isa(event, "worker"))
    assert [e.at for e in events] == sorted(e.at for e in events)


def isa(event: Record, kind: str) -> bool:
    return event.event == kind


@needs_tmux
@pytest.mark.slow
@pytest.mark.parametrize("size", [(80, 24), (200, 50)], ids=["80x24", "200x50"])
def test_a_whole_run_stays_on_one_screen(undisturbed, tmp_path, size):
    folder = tmp_path / "run"
    with terminal(*size) as tty:
        in_terminal(tty, "run", PROBLEM, *SETTINGS, "--output", folder)
        tty.wait_for(HINT)
        seen = [s for s in tty.wait_for("ended with") if s[-1] == HINT]
        record = Trace(folder).run_record()
        # Each screen is whole, whenever it is looked at
        for screen in seen:
            assert screen[0] == "doubling in float32"
            assert sum(bool(re.match("best  ", row)) for row in screen) == 1
            assert not any("best" in row for row in screen[:3])
        text = "\n".join(dict.fromkeys(row for screen in seen for row in screen))
        for row in (r"w0 +r0-s0 .*\d:\d\d  judging r1-w0-v0", r"w1 +\S+ .*judging r2-w1-v0"):
            assert re.search(f"^{row}", text, re.M), text
        assert f"~{record.rounds[1].speedup:.2f}x over input" in text
        assert "\x1b[2J" not in tty.raw(), "nothing is cleared to be drawn again"
        # Then the terminal is as it was, with what the run came to
        assert tty.is_in_order()
        text = tty.shown()
    assert "round 2 of 2: " in text and "ended with 0" in text
    assert f"ended: {record.stop_reason}" in text and HINT not in text
    assert differences(undisturbed[0], folder) == []


@needs_tmux
@pytest.mark.slow
def test_ctrl_c_once_stops_cleanly_and_twice_at_once(undisturbed, tmp_path):
    folder = tmp_path / "a run"
    with terminal() as tty:
        in_terminal(tty, "run", PROBLEM, *SETTINGS, "--output", folder)
        tty.wait_for("judging r1-w")
        tty.press("C-c")
        tty.wait_for("stopping after the step under way; Ctrl-C again stops at once", 5)
        tty.wait_for("ended with 130")
        assert tty.is_in_order() and "Traceback" not in tty.shown()
        assert Trace(folder).run_record().status == "stopped"
        assert not Trace(folder).scratch.exists()

        in_terminal(tty, "resume", folder)
        tty.wait_for("judging r1-w")
        tty.press("C-c")
        tty.wait_for("stopping after the step under way", 5)
        tty.press("C-c")
        tty.wait_for("ended with 130", 10)
        assert tty.is_in_order() and "Traceback" not in tty.shown()
        assert f"stopped at once; go on with: python -m beamsearch resume '{folder}'" in tty.shown()
        assert Trace(folder).run_record().status == "running"

    beamsearch("resume", folder)
    assert differences(undisturbed[0], folder) == []


@needs_tmux
@pytest.mark.slow
def test_watch_shows_another_process_and_says_when_it_was_killed(undisturbed, tmp_path):
    folder = tmp_path / "run"
    run = behind("run", PROBLEM, *SETTINGS, "--output", folder)
    until((folder / "run.json").is_file)
    with terminal() as tty:
        in_terminal(tty, "watch", folder)
        tty.wait_for("judging r1-w0-v0")
        assert tty.screen()[-1] == WATCHING
        tty.press("C-c")  # ends the watching alone
        tty.wait_for("ended with 0", 10)
        assert tty.is_in_order() and run.poll() is None

        in_terminal(tty, "watch", folder)
        tty.wait_for("w0  r0-s0")
        run.kill()
        run.communicate()
        tty.wait_for("ended with 1", 10)
        assert tty.is_in_order()
        text = " ".join(tty.shown().split())
    assert "nobody works on this run: its process was killed" in text
    assert f"go on with: python -m beamsearch resume {folder}" in text

    again = behind("resume", folder)
    until(lambda: is_worked_on(folder))
    done = beamsearch("watch", folder)  # in no terminal: lines
    printed = again.communicate(timeout=120)[0].splitlines()
    assert again.returncode == 0
    told = done.stdout.splitlines()
    for start in ("  r2-w0-v0  ", "round 2: w0 ", "round 2 of 2: "):
        (ours,), (theirs,) = ([x for x in log if x.startswith(start)] for log in (told, printed))
        assert ours.partition(" [")[0] == theirs.partition(" [")[0]
    assert any(line.startswith("ended: ") for line in told)
    assert differences(undisturbed[0], folder) == []


@needs_tmux
@pytest.mark.slow
def test_watch_stays_with_a_run_that_waits_for_answers(tmp_path):
    folder = tmp_path / "run"
    settings = [*SETTINGS[:-1], "batch"]
    beamsearch("run", PROBLEM, *settings, "--output", folder, code=5)
    assert requests(folder)
    done = beamsearch("watch", folder, code=5)
    assert "waits for the answers to 2 requests" in done.stderr
    assert f"python -m beamsearch resume {folder}" in done.stderr
    with terminal() as tty:
        in_terminal(tty, "watch", folder)
        text = " ".join(tty.wait_for("waits for the answers to 2 requests in requests.jsonl")[-1])
        assert f" {Trace(folder).run_record().stop_reason} " in text
        time.sleep(2)
        assert tty.flag("alternate_on") == "1"
        tty.press("C-c")
        tty.wait_for("ended with 0", 10)
        assert tty.is_in_order()


@needs_tmux
def test_hostile_text_harms_no_terminal(tmp_path):
    trace = before_the_end(RUN, tmp_path / "run")
    for path in trace.rounds_folder.rglob("*.json"):
        value = json.loads(path.read_text())
        for candidate in [value, *(value.get("candidates") or [])]:
            if "description" in candidate:
                candidate["description"] = HOSTILE
        path.write_text(json.dumps(value))
    record = trace.run_record().with_values(notes=[HOSTILE], who_thinks=HOSTILE)
    trace.run_file.write_text(record.model_dump_json())
    with terminal() as tty:
        title = tty.flag("pane_title")
        with worked_on(trace, doing=f"judging {HOSTILE}"):
            in_terminal(tty, "watch", trace.folder)
            screen = tty.wait_for("judging <b>[red]red[/red]")[-1]
            assert screen[0] == "43_Max_Pooling_3D in bfloat16" and screen[-1] == WATCHING
            assert sum(row.startswith("w") for row in screen) == 4
            assert sum(bool(re.match(r"r5-w\d-v\d  0", row)) for row in screen) >= 3
        tty.wait_for("ended with 1", 10)
        assert tty.is_in_order() and tty.flag("pane_title") == title
        in_terminal(tty, "show", trace.folder)
        tty.wait_for("ended with 0")
        assert tty.is_in_order() and tty.flag("pane_title") == title
        assert not re.search(r"\x1b(?!\[[013]\d?m)|[\x07\x08\u202e\u200b]", tty.raw())
        assert "(<b>[red]red[/red] ��" in tty.shown()


def test_two_forms_of_output_are_refused(tmp_path):
    done = beamsearch("run", PROBLEM, "--json", "--json-lines", "--output", tmp_path / "r", code=2)
    assert "give one of them" in done.stderr


def test_a_finished_run_is_told_as_it_ended():
    done = beamsearch("watch", RUN)
    assert "ended: " in done.stdout and "best: r3-w3-v1 0.5374 ms" in done.stdout


def test_a_run_that_is_only_starting_is_waited_for(tmp_path):
    folder = tmp_path / "run"
    with folder_lock(folder):
        watching = behind("watch", folder)
        assert (
            watching.stdout.readline() == "the run is starting: there is nothing to be seen yet\n"
        )
        shutil.copytree(RUN, folder, dirs_exist_ok=True, ignore=lambda _, names: {"run.json"})
        time.sleep(1)
        assert watching.poll() is None
        shutil.copy(RUN / "run.json", folder / "run.json.new")
        (folder / "run.json.new").rename(folder / "run.json")
    assert "ended: " in watching.communicate(timeout=30)[0]
    assert watching.returncode == 0


def test_a_folder_without_a_run_is_an_error(tmp_path):
    assert "holds no run" in beamsearch("watch", tmp_path, code=2).stderr


@pytest.mark.slow
def test_a_stopped_run_ends_its_events_with_the_reason(tmp_path):
    folder = tmp_path / "run"
    run = behind("run", PROBLEM, *SETTINGS, "--json-lines", "--output", folder)
    until(lambda: list(folder.glob("optimization_trace/round_1/workers/*/strategy.json")))
    os.kill(run.pid, signal.SIGINT)
    lines = run.communicate(timeout=60)[0].splitlines()
    assert run.returncode == 130 and lines[-1].startswith("stopped; go on with")
    stopping, stopped = [read_event(line) for line in lines[:-1]][-2:]
    kinds = {read_event(line).event for line in lines[:-1]}
    assert "stopping" in kinds and stopped.event == "run_stopped"
    assert stopped.reason == "interrupted" and stopped.run == Trace(folder).run_record()
    assert stopping.at <= stopped.at
