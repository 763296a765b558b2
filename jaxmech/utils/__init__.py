"""General helpers.

`checks` of arguments and their shapes, names for types of `arrays`, `probing` of functions for
their structure and of values behind tracers, `trees` of parameters, `text` of messages and results,
`units` of coordinates, `digests`, `jit_cache`: `jax.jit` for functions of a system, without the
programs of systems that are no longer used, and `traces`: functions that are traced once or late.
`caller`: warnings at the user's line. `jax_internals`: what is used of JAX beyond its documented
API.
"""
