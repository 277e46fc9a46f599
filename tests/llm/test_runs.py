"""A run with a model, live, through batch files and replayed: always the same run."""

import json
import shutil
import subprocess
import threading
from pathlib import Path

import pytest

from beamsearch.records.packed import opened_run
from beamsearch.records.trace import Trace
from tests import ROOT
from tests.llm.runs import (
    KEY,
    PROBLEM,
    SMALL,
    beamsearch,
    command,
    environment,
    ledger,
    refused,
    requests,
    response,
    write_lines,
)
from tests.records.test_packed import contents
from tests.server import Script, serving
from tests.traces import differences
from tools.pack_run import pack


def environments_below(pid):
    """Environment of every process that descends from one, by command line."""
    parents = {}
    for process in Path("/proc").glob("[0-9]*"):
        try:
            parents[int(process.name)] = int(
                (process / "stat").read_text().rsplit(")", 1)[1].split()[1]
            )
        except OSError:
            continue
    below, found = {pid}, {}
    while more := {child for child, parent in parents.items() if parent in below} - below:
        below |= more
    for child in below - {pid}:
        try:
            line = Path(f"/proc/{child}/cmdline").read_bytes().replace(b"\0", b" ").decode()
            found[line] = Path(f"/proc/{child}/environ").read_bytes()
        except OSError:
            continue
    return found


