"""Who decides: whether a candidate computes the problem, and how long it really takes."""
