"""From a user's module to a problem, and from a winner to an operator for that module."""
