"""Search strategies on a landscape fitted to measured kernels: what each finds, without a GPU."""
