"""What decides on a kernel without a GPU: small shapes that matter, and accesses at the true."""
