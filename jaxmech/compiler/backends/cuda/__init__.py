"""Kernels for NVIDIA GPUs, with one thread for each trajectory.

`codegen` puts a loop over the trajectories of a thread around the code of a graph and
translates it with LLVM, linking functions of libdevice where needed. `driver` loads it through
CUDA's driver, and `runtime` is called by XLA; `self_test` decides whether kernels may be used. As
for CPUs, `program` stores the text on disk, and is what the JAX primitive lowers to.
"""
