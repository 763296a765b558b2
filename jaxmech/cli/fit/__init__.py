"""The command `fit`: `study` is its configuration, `build` makes the problem of it.

`run` runs it in its folder, and `report` writes what was found.
"""
