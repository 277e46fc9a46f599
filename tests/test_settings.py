"""The rule of precision from a flag or a file to every place that goes by it."""

import shlex
from pathlib import Path

import pytest

from beamsearch.baselines.reference_times import cache_file
from beamsearch.errors import ProblemError, UsageError
from beamsearch.gpu.machine import modelled
from beamsearch.judge.runner.reference import problem_message, read_problem_message
from beamsearch.paths import command
from beamsearch.problem.problem import find_problem
from beamsearch.settings import Settings, differences, read_settings


def test_the_rule_is_reference_unless_a_file_or_flag_says_strict(tmp_path):
    config = tmp_path / "settings.toml"
    config.write_text('precision = "strict"\n')
    assert read_settings(None, {"precision": None}).precision == "reference"
    strict = read_settings(config, {"precision": None})
    assert strict.precision == "strict"
    assert read_settings(config, {"precision": "reference"}).precision == "reference"
    assert Settings.model_validate_json(strict.model_dump_json()) == strict
    with pytest.raises(UsageError, match="precision"):
        read_settings(None, {"precision": "tf32"})


def test_a_time_limit_has_a_unit_but_as_seconds_in_a_file(tmp_path):
    config = tmp_path / "settings.toml"
    config.write_text("time_limit_s = 90\n")
    assert read_settings(config, {}).time_limit_s == 90
    assert read_settings(config, {"time_limit_s": "1.5h"}).time_limit_s == 5400
    config.write_text("time_limit = 90\n")
    with pytest.raises(UsageError, match="20m or 1.5h"):
        read_settings(config, {})


def test_commands_can_be_pasted():
    words = ["resume", Path("my runs") / "it's"]
    assert shlex.split(command(*words)) == ["python", "-m", "beamsearch", "resume", "my runs/it's"]


def test_a_run_by_the_other_rule_is_another_run():
    told = differences(Settings(), Settings(precision="strict"))
    assert told == ["precision: reference there, strict asked"]


def test_a_problem_takes_the_rule_to_other_processes_and_to_what_is_kept():
    problem = find_problem("43")
    strict = problem.with_precision("strict")
    assert read_problem_message(problem_message(strict)) == strict != problem
    assert strict.with_precision(None) == strict
    here = modelled()
    assert cache_file(problem, here, "source") == cache_file(problem, here, "source")
    assert cache_file(problem, here, "source") != cache_file(strict, here, "source")
    with pytest.raises(ProblemError, match="reference or strict"):
        problem.with_precision("loose")


def test_gpus_are_all_or_numbers_and_go_without_a_device():
    assert read_settings(None, {"gpus": "0, 2"}).gpus == "0,2"
    for wrong, why in (("0,x", "such as 0,2"), ("1,1", "the same GPU twice")):
        with pytest.raises(UsageError, match=why):
            read_settings(None, {"gpus": wrong})
    with pytest.raises(UsageError, match="^--device and --gpus both say where to run; give one"):
        read_settings(None, {"gpus": "all", "device": 0})


def test_a_run_may_go_on_on_other_gpus():
    assert differences(Settings(gpus="0,1"), Settings(device=3)) == []
