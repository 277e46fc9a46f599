"""Prices, limits, and which of several models is asked."""

import json
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import pytest

from beamsearch.errors import EndpointError, OutOfBudget, UsageError
from beamsearch.llm.budget import TOKENS_OUT, Budget, Limits, Paid, Spent, counted
from beamsearch.llm.costs import keep_prices, paid, run_prices, save_ledger, spent
from beamsearch.llm.model_mix import ModelMix, Standing, by_weight, by_wins, read_weights
from beamsearch.llm.prices import read_prices
from beamsearch.llm.types import Completion, Ticket
from beamsearch.proposer.factory import make_proposer
from beamsearch.records.call import Call, Metered
from beamsearch.records.trace import Trace, write_record
from beamsearch.settings import Settings, read_settings

TICKETS = [
    Ticket(purpose=purpose, round=number, worker=worker)
    for number in range(1, 51)
    for worker in range(4)
    for purpose in ("diagnosis", "variants")
]


class Echo:
    """Answers with fixed numbers of tokens, or fails."""

    def __init__(self, name="gpt-5.5", tokens=(100, 50), error=None):
        self.name, self.tokens, self.error = name, tokens, error

    def ask(self, prompt, ticket):
        if self.error:
            raise self.error
        tokens_in, tokens_out = self.tokens
        return Completion(text=self.name, model="m", tokens_in=tokens_in, tokens_out=tokens_out)


def cost(prices, model, tokens_in, tokens_out, cached=None, batch=False):
    took = Metered(tokens_in=tokens_in, tokens_out=tokens_out, tokens_cached=cached, batch=batch)
    return prices.cost_usd(model, took)


def test_reasoning_is_output_cached_input_is_cheaper_and_batches_cost_half():
    prices = read_prices()
    assert cost(prices, "gpt-5.5", 1_000_000, 0) == pytest.approx(5.0)
    assert cost(prices, "gpt-5.5", 1_000_000, 0, 1_000_000) == pytest.approx(0.5)
    assert cost(prices, "gpt-5.5", 0, 1_000_000) == pytest.approx(30.0)
    assert cost(prices, "gpt-5.5", 0, 1_000_000, batch=True) == pytest.approx(15.0)


def test_an_unknown_model_or_untold_tokens_have_no_cost():
    prices = read_prices()
    assert cost(prices, "gpt-5.5-mine", 10, 10) is None
    assert cost(prices, "gpt-5.5", None, 10) is None


def test_ones_own_prices_go_before_those_that_come_along(tmp_path):
    path = tmp_path / "prices.toml"
    path.write_text('date = "2026-11-01"\n[models.mine]\ninput = 1\noutput = 2\n')
    prices = read_prices(str(path))
    assert cost(prices, "mine", 1_000_000, 1_000_000, 500_000) == pytest.approx(3.0)
    assert cost(prices, "gpt-5.5", 1_000_000, 0) == pytest.approx(5.0)
    assert str(prices.date) == "2026-11-01"
    path.write_text('date = "2026-11-01"\n[models.mine]\ninput = -1\noutput = 2\n')
    with pytest.raises(UsageError, match=r"models\.mine\.input"):
        read_prices(str(path))


def test_eight_workers_at_once_never_pass_a_limit_on_calls():
    chat = Paid(Echo(), Budget(Limits(calls=5), read_prices(), Spent(calls=1)))

    def ask(ticket):
        try:
            return chat.ask("hello", ticket).text
        except OutOfBudget as error:
            return str(error)

    with ThreadPoolExecutor(8) as pool:
        said = list(pool.map(ask, TICKETS[:20]))
    assert said.count("gpt-5.5") == 4
    assert "--max-calls" in next(text for text in said if text != "gpt-5.5")


def test_a_question_under_way_counts_as_the_longest_answer_so_far():
    budget = Budget(Limits(tokens=TOKENS_OUT + 150), read_prices(), Spent())
    chat = Paid(Echo(), budget)
    asked = budget.reserve("gpt-5.5", "x" * 30)
    with pytest.raises(OutOfBudget, match="--max-tokens"):
        chat.ask("x" * 30, TICKETS[0])
    answer = Completion(text="", model="m", tokens_in=10, tokens_out=20)
    budget.settle("gpt-5.5", asked, answer)
    assert chat.ask("x" * 30, TICKETS[0]).text == "gpt-5.5"
    with pytest.raises(OutOfBudget):
        chat.ask("x" * 30, TICKETS[0])


def test_a_question_that_failed_is_not_under_way_any_more():
    budget = Budget(Limits(calls=1), read_prices(), Spent())
    with pytest.raises(EndpointError):
        Paid(Echo(error=EndpointError("no")), budget).ask("hello", TICKETS[0])
    assert Paid(Echo(), budget).ask("hello", TICKETS[0]).text == "gpt-5.5"


