"""Positions and velocities of the bodies of a mechanism as functions of its coordinates.

`base` is the interface of all coordinates. `body_coordinates` are those of each body, and
`joint_coordinates` those of the joints along a `tree`, for which `motions` describe the freedoms of
a joint, in terms of `relations` of two bodies. `spins` are velocities that replace the rates of
quaternions.
"""
