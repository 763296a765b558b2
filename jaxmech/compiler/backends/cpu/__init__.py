"""Kernels for CPUs: `program` puts loads and stores around the code of a graph, at most once.

The JAX primitive lowers to it, and it loads the code from the cache on disk where that has it.
`runtime` has LLVM compile the result, and registers it with XLA.
"""
