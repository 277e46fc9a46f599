"""The search: whose children come next, which way they go, what is kept, and when it is enough.

Pure functions of what was judged so far: no GPU, no model, no clock.
"""
