"""Kernels for NVIDIA's GPUs, one thread for each trajectory."""
