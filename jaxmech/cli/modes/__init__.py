"""Studies of `jaxmech modes`: `study` is the configuration, `members` computes the eigenvalues.

`summary` counts, `pictures` draws, and `run` writes the folder.
"""
