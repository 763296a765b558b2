"""Growth of small changes: closed forms, two descriptions of one motion, chaos, what is refused."""

from typing import Any

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
import pytest

from jaxmech import Adaptive, DormandPrince5, FixedSteps, Holonomic, System, models
from jaxmech.analysis import sensitivities
from jaxmech.plot.derivatives import growth as draw
from jaxmech.sensitivity.growth import Growth, growth_warning, power, sensitivity_growth
from jaxmech.sensitivity.tangents import along, geometry, tangents
from tests.small import PENDULUM, QUATERNION, SKATE

TS = np.linspace(0.0, 1.5, 31)
W = 3.0
ALONG = Growth(np.linspace(5.0, 9.0, 5), 3.0 * np.arange(5), rate=1.0, eps=2.2e-16)


def linear(q: Any, v: Any, t: Any, p: Any) -> Any:
    """q'' = k q: an oscillator, a free mass or an unstable equilibrium."""
    return 0.5 * (v @ v + p["k"] * q @ q)


LINEAR = System(linear, coordinates=("x", "y"))
STEPS = FixedSteps(per_save=20)


def grown(k: float, size: float = 0.1, **options: Any) -> Growth:
    q0, v0 = [size, 0.0], [0.0, 2 * size]
    return sensitivity_growth(LINEAR, q0, v0, TS, {"k": k}, steps=STEPS, **options)


def test_an_oscillator_does_not_grow() -> None:
    """In the energy a rotation; the rate that balances q and v is the frequency."""
    found = grown(-4.0)
    np.testing.assert_allclose(found.factor, 1.0, atol=1e-9)
    assert found.rate == pytest.approx(2.0, rel=1e-9)
    assert found.horizon(1e-3, 1.0) == np.inf
    assert growth_warning(found) == ""


def test_an_unstable_point_grows_exponentially() -> None:
    """Phi = [[cosh, sinh / w], [w sinh, cosh]]; for given sizes s of q and r of v its own norm."""
    found = grown(W**2)
    np.testing.assert_allclose(found.logarithm, W * TS, atol=1e-7)
    assert found.rate == pytest.approx(W)
    assert found.exponent == pytest.approx(W)
    assert found.doubling_time == pytest.approx(np.log(2) / W)
    assert found.horizon(1e-3, 2e-2) == pytest.approx(np.log(20) / W)

    s, r = 0.5, 2.0
    given = grown(W**2, scale=([s, s], r))
    c, d = np.cosh(W * TS), np.sinh(W * TS)
    Phi = np.moveaxis(np.array([[c, r / s / W * d], [s / r * W * d, c]]), 2, 0)
    np.testing.assert_allclose(given.factor, np.linalg.norm(Phi, 2, axis=(1, 2)), rtol=1e-6)
    assert given.rate is None


@pytest.mark.slow
def test_steps_by_a_tolerance() -> None:
    """Chosen anew in each save interval, as exact as fixed ones."""
    method, steps = DormandPrince5(), Adaptive(rtol=1e-9, atol=1e-9)
    found = sensitivity_growth(
        LINEAR, [0.1, 0.0], [0.0, 0.2], TS, {"k": W**2}, method=method, steps=steps
    )
    np.testing.assert_allclose(found.logarithm, W * TS, atol=1e-7)
    assert found.rate == pytest.approx(W)


def test_the_longest_horizons_do_not_overflow() -> None:
    """A step of RK4 takes the growing part to 1 + x + x^2/2 + x^3/6 + x^4/24 of itself."""
    x = 600 * TS[1] / STEPS.per_save
    each = np.log(1 + x + x**2 / 2 + x**3 / 6 + x**4 / 24)
    found = grown(600.0**2, size=0.0)
    np.testing.assert_allclose(found.logarithm[-1], 600 * each, rtol=1e-9)
    assert found.factor[-1] == np.inf
    assert "e+385" in repr(found)


def test_a_free_mass_drifts() -> None:
    """Growth is linear in time, so the default rate is one over the duration."""
    assert grown(0.0).factor[-1] == pytest.approx((1 + np.sqrt(5)) / 2)


@pytest.mark.slow
def test_a_pendulum_in_x_and_y_is_that_in_its_angle() -> None:
    def swinging(q: Any, v: Any, t: Any, p: Any) -> Any:
        return p["m"] * p["l"] * (0.5 * p["l"] * v @ v + p["g"] * jnp.cos(q[0]))

    q, v, length = PENDULUM.q, PENDULUM.v, PENDULUM.params["l"]
    start = [np.arctan2(q[0], -q[1])], [np.linalg.norm(v) / length]
    angle = System(swinging, coordinates=("angle",))
    one = sensitivity_growth(angle, *start, TS, PENDULUM.params, steps=FixedSteps(20))
    two = sensitivity_growth(PENDULUM.system, q, v, TS, PENDULUM.params, steps=FixedSteps(20))
    np.testing.assert_allclose(two.logarithm, one.logarithm, atol=1e-7)
    assert two.rate == pytest.approx(one.rate)
    assert one.logarithm.max() > 0.09


