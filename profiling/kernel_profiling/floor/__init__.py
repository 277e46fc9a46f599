"""Least work and measured ceilings."""
