"""Positions and velocities of the bodies of a mechanism as functions of its coordinates.

`base` is the interface of all coordinates. `tree` decides whether they are those of each body, or
`joint_coordinates`, for which `motions` describe the freedoms of
a joint, in terms of `relations` of two bodies. `spins` are velocities that replace the rates of
quaternions.
"""
