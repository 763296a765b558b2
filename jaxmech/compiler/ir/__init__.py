"""The intermediate representation: a graph of scalars, the loops in it, and its live nodes.

Read `graph` first, then `loops`; `liveness` finds the nodes that have to be computed, and `pieces`
splits a long graph into pieces, of which many are equal.
"""