def test_a_limit_on_cost_needs_a_price():
    env = {"OPENAI_API_KEY": "sk-1234"}
    assert make_proposer(Settings(max_cost=1.0), env).name == "gpt-5.5"
    with pytest.raises(UsageError, match="--max-tokens"):
        make_proposer(Settings(max_cost=1.0, model="mine"), env)


def test_weights_are_read_and_a_sign_in_a_name_is_not_one():
    assert read_weights(("a", "b@2", "org/c@0.5", "d@latest")) == {
        "a": 1,
        "b": 2,
        "org/c": 0.5,
        "d@latest": 1,
    }
    for words in (("a@0",), ("a@-1",), ("a@inf",), ("a@nan",), ("a", "a@2")):
        with pytest.raises(UsageError):
            read_weights(words)


def test_models_are_asked_by_weight_and_the_same_again():
    weights = {"a": 1.0, "b": 3.0}
    panel = ModelMix({name: Echo(name) for name in weights}, by_weight(weights, seed=7))
    asked = [panel.ask("hello", ticket).text for ticket in TICKETS]
    assert asked == [panel.ask("hello", ticket).text for ticket in TICKETS]
    assert 0.65 < Counter(asked)["b"] / len(TICKETS) < 0.85
    again = Ticket(purpose="diagnosis", round=1, worker=0, attempt=1)
    assert panel.ask("hello", again).text == asked[0]


def test_a_bandit_turns_to_the_model_that_won_and_knows_no_more_than_it_may():
    seen = []

    def standings(number):
        seen.append(number)
        known = {"a": Standing(wins=0, tries=20), "b": Standing(wins=12, tries=20)}
        return known if number > 10 else {}

    choose = by_wins({"a": 1.0, "b": 1.0}, 7, standings)
    early, late = ([t for t in TICKETS if (t.round > 10) is after] for after in (False, True))
    assert 0.3 < Counter(map(choose, early))["a"] / len(early) < 0.7
    assert Counter(map(choose, late))["b"] / len(late) > 0.97
    assert seen == [t.round for t in early + late]


def test_a_purpose_that_does_not_exist_is_named():
    with pytest.raises(UsageError, match="'variant'.*variants"):
        make_proposer(Settings(temperature={"variant": 1.0}), {})


def test_a_ledger_says_which_tokens_are_estimates_and_a_resumed_run_counts_them(tmp_path):
    trace = Trace(tmp_path)
    told = counted("x" * 300, Completion(text="y" * 30, model="m", asked="gpt-5.5", tokens_in=7))
    assert (told.tokens_in, told.tokens_out, told.estimated) == (7, 10, True)
    call = Call(
        purpose="diagnosis",
        round=1,
        worker=0,
        attempt=0,
        author="m",
        model="gpt-5.5",
        prompt_file="p",
        reply_file="r",
        prompt_sha256="0",
        **told.model_dump(include={"tokens_in", "tokens_out", "estimated"}),
    )
    write_record(trace.worker(1, 0) / "calls" / "bottleneck_response.json", call)
    save_ledger(trace, None)
    assert json.loads(trace.ledger_file.read_text())["estimated"] is True
    dollars = (7 * 5 + 10 * 30) / 1e6
    assert spent(trace, read_prices()) == Spent(1, 17, pytest.approx(dollars), 10)
    assert "tokens of 1 call estimated" in str(paid(trace, read_prices(), {}).total)


def test_a_run_keeps_the_price_list_it_started_with(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    listed = 'date = "2026-11-01"\n[models.mine]\ninput = 1\noutput = 2\n'
    path = tmp_path / "prices.toml"
    path.write_text(listed)
    trace = Trace(tmp_path / "run")
    keep_prices(trace, "prices.toml")
    trace.run_file.write_text("{}")

    path.write_text(listed.replace("= 1", "= 100"))
    keep_prices(trace, "prices.toml")
    path.unlink()
    moved = Trace((tmp_path / "run").rename(tmp_path / "elsewhere"))
    monkeypatch.chdir("/")
    assert cost(run_prices(moved, "prices.toml"), "mine", 1_000_000, 0) == pytest.approx(1.0)
    moved.run_file.unlink()  # a run that starts anew in its folder has its own
    with pytest.raises(UsageError, match=r"cannot read the prices in prices\.toml"):
        keep_prices(moved, "prices.toml")


@pytest.mark.parametrize("given", [{"model": ["gpt-5.5"]}, {"max_cost": 1.0}, {"max_calls": 3}])
def test_settings_of_models_are_refused_where_none_is_asked(tmp_path, given):
    for who in ("playbook", f"replay:{tmp_path}"):
        with pytest.raises(UsageError, match=f"{next(iter(given))} would say nothing"):
            read_settings(None, {"llm": who, **given})
    assert read_settings(None, given).llm.kind == "auto"
