"""Finished runs: their `summary`, one member again by `replay`, a `dataset`."""
