"""The pages a run is read on."""
