"""What `jaxmech audit` says about an MJCF or URDF file.

`inertias` finds masses that no body can have, `deviation` compares the soft loops of MuJoCo with
rigid ones over a second, `picture` draws that, and `report` puts everything together.
"""
