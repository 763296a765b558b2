"""Kernels for NVIDIA GPUs, with one thread for each trajectory.

`program` puts a loop over the trajectories of a thread around the code of a graph and translates it
with LLVM, linking functions of libdevice where needed. As for CPUs, it stores the text on disk, and
is what the JAX primitive lowers to. `driver` loads it through CUDA's driver, in a handler that XLA
calls; `self_test` decides whether kernels may be used.
"""
