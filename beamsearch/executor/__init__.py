"""Lanes: where a job runs, one job a GPU at a time."""
