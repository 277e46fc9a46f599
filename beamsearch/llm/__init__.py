"""Chat models behind one small interface; knows nothing of kernels."""
