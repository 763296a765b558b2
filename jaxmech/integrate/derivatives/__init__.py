"""Derivatives of a run: its recorded steps are made again, and differentiated one by one.

`run_rule` makes a run one JAX operation. `replay` pushes tangents and pulls cotangents through its
moves. `fixed` and `adaptive` are the moves of the two kinds of runs, `record` stores the latter,
and `event_moves` are those to events.
"""
