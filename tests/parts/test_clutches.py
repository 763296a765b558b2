"""A clutch and a brake that events switch, against the balance of momentum."""

import jax.numpy as jnp
import numpy as np

import jaxmech as jm
from jaxmech import parts as jp

JA, JB, RATIO, TORQUE = 0.02, 0.3, 3.0, 0.5


def at_time(t_switch: float, name: str, transition: jm.Transition) -> jm.Event:
    return jm.Event(lambda q, v, t, p: t - t_switch, 1, transition=transition, name=name)


def test_a_clutch_engages_and_a_brake_is_released() -> None:
    """In space: the motor speeds up alone, then with its load; a weight falls when released."""
    o, z = (0, 0, 0), (0, 0, 1)
    motor, load = (
        jp.spatial_body(name, mass=1.0, inertia=(1.0, 1.0, inertia))
        for name, inertia in (("motor", JA), ("load", JB))
    )
    weight = jp.spatial_body("weight", mass=2.0, inertia=(1.0, 1.0, 1.0))
    shafts = [jp.revolute(f"{b.name} shaft", jp.ground, o, b, o, axis=z) for b in (motor, load)]
    guide = jp.prismatic("guide", jp.ground, o, weight, o, axis=z)
    joints = [
        *shafts, guide, jp.clutch("clutch", *shafts, ratio="ratio"), jp.clutch("brake", guide),
    ]  # fmt: skip
    forces = [jp.torque("drive", jp.ground, motor, TORQUE, axis=z), jp.gravity(9.81)]
    machine = jp.Mechanism([motor, load, weight], joints, forces, {"ratio": RATIO})
    events = [
        at_time(0.5, "engages", jm.Transition(on="clutch")),
        at_time(0.6, "is released", jm.Transition(off="brake")),
    ]
    ts = jnp.linspace(0.0, 1.0, 6)
    sol = jm.simulate(
        machine, jnp.zeros(3), jnp.zeros(3), ts, events=events, inactive="clutch",
        steps=jm.FixedSteps(per_save=2),
    )  # fmt: skip
    alone, whole = TORQUE * 0.5 / JA, RATIO**2 * JA + JB
    together = RATIO * (JA * alone + TORQUE * 0.5) / whole
    np.testing.assert_allclose(sol.v[2], [TORQUE * 0.4 / JA, 0.0, 0.0], atol=1e-12)
    np.testing.assert_allclose(sol.v[-1, 1], together, rtol=1e-9)
    np.testing.assert_allclose(sol.v[-1, 0], RATIO * together, rtol=1e-9)
    np.testing.assert_allclose(sol.q[-1, 2], -9.81 * 0.4**2 / 2, rtol=1e-9)
    seen = jm.observe(machine, sol)
    on_motor = JA * RATIO**2 * TORQUE / whole - TORQUE
    np.testing.assert_allclose(seen.multipliers["clutch"][:, 0], on_motor * (ts >= 0.5), atol=1e-12)
    np.testing.assert_allclose(seen.multipliers["brake"][:, 0], 2 * 9.81 * (ts < 0.6), atol=1e-9)
