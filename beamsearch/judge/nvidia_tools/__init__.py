"""Nsight Compute and compute-sanitizer on a plan."""
