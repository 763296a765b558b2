"""Helpers that belong to no subject: argument checks, probes of structure, pytrees, jit caches."""
