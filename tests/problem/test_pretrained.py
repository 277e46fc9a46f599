"""Models that a problem loads by name: from configurations that are here, with random weights."""

import json

import pytest
import torch

from beamsearch.errors import ProblemError
from beamsearch.judge.arguments import meta_arguments
from beamsearch.judge.runner.reference import problem_message, reference_maker
from beamsearch.problem.instance import instantiate
from beamsearch.problem.least_work import least_work
from beamsearch.problem.problem import find_problem

pytest.importorskip("transformers")

SOURCE = """
import torch
from transformers import AutoConfig, AutoModelForCausalLM{more}
class Model(torch.nn.Module):
    def __init__(self, name, config):
        super().__init__()
        self.model = AutoModelForCausalLM.from_pretrained(name, config=config)
    def forward(self, x):
        return self.model(x).logits
name = "{name}"
config = AutoConfig.from_pretrained(name)
length, batch = 16, 2
def get_inputs(): return [torch.randint(0, config.vocab_size, (batch, length))]
def get_init_inputs(): return [name, config]
"""
TINY = {"model_type": "gpt2", "n_embd": 32, "n_layer": 2, "n_head": 4, "vocab_size": 100}


@pytest.fixture(autouse=True)
def no_caches(tmp_path, monkeypatch):
    for name in ("XDG_CACHE_HOME", "HF_HOME", "HF_HUB_CACHE"):
        monkeypatch.setenv(name, str(tmp_path / "cache"))


def write(folder, name, more=""):
    path = folder / "model.py"
    path.write_text(SOURCE.format(name=name, more=more))
    return path


def configured(folder, name="somebody/tiny"):
    place = folder / "cache" / "beamsearch" / "models" / name
    place.mkdir(parents=True)
    (place / "config.json").write_text(json.dumps(TINY))
    return find_problem(str(write(folder, name)))


def test_a_model_is_built_from_the_configuration_that_was_put_there(tmp_path):
    problem = configured(tmp_path)
    assert least_work(problem).output_shape == (2, 16, 100)
    one, other = instantiate(problem, seed=1), instantiate(problem, seed=2)
    assert len(one.model.model.transformer.h) == 2 and not one.model.model.training
    weights = [i.arguments.values["model_transformer_wte_weight"] for i in (one, other)]
    assert weights[0].shape == (100, 32) and not torch.equal(*weights)


def test_its_baseline_computes_with_the_weights_of_the_call(tmp_path):
    problem = configured(tmp_path)
    instance = instantiate(problem)
    call = reference_maker(problem_message(problem), "cpu", None)(instance.arguments)
    with torch.inference_mode():
        assert torch.equal(call(), instance.reference())
    names = meta_arguments(problem)["values"]  # plain data, as a kernel's process gets it
    assert "x" in names and "config" not in names


def test_a_model_that_the_package_documents_as_its_default_needs_no_file(tmp_path):
    problem = find_problem(str(write(tmp_path, "gpt2")))
    assert least_work(problem).output_shape == (2, 16, 50257)
    parameters = instantiate(problem, "meta").model.parameters()
    assert sum(tensor.numel() for tensor in parameters) == 124_439_808  # GPT-2's smallest


def test_a_model_that_nothing_here_describes_is_refused_with_the_file_to_put(tmp_path):
    place = tmp_path / "cache" / "beamsearch" / "models" / "EleutherAI" / "gpt-neo-2.7B"
    with pytest.raises(ProblemError, match="nothing here says") as refused:
        find_problem(str(write(tmp_path, "EleutherAI/gpt-neo-2.7B")))
    assert str(place / "config.json") in str(refused.value)


def test_what_is_no_model_is_refused(tmp_path):
    path = write(tmp_path, "gpt2", more=", AutoTokenizer")
    path.write_text(path.read_text() + "words = AutoTokenizer.from_pretrained(name)\n")
    with pytest.raises(ProblemError, match="AutoTokenizer.* cannot be made at random"):
        find_problem(str(path))
