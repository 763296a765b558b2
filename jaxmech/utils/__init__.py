"""General helpers.

`checks` of arguments, `probing` of functions for their structure, values behind `tracers`, `trees`
of parameters, `digests`, `field_docs` of policies, and `jit_cache`: `jax.jit` for functions of a
system, without the programs of systems that are no longer used.
"""
