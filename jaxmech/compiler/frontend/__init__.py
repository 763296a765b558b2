"""From a jaxpr to a graph of scalars: `from_jaxpr` reads it, `build` makes it a `Kernel`.

`primitives` holds how each JAX primitive is read, `indexing` gathers and scatters, `jaxprs` what
is inside calls and loops.
"""
