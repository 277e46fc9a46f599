"""Traffic and the modelled time."""
