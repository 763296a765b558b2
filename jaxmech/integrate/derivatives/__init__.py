"""Derivatives of a run: `run_rule` has what all runs share, and the pieces between their events.

With fixed steps `segment_rule` repeats the segments of a run, with adaptive ones `adaptive_rule`
goes through its recorded steps.
"""
