"""Measured motion, in the order of reading: `inputs` drove it, a `recording` is its samples.

A `table` says where recordings are in files and reads them. `segments` cut them, and
`velocity_estimates` finds the rates at their beginnings and samples.
"""
