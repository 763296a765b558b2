"""The members of a study, motions or spectra, as functions of their draws: read `base` first.

`trajectory` is a motion, with its `observed` quantities and the `passages` of thresholds between
saved times; `array_names` says how they may be named. `spectrum` holds the eigenvalues of an
equilibrium or a steady motion.
"""
