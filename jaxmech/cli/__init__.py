"""The command `jaxmech`: `main` parses and dispatches, `help` holds its texts.

`resolve` finds the system that a command names, `catalogue` lists the ready models, and `fit/` is
the command `fit`.
"""
