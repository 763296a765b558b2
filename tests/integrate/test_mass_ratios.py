"""A light body between heavy ones, whose two joints are nearly parallel in the mass metric.

Three bodies in a row on a line, coupled by rods, the light one pulled: all accelerate alike.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxmech as jm

PULL, END = 1000.0, 1e-7  # N, s
EPS = float(np.finfo(float).eps)


def lagrangian(x: Any, v: Any, t: Any, p: Any) -> Any:
    return 0.5 * (p["m"] * v * v).sum()


def rods(x: Any, t: Any, p: Any) -> Any:
    return x[1:] - x[:-1] - 1.0


TRAIN = jm.System(
    lagrangian,
    [jm.Holonomic(rods)],
    force=lambda x, v, t, p: jnp.array([0.0, PULL, 0.0], x.dtype),
    coordinates=("first", "link", "last"),
)


def run(solver: Any, ratios: Any) -> tuple[np.ndarray, np.ndarray]:
    """Statuses, and errors of the speeds, over the ratios of the masses."""
    masses = 100.0 * np.stack([np.ones_like(ratios), 1 / ratios, np.ones_like(ratios)], axis=1)
    q0, ts = jnp.arange(3.0), jnp.array([0.0, END])
    policies = {
        "formulation": jm.laws.UdwadiaKalaba(solver=solver),
        "projection": jm.Projection(solver=solver),
        "steps": jm.FixedSteps(4),
    }

    def one(m: Any) -> Any:
        sol = jm.simulate(TRAIN, q0, 0 * q0, ts, {"m": m}, throw=False, **policies)
        return sol.status, sol.v[-1]

    status, v = jax.vmap(one)(masses)
    exact = END * PULL / masses.sum(1)
    return np.asarray(status), np.abs(np.asarray(v) / exact[:, None] - 1).max(1)


@pytest.mark.slow
def test_a_dropped_joint_has_a_status() -> None:
    """The error is eps times the mass ratio up to the limit of `LDL`; beyond it the run ends."""
    reach = 3e10
    ratios = np.array([1.0, 1e2, 1e4, 0.5 * reach, 4 * reach, 30 * reach, 1e4 * reach])
    status, error = run(jm.laws.LDL(), ratios)
    inside = ratios < reach
    assert set(status[inside]) == {jm.Status.OK}
    assert (error[inside] < 2 * EPS * (ratios[inside] + 10)).all()
    assert set(status[~inside]) == {jm.Status.ILL_CONDITIONED}


@pytest.mark.slow
def test_qr_keeps_all_joints() -> None:
    status, error = run(jm.laws.QR(), 10.0 ** np.arange(10))
    assert set(status) == {jm.Status.OK}
    assert (error < 1e3 * EPS).all()
