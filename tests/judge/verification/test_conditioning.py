"""Honest float32 kernels pass on every input set, and each with one real mistake fails on one."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

from beamsearch.judge.sandbox.memory import SharedMemory
from beamsearch.judge.verification.inputs import InputSet, InputSets
from beamsearch.judge.verification.negative_controls import CannotTell
from beamsearch.judge.verification.stages import difference_of
from beamsearch.judge.verification.tolerance import compare, lower_precision
from beamsearch.problem.input_values import DISTRIBUTIONS, Distribution
from tests.judge.conftest import write_problem
from tests.judge.orders import TOTALS, WRONG_TOTALS, Total, cut, in_blocks, merged, online

Kernel = Callable[..., torch.Tensor]
N = 512
"""Length of a row."""


def problem(shapes: dict[str, str], body: str, module: str = "", **sizes: int) -> str:
    """A problem's source: normal inputs of these shapes, a forward of this body."""
    inputs = ", ".join(f"torch.randn({shape})" for shape in shapes.values())
    named = "".join(f"{name} = {size}\n" for name, size in sizes.items())
    return (
        f"{named}import torch\nimport torch.nn.functional as F\nclass Model(torch.nn.Module):\n"
        "    def __init__(self):\n        super().__init__()\n"
        f"        {module or 'pass'}\n"
        f"    def forward(self, {', '.join(shapes)}):\n        return {body}\n"
        f"def get_inputs():\n    return [{inputs}]\ndef get_init_inputs():\n    return []\n"
    )


@dataclass(frozen=True)
class Family:
    """One operation, right kernels for it and wrong ones. They take inputs, then parameters."""

    source: str
    honest: dict[str, Kernel]
    wrong: dict[str, Kernel]


def attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, **how: object) -> torch.Tensor:
    """Causal attention: scores, mask, softmax over blocks of keys."""
    size, depth = q.shape[-2:]
    dot: Callable[..., torch.Tensor] = how.pop("dot", torch.matmul)  # type: ignore[assignment]
    late: int = how.pop("late", 0)  # type: ignore[assignment]
    scale: float = how.pop("scale", depth**-0.5)  # type: ignore[assignment]
    blocks: list[tuple[int, int]] = how.pop("blocks", cut(size, 32))  # type: ignore[assignment]
    parts: int = how.pop("parts", 1)  # type: ignore[assignment]
    scores = dot(q * scale, k.mT) if how.pop("scale_first", False) else dot(q, k.mT) * scale
    above = torch.ones(size, size, dtype=torch.bool).triu(1 + late)
    scores = scores.masked_fill(above, -torch.inf)
    half = len(blocks) // parts
    found = online(scores, v, blocks[:half], **how)  # type: ignore[arg-type]
    if parts == 2:
        found = merged(found, online(scores, v, blocks[half:], **how))  # type: ignore[arg-type]
    return found[2] / found[1][..., None]


def with_options(kernel: Kernel, **how: object) -> Kernel:
    return lambda *inputs: kernel(*inputs, **how)


