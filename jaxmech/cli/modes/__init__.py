"""Studies of `jaxmech modes`: `study` is the configuration, `members` computes the eigenvalues.

`blocks` keeps them during a run, `summary` counts, `pictures` draws, and `run` writes the folder.
"""
