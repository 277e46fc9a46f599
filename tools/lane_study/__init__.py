"""Runs over many lanes, simulated with the job times of recorded runs: how many candidates an hour,
and what the lanes wait for. Needs no GPU."""
