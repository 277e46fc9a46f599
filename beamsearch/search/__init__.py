"""The search: whose children come next, which way they go, what is kept, and when it is enough.

Pure functions of what was judged so far: no GPU, no model, no clock. Strategies share one seam,
`strategy.Strategy`.
"""

from beamsearch.search.directions import deal
from beamsearch.search.families import families
from beamsearch.search.noise import NOISE, is_tie, is_win
from beamsearch.search.plan import Assignment, Plan, worker_seed
from beamsearch.search.stopping import Limits, stop_reason
from beamsearch.search.strategies import STRATEGIES
from beamsearch.search.strategy import Standing, State, Strategy, settle
from beamsearch.search.survivors import distinct

__all__ = [
    "NOISE",
    "STRATEGIES",
    "Assignment",
    "Limits",
    "Plan",
    "Standing",
    "State",
    "Strategy",
    "deal",
    "distinct",
    "families",
    "is_tie",
    "is_win",
    "settle",
    "stop_reason",
    "worker_seed",
]
