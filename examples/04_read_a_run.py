"""Read a run back: its records, and a table. It is the run that 03_search.py left."""

from beamsearch import Run
from beamsearch.errors import UsageError

run = Run("runs/leaky_relu")
record = run.record
print(f"{record.problem}: {record.status}, {record.stop_reason}")
print(f"{record.totals.correct} of {record.totals.candidates} candidates are correct")

for candidate in run.candidates:
    speedup = run.speedups.get(candidate.name)
    print(candidate.name, candidate.verdict.outcome, candidate.measurement, speedup)

best = run.best
assert best is not None
print(f"{best.name} comes from {best.parent}: {best.description}")

try:
    table = run.to_pandas()
except UsageError as error:
    print(error)
else:
    print(table[["name", "parent", "outcome", "time_ms", "speedup"]])