@pytest.fixture(scope="module")
def live(tmp_path_factory):
    """A run against a live endpoint that wants a key: folder, output, environments seen below."""
    folder = tmp_path_factory.mktemp("live") / "run"
    seen = {}
    with serving(script=Script(key=KEY)) as base_url:
        process = subprocess.Popen(
            command("run", PROBLEM, *SMALL, "--llm", "openai", "--output", folder),
            env=environment(OPENAI_API_KEY=KEY, OPENAI_BASE_URL=base_url),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        done = threading.Event()

        def watch():
            while not done.wait(0.2):
                seen.update(environments_below(process.pid))

        watcher = threading.Thread(target=watch)
        watcher.start()
        output = process.communicate(timeout=280)[0]
        done.set()
        watcher.join()
    assert process.returncode == 0, output
    return folder, output, seen


def test_the_key_reaches_no_file_no_output_and_no_candidate(live):
    folder, output, seen = live
    assert KEY not in output
    for path in folder.rglob("*"):
        assert path.is_dir() or KEY.encode() not in path.read_bytes(), path
    # Every process that runs a module of ours: servers of candidates, their children, the walls.
    modules = {line: variables for line, variables in seen.items() if "-m beamsearch." in line}
    assert any("judge.sandbox.server" in line for line in modules), (
        "candidates' processes were looked at"
    )
    assert not [line for line, variables in modules.items() if KEY.encode() in variables]


def test_the_ledger_has_every_call_and_show_its_sums(live):
    folder, _, _ = live
    lines = ledger(folder)
    calls = list(folder.glob("optimization_trace/round_1/workers/*/calls/*.json"))
    assert len(lines) == len(calls) >= 2 * 3
    assert {"diagnosis", "variants", "reflection"} <= {line["purpose"] for line in lines}
    for line in lines:  # $5 in, $0.50 cached, $30 out a million tokens
        fresh = line["tokens_in"] - line["tokens_cached"]
        cost = fresh * 5 + line["tokens_cached"] * 0.5 + line["tokens_out"] * 30
        assert line["cost_usd"] == pytest.approx(cost / 1e6) and line["cost_usd"] > 0
    shown = beamsearch("show", folder).stdout
    total = sum(line["cost_usd"] for line in lines)
    assert f"models: {len(lines)} calls" in shown and f"${total:.4f}" in shown
    assert "best against cost:" in shown
    told = json.loads(beamsearch("show", folder, "--json").stdout)["paid"]
    assert told["total"]["tokens_in"] == sum(line["tokens_in"] for line in lines)
    assert told["curve"][-1]["cost_usd"] == pytest.approx(total)


@pytest.mark.slow
def test_a_run_through_batch_files_moved_on_the_way_is_the_live_run(live, tmp_path):
    one, other = tmp_path / "gpu" / "run", tmp_path / "network" / "elsewhere"
    said = beamsearch("run", PROBLEM, *SMALL, "--llm", "batch", "--output", one, code=5)
    assert (
        "2 requests in requests.jsonl (hand-over 1)" in said.stderr and "error" not in said.stderr
    )
    asked = requests(one)
    assert [request["url"] for request in asked] == ["/v1/chat/completions"] * 2
    assert {request["custom_id"].split("-", 2)[2] for request in asked} == {
        f"r1-w{worker}-diagnosis-a0" for worker in (0, 1)
    }

    # In part: one answer, and an error for the other. It goes as far as it can, and asks again.
    write_lines(one / "responses.jsonl", [refused(asked[1]), response(asked[0])])
    other.parent.mkdir()
    shutil.move(one, other)
    beamsearch("resume", other, code=5)
    again = requests(other)
    assert [request["custom_id"].split("-", 2)[2] for request in again] == [
        "r1-w0-variants-a0",
        "r1-w1-diagnosis-a0-e1",
    ]

    number, hand_overs, code = 1, 2, 5
    while code == 5 and hand_overs < 12:
        number += 1
        write_lines(other / f"responses-{number}.jsonl", map(response, reversed(requests(other))))
        done = beamsearch("resume", other, code=None)
        code = done.returncode
        hand_overs += code == 5
    assert code == 0, done.stderr
    assert not (other / "requests.jsonl").exists()
    assert f"; {hand_overs} hand-overs" in beamsearch("show", other).stdout

    different = [
        name
        for name in differences(live[0], other, unlike=("batch", "llm", "who_thinks"))
        if not name.startswith("responses")
    ]
    assert different == ["batch.json", "ledger.jsonl"]
    whole, half = (sum(x["cost_usd"] for x in ledger(folder)) for folder in (live[0], other))
    assert half == pytest.approx(whole / 2), "the price list gives half the price for a batch"
    for path in other.rglob("*.json*"):
        assert str(tmp_path) not in path.read_text(), f"{path} holds an absolute path"


@pytest.mark.slow
def test_a_replay_ends_with_the_same_kernels(live, tmp_path):
    done = beamsearch("replay", live[0], "--output", tmp_path / "again")
    assert "nothing came out differently" in done.stdout
    assert differences(live[0], tmp_path / "again", unlike=("llm", "who_thinks")) == []


def planned(run, folder, worker, **otherwise):
    """A copy of a recording in which a worker of round 1 was told something else; where its replay
    goes; and that plan."""
    shutil.copytree(run, folder / "recorded")
    recorded = Trace(folder / "recorded")
    path = recorded.round(1) / "plan.json"
    plan = json.loads(path.read_text())
    told = plan["assignments"][worker]
    for name, value in otherwise.items():
        told[name] = told[name] | value if isinstance(value, dict) else value
    path.write_text(json.dumps(plan))
    return recorded, Trace(folder / "again"), plan


@pytest.mark.slow
def test_a_replay_follows_the_recorded_plan_and_its_tuned_forms(live, tmp_path):
    # Given a recording in which a worker was sent another way, and a kernel of the other was tuned
    recorded, now, plan = planned(live[0], tmp_path, 1, direction={"plan": 7})
    worker = recorded.worker(1, 0)
    kernel = json.loads((worker / "r1-w0-v0.json").read_text())
    source = recorded.folder / kernel["kernel_file"]
    form = source.with_name("r1-w0-v0-t1.py")
    form.write_text(source.read_text() + "\n\ndef unused():\n    pass\n")
    tuned = {"name": "r1-w0-v0-t1", "tuned_from": "r1-w0-v0", "description": "num_warps 2; tuned"}
    tuned["kernel_file"] = recorded.relative(form)
    (worker / "r1-w0-v0-t1.json").write_text(json.dumps(kernel | tuned))

    # When it is replayed
    beamsearch("replay", recorded.folder, "--output", now.folder)

    # Then the worker went that way, and the tuned form was judged
    assert json.loads((now.round(1) / "plan.json").read_text()) == plan
    (again,) = (c for c in now.round_record(1).candidates if c.name == "r1-w0-v0-t1")
    assert again.tuned_from == "r1-w0-v0"
    assert now.kernel_source(again) == form.read_text()


@pytest.mark.slow
def test_a_replayed_patch_is_of_the_kernel_that_it_was_written_for(live, tmp_path):
    # Given a recording in which a worker patched a kernel that the replay does not have yet
    recorded, now, _ = planned(live[0], tmp_path, 0, parent="r1-w1-v0")
    before = (recorded.worker(1, 1) / "r1-w1-v0.py").read_text()
    first = (recorded.folder / "input_kernel.py").read_text()
    line = next(text for text in before.splitlines() if text.strip() and text not in first)
    patch = f"<<<<<<< SEARCH\n{line}\n=======\n{line}  # patched\n>>>>>>> REPLACE\n"
    (recorded.worker(1, 0) / "opt_reply.txt").write_text(f"Patched\n```python\n{patch}```\n")

    # When it is replayed
    beamsearch("replay", recorded.folder, "--output", now.folder)

    # Then the worker has another parent, and its kernel is the patched one
    (made,) = (c for c in now.round_record(1).candidates if c.name == "r1-w0-v0")
    assert (
        json.loads((now.round(1) / "plan.json").read_text())["assignments"][0]["parent"] == "r0-s0"
    )
    assert now.kernel_source(made) == before.replace(line, f"{line}  # patched")


@pytest.mark.slow
def test_a_packed_run_is_replayed_as_the_whole_one_and_a_replay_goes_on(live, tmp_path):
    # Given a run with a price list of its own, packed
    shutil.copytree(live[0], tmp_path / "whole")
    shutil.copy(ROOT / "beamsearch" / "llm" / "prices.toml", tmp_path / "whole")
    packed = tmp_path / "packed"
    pack(tmp_path / "whole", packed, rounds=False)
    before = contents(packed)

    # When it is replayed, and the replay is started again on its folder
    again = tmp_path / "again"
    for _ in range(2):
        done = beamsearch("replay", packed, "--output", again)
        assert "nothing came out differently" in done.stdout

    # Then all is as it was, and nothing in it speaks of the copy that was read
    unlike = ("llm", "who_thinks", "prices")
    assert differences(tmp_path / "whole", again, unlike=unlike) == []
    assert contents(packed) == before
    assert not [path for path in again.rglob("*.json") if "beamsearch-run-" in path.read_text()]


@pytest.mark.slow
def test_a_changed_template_is_reported_and_the_kernels_stay(live, tmp_path):
    # Given a copy of the project in which one template reads differently
    for name in ("beamsearch", "profiling", "prompts", "problems"):
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / name, tmp_path / "copy" / name, ignore=ignored)
    template = tmp_path / "copy" / "prompts" / "diagnosis.j2"
    template.write_text("Read this well.\n\n" + template.read_text())

    # When a recorded run is replayed with it
    again = tmp_path / "again"
    copy = tmp_path / "copy"
    options = ["--output", again, "--json"]
    done = beamsearch("replay", live[0], *options, cwd=copy, PYTHONPATH=str(copy))

    # Then what differs is these prompts and nothing else, and the run itself says so too
    told = json.loads(done.stdout)
    assert [(d["what"], d["where"]) for d in told["differences"]] == [
        ("prompt", "round 1 w0 diagnosis"),
        ("prompt", "round 1 w1 diagnosis"),
    ]
    record = Trace(again).run_record()
    assert record.best == Trace(live[0]).run_record().best
    assert any("2 of " in note and "read differently" in note for note in record.notes)


