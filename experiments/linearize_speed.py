"""Linearizations per second of a double pendulum in Cartesian coordinates, n = 4.

Each member of the batch has its own masses, lengths and gravity, hangs at rest, and is linearized
with the stiffness of its multipliers and reduced to two positions and two velocities. The squared
frequencies must agree with those of the two angles, the roots of a quadratic equation, before
anything is timed.

Usage: python experiments/linearize_speed.py [members]
"""

import json
import sys
import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import jaxmech as jm
from jaxmech.config.environment import environment

ROUNDS = 20  # the best one counts
SYSTEM = jm.models.double_pendulum().system


def members(count: int) -> dict[str, Any]:
    draw = np.random.default_rng(0)
    names = ("m1", "m2", "l1", "l2", "g")
    middle = jm.models.double_pendulum().params
    return {k: jnp.asarray(middle[k] * draw.uniform(0.5, 1.5, count)) for k in names}


def linearized(p: dict[str, Any]) -> jm.analysis.Linearization:
    q = jnp.stack([0.0 * p["l1"], -p["l1"], 0.0 * p["l1"], -p["l1"] - p["l2"]])
    return jm.analysis.linearize(SYSTEM, q, jnp.zeros(4), p)


def squares(p: dict[str, Any]) -> np.ndarray:
    """The squares of both angular frequencies, the smaller first."""
    m1, m2, l1, l2, g = (np.asarray(p[k]) for k in ("m1", "m2", "l1", "l2", "g"))
    a, b, c = m1 * l1 * l2, (m1 + m2) * g * (l1 + l2), (m1 + m2) * g**2
    root = np.sqrt(b**2 - 4 * a * c)
    return np.stack([b - root, b + root], axis=1) / (2 * a)[:, None]


def main(count: int) -> None:
    params = members(count)
    run = jax.jit(jax.vmap(linearized))
    began = time.perf_counter()
    found = jax.block_until_ready(run(params))
    first = time.perf_counter() - began
    own = np.linalg.eigvals(np.linalg.solve(found.reduced.M, found.reduced.K))
    np.testing.assert_allclose(np.sort(own.real, axis=1), squares(params), rtol=1e-10)
    assert bool(np.all(np.asarray(found.regular)))
    times = []
    for _ in range(ROUNDS):
        began = time.perf_counter()
        jax.block_until_ready(run(params))
        times.append(time.perf_counter() - began)
    report = {
        "members": count,
        "first call [s]": round(first, 2),
        "linearizations per second": round(count / min(times)),
        "median per second": round(count / float(np.median(times))),
        "environment": environment(),
    }
    print(json.dumps(report, indent=2, default=str))


if __name__ == "__main__":
    jax.config.update("jax_enable_x64", True)
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 10_000)
