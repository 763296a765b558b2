"""Derivatives of a run: `run_rule` has the rules that all runs share.

With fixed steps `segment_rule` repeats the segments of a run, with adaptive ones `adaptive_rule`
goes through its recorded steps. Both replay events by `event_pieces`.
"""
