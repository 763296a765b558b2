"""Kernels for CPUs: `codegen` puts loads and stores around the code of a graph.

`runtime` compiles the result with LLVM and registers it with XLA.
"""
