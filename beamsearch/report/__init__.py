"""The pages a run is read on: one file for a browser each, from the records alone."""
