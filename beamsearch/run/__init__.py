"""One run from start to finish, and from wherever it stopped."""
