"""M and Q of a tree of bodies by recursions instead of derivatives of its Lagrangian.

Read upward: `inertia` has vectors, rotations and mass properties about a point,
`passage` a joint at a state, `members` the bodies of a tree; `recursion` has the recursions.
"""

from jaxmech.parts.dynamics.recursion import MassAndForce as MassAndForce
