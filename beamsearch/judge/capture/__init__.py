"""A candidate's call made into data: recorded, compiled again, told from others."""
