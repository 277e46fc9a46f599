"""Kernels with one planted flaw each, and what a profile must say of them.

Every file stands on its own: `kernel_function`, `make_inputs(device)`, `reference`, `FLAW` (kind of
the finding that must lead), and one line of the kernel marked `# flaw`, which it must name.
"""
