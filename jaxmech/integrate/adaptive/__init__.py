"""Adaptive steps with error control, for each trajectory of a batch independently.

`attempt` has one attempted step, its error and the size of the next one, and `rollout` a whole
trajectory. `run` holds its settings and state, `events` finds the events of a step, and `saves`
writes the states at save times.
"""
