"""Adaptive steps with error control, for each trajectory of a batch independently.

`attempt` has one attempted step and its error, `control` the size of the next step, and `rollout` a
whole trajectory. `run` holds its settings and state, `saves` writes the states at save times, and
`step_events` handles the events of a step.
"""
