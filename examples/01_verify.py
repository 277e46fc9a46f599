"""Is this kernel correct? The judge says so, with every check, or what is wrong."""

from pathlib import Path

from beamsearch import verify

problem = Path(__file__).with_name("leaky_relu")
kernel = (problem / "input_kernel.py").read_text()

right = verify(problem, kernel)
print(right)

wrong = verify(problem, kernel.replace("x > 0", "x > 1"))
print(wrong.verdict.outcome, "at", wrong.verdict.stage, "-", wrong.verdict.reason)

assert right.correct and not wrong.correct
