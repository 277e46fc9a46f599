"""The strategies by the names that `--strategy` takes."""

from beamsearch.search.beam import Beam
from beamsearch.search.best_of_n import BestOfN
from beamsearch.search.greedy import Greedy
from beamsearch.search.strategy import Strategy
from beamsearch.search.tree import Tree

STRATEGIES: dict[str, Strategy] = {
    "beam": Beam(),
    "greedy": Greedy(),
    "best-of-n": BestOfN(),
    "tree": Tree(),
}
