"""Nsight Compute and what its numbers mean; stands on its own, knows nothing of the optimizer."""
