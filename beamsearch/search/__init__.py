"""The search: whose children come next, which way they go, what is kept, and when it is enough.

Pure functions of what was judged so far: no GPU, no model, no clock.
"""

from beamsearch.search.directions import Assignment, Plan, deal, worker_seed
from beamsearch.search.pairs import MODELLED_NOISE, NOISE, is_tie, is_win
from beamsearch.search.stopping import Limits, stop_reason
from beamsearch.search.strategies import STRATEGIES, Standing, State, Strategy, settle
from beamsearch.search.survivors import distinct, families

__all__ = [
    "MODELLED_NOISE",
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