def dot_in_turn(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    total = torch.zeros((*a.shape[:-1], b.shape[-1]))
    for i in range(a.shape[-1]):
        total += a[..., i : i + 1] * b[..., i : i + 1, :]
    return total


def dot_in_blocks(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    total = torch.zeros((*a.shape[:-1], b.shape[-1]))
    for first, last in reversed(cut(a.shape[-1], 8)):
        total += a[..., first:last] @ b[..., first:last, :]
    return total


KEYS = 128
ATTENTION = Family(
    problem(
        dict.fromkeys("qkv", "B, H, T, 32"),
        "F.scaled_dot_product_attention(q, k, v, is_causal=True)",
        **{"B": 2, "H": 2, "T": KEYS},
    ),
    {
        name: with_options(attention, **how)
        for name, how in {
            "whole rows": {"blocks": cut(KEYS, KEYS)},
            "online": {},
            "online, blocks of 16": {"blocks": cut(KEYS, 16)},
            "online, backwards": {"blocks": cut(KEYS, 32)[::-1]},
            "powers of two": {"base2": True},
            "scale first": {"scale_first": True},
            "products in turn": {"dot": dot_in_turn},
            "products in blocks": {"dot": dot_in_blocks},
            "split keys": {"parts": 2},
            "products in float64": {"dot": lambda a, b: (a.double() @ b.double()).float()},
        }.items()
    },
    {
        name: with_options(attention, **how)
        for name, how in {
            "no rescaling": {"rescale": False},
            "mask off by one": {"late": 1},
            "mask too strict": {"late": -1},
            "no scale": {"scale": 1.0},
            "last block dropped": {"blocks": cut(KEYS, 32)[:-1]},
            "maximum from zero": {"start": 0.0},
            "products in bfloat16": {
                "dot": lambda a, b: (a.bfloat16() @ b.bfloat16()).float(),
            },
        }.items()
    }
    | {"values in bfloat16": lambda q, k, v: attention(q, k, v.bfloat16().float())},
)


def layer_norm(
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor,
    total: Total = in_blocks,
    eps: float = 1e-5,
    count: int = N,
) -> torch.Tensor:
    centred = x - total(x)[:, None] / count
    variance = total(centred.square())[:, None] / N
    return centred * (variance + eps).rsqrt() * weight + bias


def welford(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    """Means and squares of blocks, merged one after the other."""
    mean, squares, count = torch.zeros(x.shape[0]), torch.zeros(x.shape[0]), 0
    for part in x.split(64, 1):
        own = part.mean(1)
        step, new = own - mean, count + part.shape[1]
        squares = squares + (part - own[:, None]).square().sum(1)
        squares = squares + step.square() * (count * part.shape[1] / new)
        mean, count = mean + step * (part.shape[1] / new), new
    variance = squares[:, None] / N
    return (x - mean[:, None]) * (variance + 1e-5).rsqrt() * weight + bias


def one_pass(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    mean = in_blocks(x)[:, None] / N
    variance = in_blocks(x.square())[:, None] / N - mean.square()
    return (x - mean) * (variance.clamp(min=0) + 1e-5).rsqrt() * weight + bias


def rms_norm(
    x: torch.Tensor, weight: torch.Tensor, total: Total, eps: float = 1e-6
) -> torch.Tensor:
    return x * (total(x.square())[:, None] / N + eps).rsqrt() * weight


def softmax(x: torch.Tensor, width: int = 64, **how: object) -> torch.Tensor:
    blocks = cut(N, width)[:: -1 if how.pop("backwards", False) else 1]
    largest, total, _ = online(x, x[..., :0, None].new_zeros(N, 1), blocks, **how)  # type: ignore[arg-type]
    powers = torch.exp2 if how.get("base2") else torch.exp
    x = x * 1.4426950408889634 if how.get("base2") else x
    return powers(x - largest[:, None]) / total[:, None]


def logsumexp(x: torch.Tensor, width: int = 64, **how: object) -> torch.Tensor:
    blocks = cut(N, width)[:: -1 if how.pop("backwards", False) else 1]
    found = online(x, x.new_zeros(N, 1), blocks, **how)  # type: ignore[arg-type]
    if how.get("base2"):
        return (found[0] + found[1].log2()) * math.log(2)
    return found[0] + found[1].log()


ONLINE: dict[str, dict[str, object]] = {
    "online": {},
    "narrow blocks": {"width": 8},
    "whole rows": {"width": N},
    "backwards": {"backwards": True},
    "powers of two": {"base2": True},
}
NOT_ONLINE: dict[str, dict[str, object]] = {
    "no rescaling": {"rescale": False},
    "maximum from zero": {"start": 0.0},
    "not a number from an empty block": {"guarded": False},
}


def cumulated(x: torch.Tensor, width: int, *, carry: str = "right") -> torch.Tensor:
    parts, before = [], torch.zeros(x.shape[0], 1)
    for number, part in enumerate(x.split(width, 1)):
        parts.append(part.cumsum(1) + before)
        before = parts[-1][:, -1:]
        if carry == "bfloat16":
            before = before.bfloat16().float()
        if carry == "lost once" and number == 2:
            before = torch.zeros_like(before)
    return torch.cat(parts, 1)


def doubling(x: torch.Tensor) -> torch.Tensor:
    """Hillis and Steele's scan."""
    step = 1
    while step < x.shape[1]:
        x = torch.cat([x[:, :step], x[:, step:] + x[:, :-step]], 1)
        step *= 2
    return x


def product(total: Total) -> Kernel:
    return lambda a, b: total(a[:, None, :] * b.T[None])


def of_rows(body: str, module: str = "", rows: int = 48, columns: int = N) -> str:
    return problem({"x": "M, K"}, body, module, M=rows, K=columns)


def of_sums(source: str, make: Callable[[Total], Kernel], more: dict[str, Kernel]) -> Family:
    honest = {name: make(total) for name, total in TOTALS.items()}
    return Family(source, honest, {name: make(t) for name, t in WRONG_TOTALS.items()} | more)


FAMILIES: dict[str, Family] = {
    "attention": ATTENTION,
    "layer norm": of_sums(
        of_rows("self.norm(x)", "self.norm = torch.nn.LayerNorm(K)"),
        lambda total: with_options(layer_norm, total=total),
        {
            "eps of 1e-3": with_options(layer_norm, eps=1e-3),
            "mean of one less": with_options(layer_norm, count=N - 1),
            "no weight": lambda x, w, b: layer_norm(x, torch.ones_like(w), b),
        },
    ),
    "rms norm": of_sums(
        of_rows("self.norm(x)", "self.norm = torch.nn.RMSNorm(K, eps=1e-6)"),
        lambda total: lambda x, w: rms_norm(x, w, total),
        {"eps of 1e-4": lambda x, w: rms_norm(x, w, in_blocks, 1e-4)},
    ),
    "softmax": Family(
        of_rows("x.softmax(1)"),
        {name: with_options(softmax, **how) for name, how in ONLINE.items()},
        {name: with_options(softmax, **how) for name, how in NOT_ONLINE.items()}
        | {"no maximum": lambda x: x.exp() / x.exp().sum(1, keepdim=True)},
    ),
    "logsumexp": Family(
        of_rows("x.logsumexp(1)"),
        {name: with_options(logsumexp, **how) for name, how in ONLINE.items()},
        {name: with_options(logsumexp, **how) for name, how in NOT_ONLINE.items()}
        | {"no maximum": lambda x: x.exp().sum(1).log()},
    ),
    "sum": of_sums(of_rows("x.sum(1)", rows=12, columns=1 << 15), lambda total: total, {}),
    "mean": of_sums(
        of_rows("x.mean(1)"),
        lambda total: lambda x: total(x) / N,
        {"of one less": lambda x: in_blocks(x) / (N - 1)},
    ),
    "cumulated sum": Family(
        of_rows("x.cumsum(1)", rows=12, columns=4096),
        {
            "in blocks": with_options(cumulated, width=128),
            "in narrow blocks": with_options(cumulated, width=8),
            "doubling": doubling,
            "in float64": lambda x: x.double().cumsum(1).float(),
        },
        {
            "carry lost once": with_options(cumulated, width=128, carry="lost once"),
            "carry in bfloat16": with_options(cumulated, width=128, carry="bfloat16"),
            "exclusive": lambda x: doubling(x) - x,
        },
    ),
    "matrix product": of_sums(
        problem({"a": "M, K", "b": "K, 16"}, "a @ b", M=24, K=2048),
        product,
        {"bfloat16 operands": lambda a, b: (a.bfloat16() @ b.bfloat16()).float()},
    ),
}
FAMILIES["layer norm"].honest.update({"Welford": welford})
FAMILIES["layer norm"].wrong.update({"one pass": one_pass})


@pytest.fixture(scope="module", params=FAMILIES)
def judged(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Family, InputSets, list[InputSet]]:
    """A family with every input set of its problem."""
    family = FAMILIES[request.param]
    written = write_problem(tmp_path_factory.mktemp("problems"), family.source, "family")
    sets = InputSets(written, SharedMemory("cpu"), seed=11)
    return family, sets, sets.draw(len(DISTRIBUTIONS), DISTRIBUTIONS)


def wrong_on(kernel: Kernel, sets: InputSets, drawn: list[InputSet]) -> Iterator[str]:
    """The sets on which a kernel is refused, with the reason."""
    for inputs in drawn:
        assert inputs.instance is not None
        state = inputs.instance.model.parameters()
        result = kernel(*inputs.instance.inputs, *(tensor.detach() for tensor in state))
        difference = difference_of(inputs, 0, result)
        if not difference.passed:
            yield f"{inputs.label}: {difference.explain(result, inputs.expected[0].oracle)}"


@pytest.mark.slow
def test_honest_kernels_are_right_on_all_sets(
    judged: tuple[Family, InputSets, list[InputSet]],
) -> None:
    family, sets, drawn = judged
    refused = {name: [*wrong_on(kernel, sets, drawn)] for name, kernel in family.honest.items()}
    assert not any(refused.values()), refused


def test_each_real_mistake_is_refused(judged: tuple[Family, InputSets, list[InputSet]]) -> None:
    family, sets, drawn = judged
    assert not [n for n, kernel in family.wrong.items() if not any(wrong_on(kernel, sets, drawn))]


@pytest.mark.slow
def test_rounding_explains_what_no_fixed_tolerance_does(tmp_path: Path) -> None:
    """Logits of thousands: some elements of honest kernels, of PyTorch's own float32 too, are
    outside the tolerance. What is wrong in one element is refused all the same."""
    written = problem(
        dict.fromkeys("qkv", "1, H, T, 32"),
        "F.scaled_dot_product_attention(q * 64, k * 64, v, is_causal=True)",
        **{"H": 8, "T": 256},
    )
    sets = InputSets(write_problem(tmp_path, written), SharedMemory("cpu"), seed=1)
    excused = 0
    for inputs in sets.draw(3, ["normal"]):
        assert inputs.instance is not None
        (expected,) = inputs.expected
        q, k, v = inputs.instance.inputs
        options: list[dict[str, object]] = [{}, {"base2": True}, {"dot": dot_in_turn}]
        honest = [attention(q * 64, k * 64, v, blocks=cut(256, 32), **how) for how in options]
        for result in (inputs.instance.reference(), *honest):
            plain = compare(result, expected.oracle, expected.scale)
            difference = difference_of(inputs, 0, result)
            assert difference.passed
            assert difference.excused == plain.wrong
            share = difference.relative_rms
            assert lower_precision(result, share, expected.oracle, expected.scale) is None
            excused += plain.wrong
            spoilt = result.clone()
            spoilt[0, 3, 200, 7] += 0.1
            assert difference_of(inputs, 0, spoilt).wrong == 1
        wrong = attention(q * 64, k * 64, v, blocks=cut(256, 32), scale=0.99 * 32**-0.5)
        assert not difference_of(inputs, 0, wrong).passed
        assert inputs.proves
    assert excused


def test_set_on_which_rounding_excuses_anything_is_dropped(tmp_path: Path) -> None:
    """Sines of millions of radians: the last bit of an input decides the output."""
    source = of_rows("(x * 2e6).sin()")
    sets = InputSets(write_problem(tmp_path, source), SharedMemory("cpu"), seed=1)
    (inputs,) = sets.draw(1, ["normal"])
    assert inputs.instance is not None
    (x,) = inputs.instance.inputs
    with pytest.raises(CannotTell, match="an all-zero output would pass"):
        difference_of(inputs, 0, (x * (1 + 2**-23) * 2e6).sin())
    assert not inputs.proves
    assert [*sets.dropped.values()] == [
        "normal #1: where rounding is allowed for, an all-zero output would pass"
    ]


def test_ties_are_not_broken_by_a_rounding(tmp_path: Path) -> None:
    """One less than a whole number is the floor of what is a little less, not of the number."""
    sets = InputSets(write_problem(tmp_path, of_rows("x.floor()")), SharedMemory("cpu"), seed=1)
    (inputs,) = sets.draw(1, ["ties"])
    assert inputs.instance is not None
    (x,) = inputs.instance.inputs
    assert difference_of(inputs, 0, x.floor()).passed
    assert not difference_of(inputs, 0, x.ceil() - 1).passed


@pytest.mark.slow
def test_tf32_may_err_more_in_some_elements_than_in_others(tmp_path: Path) -> None:
    """A channel that is 80 times as steep as the 31 others shares their normalisation."""
    module = (
        "self.conv = torch.nn.Conv2d(8, 32, 3)\n"
        "        self.steep = torch.nn.Parameter(torch.tensor([8.0] + [0.1] * 31).view(32, 1, 1))"
    )
    body = "F.group_norm(torch.sigmoid(self.conv(x) * self.steep), 1)"
    written = write_problem(tmp_path, problem({"x": "N, 8, S, S"}, body, module, N=8, S=66))
    (inputs,) = InputSets(written, SharedMemory("cpu"), seed=0).draw(1, ["normal"])
    assert inputs.instance is not None and inputs.expected[0].scale.tf32
    weight, bias, steep = (
        tensor.detach()
        for tensor in (
            inputs.instance.model.conv.weight,
            inputs.instance.model.conv.bias,
            inputs.instance.model.steep,
        )
    )
    (x,) = inputs.instance.inputs

    def result(narrow: Callable[[torch.Tensor], torch.Tensor]) -> torch.Tensor:
        products = F.conv2d(narrow(x), narrow(weight), bias)
        return F.group_norm(torch.sigmoid(products * steep), 1)

    right = result(to_tf32)
    difference = difference_of(inputs, 0, right)
    assert difference.passed and difference.excused > 100
    # One of many millions errs by more than five times what the roundings happened to move it
    assert inputs.sway is not None
    reach = inputs.sway._moved[0][5, 0].float()
    column = int((reach[20] - reach[20].median()).abs().argmin())
    place, exact = (5, 0, 20, column), inputs.expected[0].oracle[5, 0, 20, column]
    for times, passed in ((4, True), (6, True), (40, False)):
        right[place] = exact + times * reach[20, column]
        assert difference_of(inputs, 0, right).passed is passed, times
    right[place] = exact
    right[5, 0, 20, 21] += 0.1
    assert difference_of(inputs, 0, right).wrong == 1
    assert not difference_of(inputs, 0, result(lambda tensor: tensor.bfloat16().float())).passed


def to_tf32(tensor: torch.Tensor) -> torch.Tensor:
    """Without the bits that TF32 has not, as the hardware leaves them out."""
    return (tensor.view(torch.int32) & ~0x1FFF).view(torch.float32)


STEEP_CALLS = {
    "norm": ("N, 2, 3, 3", {"N": 3}, "F.batch_norm(torch.tanh({0}), None, None, training=True)"),
    "pool": ("N, 5, 11, 11", {"N": 3}, "F.avg_pool2d(torch.tanh({0} - 0.5), 2)"),
}
CHANNELS = {"norm": 128, "pool": 7}


@pytest.mark.slow
@pytest.mark.parametrize(("name", "distribution"), [("norm", "own"), ("pool", "large")])
def test_one_steep_element_of_few_may_move_far_in_tf32(
    tmp_path: Path, name: str, distribution: Distribution
) -> None:
    """A hundredth of a small output is one element: all roundings are tried for it too."""
    shape, sizes, call = STEEP_CALLS[name]
    module = f"self.conv = torch.nn.Conv2d({shape.split(', ')[1]}, {CHANNELS[name]}, 3)"
    source = problem({"x": shape}, call.format("self.conv(x)"), module, **sizes)
    written = write_problem(tmp_path, source)
    excused = 0
    for seed in range(25):
        drawn = InputSets(written, SharedMemory("cpu"), seed=seed).draw(1, [distribution])
        (inputs,) = drawn
        assert inputs.instance is not None
        (x,), conv = inputs.instance.inputs, inputs.instance.model.conv
        products = F.conv2d(to_tf32(x), to_tf32(conv.weight), conv.bias)
        result = eval(call.format("products"), {"F": F, "torch": torch, "products": products})
        difference = difference_of(inputs, 0, result)
        assert difference.passed, (seed, difference)
        excused += difference.excused
        result.view(-1)[5] += 1.0
        assert difference_of(inputs, 0, result).wrong == 1
    assert excused
