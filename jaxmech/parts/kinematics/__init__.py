"""Positions and velocities of the bodies of a mechanism as functions of its coordinates.

`base` is the interface of all coordinates, and the relation of two bodies that a joint gives.
`tree` decides whether they are those of each body, or `joint_coordinates`, and has the velocities
that replace the rates of quaternions.
"""
