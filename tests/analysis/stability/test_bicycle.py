"""The benchmark bicycle of parts: M, C1, K0 and K2, and its eigenvalues over the speed.

Meijaard, Papadopoulos, Ruina and Schwab, Proc. R. Soc. A 463 (2007), with table 1 for the
parameters: M x'' + v C1 x' + (g K0 + v^2 K2) x = 0 for x = (lean, steer).
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.optimize

import jaxmech as jm
from tests.parts.mechanisms import whipple_bicycle

M = np.array([[80.81722, 2.31941332208709], [2.31941332208709, 0.29784188199686]])
C1 = np.array([[0, 33.86641391492494], [-0.85035641456978, 1.68540397397560]])
K0 = np.array([[-80.95, -2.59951685249872], [-2.59951685249872, -0.80329488458618]])
K2 = np.array([[0, 76.59734589573222], [0, 2.65431523794604]])
G = 9.81
MECHANISM, STARTS = whipple_bicycle()


def rolling(speed: float) -> tuple[Any, Any]:
    """Upright, straight ahead along x; z points down, so wheels turn about -y."""
    velocity = (speed, 0, 0)
    starts = {name: start._replace(velocity=velocity) for name, start in STARTS.items()}
    for wheel, radius in (("rear", 0.3), ("front", 0.35)):
        starts[wheel] = starts[wheel]._replace(spin=(0, -speed / radius, 0))
    return MECHANISM.guess(starts)


def lean(q: Any) -> Any:
    return MECHANISM.frame("frame", q).axes[2, 1]


def steer(q: Any) -> Any:
    """Where small, the turn of the fork in the frame about the axis of the head, z x tilt."""
    frame, fork = (MECHANISM.frame(name, q).axes for name in ("frame", "fork"))
    side = jnp.array([-np.cos(np.pi / 10), 0.0, np.sin(np.pi / 10)])
    return fork[:, 1] @ (frame @ side)


def outputs() -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, angle in (("lean", lean), ("steer", steer)):
        found[name] = lambda q, v, t, p, angle=angle: angle(q)
    for name, angle in (("lean rate", lean), ("steer rate", steer)):
        found[name] = lambda q, v, t, p, angle=angle: jax.jvp(angle, (q,), (v,))[1]
    found["ahead"] = lambda q, v, t, p: v[7]
    return found


OUTPUTS = outputs()


@pytest.mark.slow
def test_the_benchmark_bicycle() -> None:
    system, params = MECHANISM.system, MECHANISM.params
    q, v = rolling(4.0)
    found = jm.symmetries(system, q, v, 0.0, params)
    assert len(found.s) == 6  # time, two translations, the turn about the vertical, two wheels

    def linear(speed: float) -> jm.Linearization:
        return jm.linearize(system, *rolling(speed), params, symmetries=found, outputs=OUTPUTS)

    for speed in range(11):
        lin = linear(float(speed))
        assert (lin.positions, lin.velocities) == (7, 3)
        C, A = np.asarray(lin.space.C)[:4], np.asarray(lin.space.A)
        own = C @ A @ np.linalg.pinv(C)
        np.testing.assert_allclose(own @ C, C @ A, atol=1e-9)  # lean and steer depend on no other
        patterns = np.linalg.inv(np.asarray(lin.space.C)[2:, 7:])[:, :2]
        mass = patterns.T @ np.asarray(lin.reduced.M) @ patterns
        np.testing.assert_allclose(mass, M, rtol=1e-12)
        np.testing.assert_allclose(-M @ own[2:, 2:], speed * C1, atol=1e-9)
        np.testing.assert_allclose(-M @ own[2:, :2], G * K0 + speed**2 * K2, rtol=1e-11, atol=1e-9)
        matrix = np.block(
            [
                [np.zeros((2, 2)), np.eye(2)],
                [-np.linalg.solve(M, G * K0 + speed**2 * K2), -np.linalg.solve(M, speed * C1)],
            ]
        )
        modes = jm.modes(lin)
        assert modes.zero.sum() == 6
        values = np.asarray(modes.eigenvalues)[~np.asarray(modes.zero)]
        expected = np.linalg.eigvals(matrix)
        np.testing.assert_allclose(np.sort_complex(values), np.sort_complex(expected), atol=1e-8)

    def largest(speed: float, imaginary: bool) -> float:
        values = np.asarray(jm.modes(linear(speed)).eigenvalues)
        chosen = values[np.abs(values) > 1e-9]
        return float(chosen[(np.abs(chosen.imag) > 1e-3) == imaginary].real.max())

    weave = scipy.optimize.brentq(lambda s: largest(s, imaginary=True), 4.0, 4.6, xtol=1e-12)
    capsize = scipy.optimize.brentq(lambda s: largest(s, imaginary=False), 5.5, 6.5, xtol=1e-12)
    np.testing.assert_allclose([weave, capsize], [4.2923825364, 6.0242620154], atol=1e-9)
