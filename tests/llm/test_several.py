"""Two models that share a run and make mistakes, from no kernel at all: live, and through files."""

import shutil

import pytest

from beamsearch.llm.costs import standings
from beamsearch.llm.model_mix import by_wins
from beamsearch.llm.recorded import recorded_calls
from beamsearch.records.trace import Trace
from tests.llm.runs import (
    PROBLEM,
    SMALL,
    beamsearch,
    ledger,
    requests,
    response,
    write_lines,
)
from tests.server import Script, serving
from tests.thinker import clumsy
from tests.traces import differences

MODELS = ("gpt-5.5", "thinker-small")
PRICES = 'date = "2026-11-01"\n[models.thinker-small]\ninput = 1\noutput = 2\n'

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


def writes(prompt):
    """Misspells what it writes; the first kernel is right when it is told of the slip, and so slow
    that a larger block is a win by more than the error of a modelled time."""
    if "Write a first kernel" not in prompt:
        return clumsy(prompt)
    source = (PROBLEM / "input_kernel.py").read_text().replace("1024", "64")
    if "has no attribute" not in prompt:
        source = source.replace("tl.maximum(", "tl.maximums(")
    return f"A program owns a block.\n```python\n{source}```\n"


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A problem without a kernel, a price list, and settings that name it."""
    folder = tmp_path_factory.mktemp("several")
    (folder / "bare").mkdir()
    shutil.copy(PROBLEM / "problem.py", folder / "bare")
    (folder / "prices.toml").write_text(PRICES)
    (folder / "settings.toml").write_text(
        f'prices = "prices.toml"\nmodel = {list(MODELS)}\nmodel_choice = "bandit"\n'
    )
    return folder


@pytest.fixture(scope="module")
def live(place):
    folder = place / "live"
    with serving(script=Script(think=writes)) as base_url:
        keys = {"OPENAI_API_KEY": "sk-none", "OPENAI_BASE_URL": base_url}
        options = [*SMALL, "--llm", "openai", "--config", "settings.toml", "--output", folder]
        beamsearch("run", place / "bare", *options, cwd=place, **keys)
    return folder


def test_through_batch_files_it_is_the_live_run(place, live):
    folder, moved = place / "batch", place / "moved"
    options = [*SMALL, "--llm", "batch", "--config", "settings.toml", "--output", folder]
    beamsearch("run", place / "bare", *options, code=5, cwd=place)
    (asked,) = requests(folder)
    assert asked["custom_id"].endswith("-r0-w0-first-a0")
    (place / "prices.toml").rename(place / "prices-elsewhere.toml")
    folder.rename(moved)

    turns, code = [["first"]], 5
    while code == 5 and len(turns) < 12:
        answers = [response(request, writes) for request in reversed(requests(moved))]
        write_lines(moved / f"responses-{len(turns)}.jsonl", answers)
        done = beamsearch("resume", moved, code=None)
        code = done.returncode
        turns.append(sorted(request["custom_id"].split("-")[4] for request in requests(moved)))
    assert code == 0, done.stderr
    both = [[what] * 2 for what in ("diagnosis", "variants", "repair", "repair", "reflection")]
    assert turns == [["first"], ["first"], *both, []], "every worker's question in each hand-over"

    unlike = ("batch", "llm", "who_thinks")
    more = [n for n in differences(live, moved, unlike) if not n.startswith("responses")]
    assert more == ["batch.json", "ledger.jsonl"]
    candidates = Trace(moved).round_record(1).candidates
    assert [c.name for c in candidates if c.verdict.correct] == ["r1-w0-v0-f2", "r1-w1-v0-f2"]
    priced = {line["model"]: line["cost_usd"] for line in ledger(moved)}
    assert set(priced) == set(MODELS) and all(priced.values()), "by the list it started with"


def test_the_bandit_asks_by_what_completed_rounds_showed(live, tmp_path):
    folder = tmp_path / "longer"
    shutil.copytree(live, folder)
    with serving(script=Script(think=writes)) as base_url:
        keys = {"OPENAI_API_KEY": "sk-none", "OPENAI_BASE_URL": base_url}
        beamsearch("resume", folder, "--rounds", 2, **keys)
    trace = Trace(folder)
    calls = recorded_calls(trace)
    assert {call.model for call in calls} == set(MODELS)
    known = standings(trace, 2)
    assert sum(standing.tries for standing in known.values()) == 2
    wins = [record.round for record in trace.completed_rounds()[:2] if record.win]
    assert sum(standing.wins for standing in known.values()) == len(wins) == 1
    choose = by_wins(dict.fromkeys(MODELS, 1.0), 3, lambda number: standings(trace, number))
    assert [choose(call) for call in calls] == [call.model for call in calls]
    unknowing = by_wins(dict.fromkeys(MODELS, 1.0), 3, lambda number: {})
    assert [unknowing(call) for call in calls] != [call.model for call in calls]
