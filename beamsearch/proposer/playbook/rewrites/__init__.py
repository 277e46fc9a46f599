"""Source-to-source rewrites of Triton kernels, one a file, and how they are put together."""