@pytest.mark.slow
def test_one_workers_missing_answer_does_not_stop_the_others(live, tmp_path):
    # Given a recording without the second worker's kernels
    recorded = tmp_path / "recorded"
    shutil.copytree(live[0], recorded)
    folder = recorded / "optimization_trace" / "round_1" / "workers" / "w1" / "calls"
    reply = (folder / "opt_reply.json").rename(tmp_path / "opt_reply.json")

    # When it answers, the first worker ends its round as before and the second has a reason
    beamsearch("replay", recorded, "--output", tmp_path / "again")
    before, after = (Trace(f).round_record(1).candidates for f in (live[0], tmp_path / "again"))
    assert [c for c in before if c.worker == 0] == [c for c in after if c.worker == 0]
    (lost,) = (c for c in after if c.worker == 1)
    assert lost.verdict.outcome == "no_code" and "no reply to variants" in lost.verdict.reason

    # Killed as the round was closed, it goes on, and asks nothing again that could be answered now.
    again = Trace(tmp_path / "again")
    reply.rename(folder / "opt_reply.json")
    (again.round(1) / "round.json").unlink()
    beamsearch("resume", again.folder)
    assert again.round_record(1).candidates == after
    assert not (again.worker(1, 1) / "opt_reply.txt").exists()


def test_a_measured_run_goes_on_without_a_gpu_to_its_next_gpu_step(tmp_path):
    (recorded,) = (ROOT / "artifacts" / "playbook").glob("82_*")
    before = contents(recorded)
    rounds = len(opened_run(recorded).completed_rounds())
    more = ("--rounds", rounds, "--patience", rounds)
    said = beamsearch("resume", recorded, *more, code=5, cwd=tmp_path).stderr
    assert "waits for a GPU step (to judge " in said and "NVIDIA H200" in said
    (folder,) = (tmp_path / "runs").glob("82_*/*")
    assert f"the run goes on in {folder.relative_to(tmp_path)}" in said
    assert contents(recorded) == before
    replies = list(folder.glob(f"optimization_trace/round_{rounds}/workers/*/opt_reply.txt"))
    assert replies, "what needs no GPU was done"
    assert len(Trace(folder).completed_rounds()) == rounds


@pytest.mark.slow
def test_a_run_stops_before_a_limit_on_calls_and_goes_on_when_it_grows(live, tmp_path):
    folder = tmp_path / "run"
    script = Script(key=KEY)
    with serving(script=script) as base_url:
        keys = {"OPENAI_API_KEY": KEY, "OPENAI_BASE_URL": base_url}
        options = [*SMALL, "--llm", "openai", "--max-calls", "3", "--output", folder]
        beamsearch("run", PROBLEM, *options, **keys)
        record = Trace(folder).run_record()
        assert record.status == "finished" and "3 calls (--max-calls)" in record.stop_reason
        assert len(ledger(folder)) == len(script.requests) == 3
        beamsearch("resume", folder, "--max-calls", "100", **keys)
    assert len(script.requests) == len(ledger(live[0]))
    # What is more is the closer look at the kernel that was the best when the limit was reached.
    more = differences(live[0], folder, unlike=("max_calls",))
    assert more in ([], ["examinations/r0-s0.json"])
