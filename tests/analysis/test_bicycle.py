"""The benchmark bicycle of parts: M, C1, K0 and K2, and its eigenvalues over the speed.

Meijaard, Papadopoulos, Ruina and Schwab, Proc. R. Soc. A 463 (2007), with table 1 for the
parameters: M x'' + v C1 x' + (g K0 + v^2 K2) x = 0 for x = (lean, steer).
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxmech as jm
from experiments.bicycle import TURN, rolling, stability_limits, whipple_bicycle

M = np.array([[80.81722, 2.31941332208709], [2.31941332208709, 0.29784188199686]])
C1 = np.array([[0, 33.86641391492494], [-0.85035641456978, 1.68540397397560]])
K0 = np.array([[-80.95, -2.59951685249872], [-2.59951685249872, -0.80329488458618]])
K2 = np.array([[0, 76.59734589573222], [0, 2.65431523794604]])
G = 9.81
# Table 2 (b, c): the weave eigenvalue, castering and capsize at 0, 1, ..., 10 m/s. At rest there
# are two real pairs in their place.
WEAVE = [
    (3.52696170990070, 0.8077402751993), (2.68234517512745, 1.68066296590675),
    (1.70675605663975, 2.31582447384325), (0.41325331521125, 3.07910818603206),
    (-0.77534188219585, 4.46486771378823), (-1.52644486584142, 5.87673060598709),
    (-2.13875644258362, 7.19525913329805), (-2.69348683581097, 8.46037971396931),
    (-3.21675402252485, 9.69377351531791), (-3.72016840437287, 10.90681139476287),
]  # fmt: skip
CASTERING = [
    -7.11008014637442, -8.67387984831735, -10.35101467245920, -12.15861426576450,
    -14.07838969279820, -16.08537123098030, -18.15788466125262, -20.27940894394569,
    -22.43788559040858, -24.62459635017404,
]  # fmt: skip
AT_REST = [5.53094371765393, 3.13164324790656, -3.13164324790656, -5.53094371765393]
CAPSIZE = [
    -3.13423125066578, -3.07158645641514, -2.63366137253667, -1.42944427361326,
    -0.32286642900409, -0.00406690076970, 0.10268170574766, 0.14327879765713,
    0.15790184030917, 0.16105338653172,
]  # fmt: skip
MECHANISM, _ = whipple_bicycle()


def lean(q: Any) -> Any:
    return MECHANISM.frame("frame", q).axes[2, 1]


def steer(q: Any) -> Any:
    """The steering angle for small angles: rotation of the fork about the head axis z x tilt."""
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

    def linear(speed: Any) -> jm.analysis.Linearization:
        return jm.analysis.linearize(
            system, *rolling(speed), params, W=speed * TURN, outputs=OUTPUTS
        )

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
        modes = jm.analysis.modes(lin)
        assert modes.zero.sum() == 6
        values = np.asarray(modes.eigenvalues)[~np.asarray(modes.zero)]
        published = AT_REST
        if speed:
            real, imaginary = WEAVE[speed - 1]
            published = [real + 1j * imaginary, real - 1j * imaginary]
            published += [CASTERING[speed - 1], CAPSIZE[speed - 1]]
        for value in published:
            assert np.abs(values - value).min() < 1e-8

    limits = stability_limits(lambda speed: jm.analysis.modes(linear(speed)))
    np.testing.assert_allclose(limits, [4.29238253634111, 6.02426201538837], atol=1e-9)
