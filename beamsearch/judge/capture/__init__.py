"""A kernel's Python, run once on stand-ins where there is no GPU; what it does becomes a plan."""
