"""One file a verb: parsing and printing only."""
