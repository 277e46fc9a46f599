"""A problem, a kernel file, and how one is called with the other."""
