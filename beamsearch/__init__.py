"""An optimizer that makes GPU kernels fast on its own."""

__version__ = "0.1.0"
