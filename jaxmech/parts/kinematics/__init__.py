"""Where the bodies of a mechanism are, and how they move, as functions of its coordinates.

`base` is what all coordinates have in common. `body_coordinates` are those of each body;
`joint_coordinates` those of the joints along a `tree`, for which `motions` say what a joint leaves
free, in terms of `relations` of two bodies. `spins` are velocities in place of their rates.
"""
