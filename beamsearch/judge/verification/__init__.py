"""What decides on a kernel without a GPU: small shapes that matter, and its accesses at the true."""
