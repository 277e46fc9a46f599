"""Nsight Compute: run it, read its report."""
