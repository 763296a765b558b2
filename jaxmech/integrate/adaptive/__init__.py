"""Adaptive steps by a tolerance, for each trajectory of a batch independently.

`method` has `Adaptive`, `attempt` one attempted step, `norm` its error, `control` the size of the
next step, `dense` states within a step, and `rollout` a whole trajectory, of which `run` is what
goes along, `saves` what a step saves, and `step_events` what happens in it. `record` keeps the
steps; `derivative` differentiates through these `moves`, with events or without, by `tangents` and
`cotangents`, and `replay` goes along them from another start.
"""

from jaxmech.integrate.adaptive.derivative import adaptive_trajectory as adaptive_trajectory
from jaxmech.integrate.adaptive.method import Adaptive as Adaptive
from jaxmech.integrate.adaptive.method import Tolerance as Tolerance
