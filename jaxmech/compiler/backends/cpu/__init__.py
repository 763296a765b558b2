"""Kernels for CPUs: `codegen` puts loads and stores around the code of a graph.

`runtime` compiles the result with LLVM and registers it with XLA, `program` does so at most once or
loads the code from the cache on disk, and `call` is what the JAX primitive lowers to.
"""
