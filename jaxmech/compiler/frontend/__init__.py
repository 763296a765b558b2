"""Translation of a jaxpr to a graph of scalars: `from_jaxpr` reads it, `build` makes a `Kernel`.

`primitives` translates each JAX primitive, `indexing` gathers and scatters; `jaxprs` finds the
jaxprs inside calls and loops, and `scalar_function` keeps those that have been read.
"""