def test_chaos() -> None:
    """The product of the intervals is the derivative of the whole; long motions have a warning."""
    model = models.double_pendulum_angles()
    q0, v0 = model.initial()
    ts = jnp.linspace(0.0, 20.0, 1001)
    found = sensitivity_growth(
        model.system, q0, v0, ts, model.params, scale=(1.0, 1.0), steps=FixedSteps(10)
    )

    def start(state: Any) -> tuple[Any, Any, Any]:
        return state[:2], state[2:], model.params

    state = jnp.concatenate([q0, v0])
    whole = sensitivities(model.system, start, state, ts[:201], steps=FixedSteps(10))
    sizes = np.linalg.norm(np.concatenate([whole.q, whole.v], axis=1), 2, axis=(1, 2))
    np.testing.assert_allclose(found.factor[:201], sizes, rtol=1e-9)
    assert 0.3 < found.exponent / np.sqrt(model.params["g"]) < 1.5  # in units of sqrt(g / l)
    text = growth_warning(found)
    assert "1 of the motion has grown as large as the motion" in text
    assert "Shooting(length=" in text


@pytest.mark.slow
def test_nonholonomic_and_singular_mass() -> None:
    """A skate keeps 3 + 2 free directions, a quaternion 3 + 3."""
    for case, directions in ((SKATE, 5), (QUATERNION, 6)):
        q, v = jnp.asarray(case.q)[None], jnp.asarray(case.v)[None]
        found = geometry(case.system, q, v, jnp.zeros(1), case.params)
        basis = tangents(found, 0, 1e-8)
        assert basis.q.shape[1] == directions
        np.testing.assert_allclose(
            basis.coordinates(basis.q, basis.v), np.eye(directions), atol=1e-12
        )
        levels = jax.jvp(
            lambda q, v, case=case: (
                case.system.position_level(q, jnp.zeros(()), case.params),
                case.system.velocity_level(q, v, jnp.zeros(()), case.params),
            ),
            (q[0], v[0]),
            tuple(jnp.asarray(x) for x in along(basis)),
        )[1]
        for level in levels:
            np.testing.assert_allclose(level, 0.0, atol=1e-12)


@pytest.mark.parametrize("scale", [(1.0, 0.0), (np.ones(3), 1.0), (1.0, np.nan), 1.0])
def test_a_wrong_scale_is_refused(scale: Any) -> None:
    with pytest.raises(ValueError, match=r"`scale` must be a pair of positive .* shape \(2,\)"):
        grown(1.0, scale=scale)


def test_a_motion_without_freedom_is_refused() -> None:
    path = Holonomic(lambda q, t, p: q - t, "path")
    prescribed = System(lambda q, v, t, p: 0.5 * v @ v, [path], coordinates=("x",))
    with pytest.raises(ValueError, match="must have a degree of freedom"):
        sensitivity_growth(prescribed, [0.0], [1.0], TS[:3], steps=FixedSteps(1))


def test_a_motion_without_derivative_is_refused() -> None:
    rubbed = System(
        linear,
        force=lambda q, v, t, p: -v * jnp.linalg.norm(v),
        coordinates=("x", "y"),
    )
    with pytest.raises(ValueError, match=r"no derivative in the save interval from t = 0 s"):
        sensitivity_growth(rubbed, [1.0, 1.0], [0.0, 0.0], TS[:3], {"k": -4.0}, steps=FixedSteps(1))


def test_the_two_reasons_of_the_warning() -> None:
    assert ALONG.exponent == 3.0
    assert (
        "the first 2.3 of its 4 s: then a change of the initial state by 0.001"
        in growth_warning(ALONG)
    )
    assert growth_warning(ALONG, change=1e-6) == ""
    text = growth_warning(ALONG, change=1e-9, accuracy=1e-12)
    assert "round-off has grown to 1e-12 of the motion" in text
    assert "Shooting(length=0.77)" in text  # tenfold: log(10) / 3


def test_horizon_takes_the_first_crossing() -> None:
    bumpy = Growth(np.arange(4.0), np.array([0.0, 2.0, 1.0, 3.0]), rate=None, eps=2.2e-16)
    assert bumpy.horizon(1.0, np.exp(1.0)) == pytest.approx(0.5)
    assert bumpy.horizon(1.0, np.exp(2.5)) == pytest.approx(2.75)
    assert bumpy.horizon(1.0, 0.5) == 0.0
    for sd, tolerance in ((0.0, 1.0), (1.0, -1.0), (np.nan, 1.0)):
        with pytest.raises(ValueError, match="must be positive"):
            bumpy.horizon(sd, tolerance)


def test_prints_and_draws() -> None:
    text = repr(ALONG)
    assert "at the end  1.63e+05, at most 1.63e+05" in text
    assert "doubles every 0.231 s" in text
    assert "leaves about 10 digits" in text
    assert power(-np.log(1e7)) == "1.00e-07"
    ax = draw(ALONG)
    np.testing.assert_allclose(ax.lines[0].get_ydata()[-1], 12 / np.log(10))
    assert draw(ALONG, ax=ax) is ax
    plt.close("all")
