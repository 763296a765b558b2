"""General helpers.

`checks` of arguments, their `shapes`, names for types of `arrays`, `parameters` that are read or
differ, `probing` of functions for their structure, values behind `tracers`, `trees` of parameters,
`text` of messages and results, `units` of coordinates, `digests`, `pickling` of functions,
`jit_cache`: `jax.jit` for functions of a system, without the programs of systems that are no longer
used, `captures`: what functions read besides their arguments, `equal_functions`: one in place of
all that the same code makes, and `collection` of garbage, which is put off while a program is
traced. `caller`: warnings at the user's line, `precision`: that of floating-point numbers,
`announce`: a message where compiling takes long, `delayed_jaxpr`: a function that is traced when
its operations are needed, `repeated`: one that is traced once for all parts of a kind.
`jax_internals`: what is used of JAX beyond its documented API.
"""
