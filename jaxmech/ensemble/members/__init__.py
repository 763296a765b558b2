"""The members of a study, motions as functions of their draws: read `base` first.

`trajectory` is a motion, with its `observed` quantities and the `passages` of thresholds between
saved times; `array_names` says how they may be named.
"""
