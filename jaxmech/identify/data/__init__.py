"""Measured motion: `recording` first, then `table` and `files` (CSV and others) and `segments`.

`inputs` are the signals that drove a motion. `velocity_estimates` finds the rates with which a
recording begins.
"""
