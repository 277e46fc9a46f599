"""Replays plans on the GPU: loads compiled kernels, owns all memory but the arguments', verifies
and times. It never imports a candidate; but the kernels that it runs may write wherever they like
in its GPU memory, so nothing of value is kept there."""
