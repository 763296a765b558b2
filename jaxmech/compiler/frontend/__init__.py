"""From a jaxpr to a graph of scalars: `jaxprs` traces, `from_jaxpr` reads, `build` puts together.

`primitives` holds the meaning of each JAX primitive on arrays of node numbers.
"""
