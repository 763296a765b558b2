"""The command `fit`: `study` is its configuration, `build` makes the problem from it.

`run` runs it in its folder, and writes the report.
"""
