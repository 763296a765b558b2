"""Helpers without a subject of their own: argument checks, structure probes, trees, jit caches."""
