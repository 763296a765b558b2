"""Finished runs: their `summary`, one member again by `replay`, a `comparison`, a `dataset`."""
