"""Kernels for CPUs: `codegen` puts loads and stores around the code of a graph.

`compile` has LLVM compile the result, `runtime` registers it with XLA, and `program`, to which the
JAX primitive lowers, does so at most once or loads the code from the cache on disk.
"""
