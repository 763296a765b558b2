"""Kernels for NVIDIA's GPUs, one thread for each trajectory.

`codegen` puts a loop over the trajectories of a thread around the code of a graph, and `ptx` has
LLVM translate it, with the functions of `libdevice` where it needs them. `driver` has CUDA's
driver load it, and `runtime` is what XLA calls. As for CPUs, `program` keeps the text on disk, and
`call` is what the JAX primitive lowers to.
"""
