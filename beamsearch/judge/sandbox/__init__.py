"""Where a candidate's Python runs, and what it can reach there."""
