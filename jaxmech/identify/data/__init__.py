"""Measured motion: `recording` first, then `table`, `read`, `sheet` and `files`, and `segments`.

A `table` says where recordings are in `files`, `sheet` holds the cells of one, and `read` makes
recordings of them. `inputs` are the signals that drove a motion, `wraps` the periods of sensors.
`velocity_estimates` finds the rates at the beginning of a recording, and at its samples.
"""
