"""What a run is told as: to a terminal now, on a page later."""
