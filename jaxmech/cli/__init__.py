"""The command `jaxmech`: `main` holds the commands, `parser` their arguments, `help` their texts.

`resolve` finds the system that a command names, `catalogue` lists the ready models, and `fit/` is
the command `fit`.
"""
