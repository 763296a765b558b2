"""General helpers.

`checks` of arguments, their `shapes`, names for types of `arrays`, `parameters` that are read or
differ, `probing` of functions for their structure, values behind `tracers`, `trees` of parameters,
`text` of messages and results, `units` of coordinates, `digests`,
`jit_cache`: `jax.jit` for functions of a system, without the programs of systems that are no longer
used, `captures`: what functions read besides their arguments, and `traces`: functions that are
traced once or late. `caller`: warnings at the user's line, `precision`: that of floating-point
numbers. `jax_internals`: what is used of JAX beyond its documented API.
"""
