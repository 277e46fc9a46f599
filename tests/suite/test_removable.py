"""Work of a reference that algebra removes, and work that it does not."""

import re

import pytest

from beamsearch.problem.instance import instantiate
from beamsearch.problem.problem import read_problem
from beamsearch.suite.removable import removable_work
from tests.suite.problems import write

LINEAR = "self.linear = nn.Linear(columns, 64)"
CONVOLUTION = "self.conv = nn.Conv2d(1, 8, 3)"
IMAGE = "x.view(1, 1, rows, columns)"


@pytest.mark.parametrize(
    ("call", "module", "told"),
    [
        ("self.linear(x).sum(1)", LINEAR, ["sum over dimension 1 of a product"]),
        ("(self.linear(x) * 2 / 3 + 1).mean(dim=1)", LINEAR, ["mean over dimension 1"]),
        (f"self.conv({IMAGE}).mean((2, 3))", CONVOLUTION, ["mean over dimension 2, 3"]),
        ("x.sum(1, keepdim=True).logsumexp(1)", "pass", ["logsumexp along dimension 1"]),
        ("x.sum(1, keepdim=True).softmax(1)", "pass", ["softmax along .* is a constant"]),
        ("(x.exp(), x * 2)[1]", "pass", ["nothing reads the result .512, 256. of exp"]),
        ("x @ torch.diag(x[0])", "pass", ["mm with a diagonal matrix"]),
    ],
)
def test_it_is_named(tmp_path, call, module, told):
    found = removable_work(instantiate(read_problem(write(tmp_path, call, module)), "meta"))
    assert len(found) == len(told), found
    for sentence, expected in zip(found, told, strict=True):
        assert re.search(expected, sentence), sentence


@pytest.mark.parametrize(
    ("call", "module"),
    [
        ("torch.relu(self.linear(x)).sum(1)", LINEAR),  # not linear in between
        ("(self.linear(x) * x[:, :64]).sum(1)", LINEAR),  # a factor that varies
        ("(1 / self.linear(x)).mean(1)", LINEAR),
        ("x.softmax(1)", "pass"),
        ("F.max_pool1d(x.unsqueeze(1), 3)", "pass"),  # its indices are a by-product
        ("x.mean(1)", "pass"),
        ("F.layer_norm(x, (columns,))", "pass"),
        ("F.scaled_dot_product_attention(*[x.view(1, 4, 128, 256)] * 3, is_causal=True)", "pass"),
    ],
)
def test_nothing_else_is(tmp_path, call, module):
    problem = read_problem(write(tmp_path, call, module))
    assert removable_work(instantiate(problem, "meta")) == []
