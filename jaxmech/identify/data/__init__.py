"""Measured motion: `recording` first, then `table`, `read`, `sheet` and `files`, and `segments`.

A `table` says where recordings are in `files`, `sheet` holds the cells of one, and `read` makes
recordings of them. `inputs` are the signals that drove a motion, `wraps` the periods of sensors.
`velocity_estimates` finds the rates with which a recording begins, `sampled_states` those at its
samples.
"""
