"""Velocities that are not rates of coordinates.

`quasi` has the matrix of them, and its checks; `rates` the same system in rates of coordinates.
"""
