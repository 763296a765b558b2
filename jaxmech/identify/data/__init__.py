"""Measured motion: `recording` first, then `table` and `files` (CSV and others) and `segments`.

`velocity_estimates` finds the rates with which a recording begins.
"""
