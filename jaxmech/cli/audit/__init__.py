"""What `jaxmech audit` says about an MJCF or URDF file.

`deviation` compares the soft loops and limits of MuJoCo with rigid ones over a second and draws the
result, and `report` puts everything together, with masses that no body can have.
"""
