"""An arm of six axes, made of parts: viscous friction of its joints and masses from its angles.

scipy gets the same residuals, from `simulate` with given steps, and their forward derivatives.
"""

from functools import cached_property
from typing import Any

import jax.numpy as jnp
import numpy as np

import jaxmech as jm
from experiments.fit_speed.problem import Function, Synthetic
from jaxmech import parts as jp

AXES = ((0, 0, 1), (0, 1, 0), (0, 1, 0), (0, 0, 1), (0, 1, 0), (0, 0, 1))
TORQUES = (8.0, 20.0, 10.0, 2.0, 1.5, 0.3)  # amplitudes [N m]
DAMPING = (2.0, 3.0, 2.0, 0.6, 0.4, 0.2)  # [N m s/rad]
MASSES = (6.0, 4.0, 3.0, 2.0, 1.2, 0.8)  # [kg]
NOISE = 1e-3  # [rad]


def _joint(k: int, rate: float) -> Function:
    """The torque of a drive, less viscous friction."""

    def law(x: Any, rate_of_x: Any, t: Any, p: Any) -> Any:
        return TORQUES[k] * jnp.sin(rate * t) - p[f"d{k}"] * rate_of_x

    return law


class SixAxes(Synthetic):
    """The problem, with initial states that are known."""

    name = "arm of six axes"
    initial_states = "fixed"
    states = np.zeros(0)
    duration, samples = 2.0, 201
    per_save = 16  # as many as `jm.fit` chooses

    def __init__(self) -> None:
        self.truth = {f"d{k}": value for k, value in enumerate(DAMPING)}
        self.truth |= {f"m{k}": value for k, value in enumerate(MASSES)}
        del self.truth["m0"], self.truth["m1"]  # the first turns about its axis alone
        self.truth |= {"c4": 0.15, "c5": 0.1}  # distances of centres from the joints [m]
        self.known = {"m0": MASSES[0], "m1": MASSES[1]}
        names = [f"j{k}" for k in range(len(AXES))]
        links = [
            jp.spatial_body(
                f"b{k}", mass=f"m{k}", inertia=(0.02, 0.02, 0.005),
                center=(0, 0, f"c{k}" if k > 3 else 0.2),
            )
            for k in range(len(AXES))
        ]  # fmt: skip
        behind = [jp.ground, *links]
        joints = [
            jp.revolute(name, behind[k], (0, 0, 0.4 if k else 0), links[k], (0, 0, 0), axis=AXES[k])
            for k, name in enumerate(names)
        ]
        forces = [
            jp.joint_force(f"drive{k}", joint, _joint(k, 2.0 + 0.7 * k))
            for k, joint in enumerate(joints)
        ]
        params = {**self.known, **self.truth}
        mechanism = jp.Mechanism(links, joints, [jp.gravity(), *forces], params=params)
        self.system = mechanism.system
        starts = {name: jp.Start(0.3 + 0.1 * k) for k, name in enumerate(names)}
        self.q0, self.v0 = mechanism.guess(starts)

    def observe(self, q: Any, v: Any, t: Any, p: Any) -> Any:
        """The angles."""
        return q

    @cached_property
    def recordings(self) -> list[jm.Recording]:
        """One recording, made with finer steps than either side takes."""
        clean = np.asarray(self._angles(self.truth, 40))
        observed = clean + np.random.default_rng(0).normal(0.0, NOISE, clean.shape)
        weights = np.full(len(AXES), 1 / NOISE)
        return [jm.Recording(self.ts, observed, self.q0, self.v0, weights=weights)]

    def _residuals(self, observed: Any, x: Any) -> Any:
        angles = self._angles(dict(zip(self.truth, x, strict=True)), self.per_save)
        return ((angles - observed) / NOISE).ravel()

    def _angles(self, params: Any, per_save: int) -> Any:
        return jm.simulate(
            self.system, self.q0, self.v0, jnp.asarray(self.ts), {**self.known, **params},
            steps=jm.FixedSteps(per_save), throw=False,
        ).q  # fmt: skip
