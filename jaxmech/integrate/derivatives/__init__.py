"""Derivatives of a run: `policy` has the modes, `run_rule` the rules that all runs share.

With fixed steps `segment_rule` repeats the segments of a run, those with events in
`event_segments`. With adaptive steps, `record` stores them, and `adaptive_rule` goes through the
steps of a `step_replay`. Both replay events by `event_pieces`.
"""
