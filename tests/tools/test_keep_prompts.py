"""Examples of prompts hold everything but the problem's text."""

import pytest

from tools.keep_prompts import keep, without_problem

PROMPT = """Say what holds it back.

## The problem

`1_theirs`, computed in float32. The reference, in PyTorch:

```python
class Model: "theirs"
```

Inputs: `x`.

```python
def kernel_function(x): ...
```
"""


def test_the_problem_is_left_out_and_nothing_else(tmp_path):
    worker = tmp_path / "l1_1" / "optimization_trace" / "round_2" / "workers" / "w3"
    worker.mkdir(parents=True)
    for file in ("bottleneck_prompt.txt", "opt_prompt.txt"):
        (worker / file).write_text(PROMPT)
    table = keep(tmp_path, [worker])
    text = (tmp_path / "l1_1-r2-w3-diagnosis.txt").read_text()
    kept = [line for line in PROMPT.splitlines() if line in text.splitlines()]
    assert [line for line in PROMPT.splitlines() if line not in kept] == ['class Model: "theirs"']
    assert "def kernel_function(x)" in text
    assert "l1_1-r2-w3-variants.txt" in table


@pytest.mark.parametrize("prompt", ["no reference", PROMPT + PROMPT])
def test_a_prompt_in_another_form_is_not_written(prompt):
    with pytest.raises(ValueError, match="references in it"):
        without_problem(prompt)
