"""What is asked of runs: `replay` one trajectory, a `dataset` for xarray, a `comparison` of two."""
