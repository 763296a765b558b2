"""M and Q of a tree of bodies by recursions instead of derivatives of its Lagrangian.

`members` are the bodies of a tree, with the passages over their joints at a state; `recursion` has
the recursions.
"""
