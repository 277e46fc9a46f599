"""Planted cheats, honest look-alikes, wrong and hostile kernels: `python -m tests.judge.suite`."""
