"""What a run has learned, and what earlier runs have."""
