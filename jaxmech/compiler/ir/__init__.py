"""The intermediate form: a graph of scalars, its loops, and which nodes are live.

`graph` first, then `loops`; `liveness` finds what has to be computed, and `kernel` holds all of it.
"""
