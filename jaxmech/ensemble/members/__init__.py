"""The members of a study, motions or spectra, as functions of their draws: read `base` first.

`trajectory` is a motion, with its `observed` quantities and the `passages` of thresholds between
saved times; `spectrum` holds the eigenvalues of an equilibrium or a steady motion.
"""
