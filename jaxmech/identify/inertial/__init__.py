"""Which combinations of masses, static moments and inertias the motion of a mechanism depends on.

`standard` has the inertial parameters of its bodies, `motions` draws states, and `regressor` is
what the parameters contribute to the forces there. `base_parameters` groups them.
`possible` tells numbers that no body has.
"""
