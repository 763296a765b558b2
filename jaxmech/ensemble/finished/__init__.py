"""Queries of runs: `replay` one trajectory, a `dataset` for xarray, a `comparison` of two."""
