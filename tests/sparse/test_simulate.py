"""`simulate` with `SparseElimination`: motions, derivatives, batches, statuses and messages."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxmech as jm
from jaxmech import parts as jp

LAW = jm.laws.SparseElimination()
TS = jnp.linspace(0.0, 0.4, 3)


def chain(n: int, **settings) -> jp.Mechanism:
    bars = [jp.planar_body(f"bar{k}", mass="m", inertia=0.1) for k in range(n)]
    before = [jp.ground, *bars]
    hinges = [
        jp.revolute(f"hinge{k}", before[k], (0.5 if k else 0.0, 0), bars[k], (-0.5, 0))
        for k in range(n)
    ]
    return jp.Mechanism(
        bars, hinges, [jp.gravity()], {"m": 1.5}, **({"coordinates": "bodies"} | settings)
    )


CHAIN = chain(3)
Q, V = CHAIN.guess({f"bar{k}": jp.Start((k + 0.5, 0.0)) for k in range(3)})


COIL = jp.spring("coil", jp.ground, (0, 0.3), CHAIN.bodies[2], (0, 0), stiffness="k", length=1.0)
SPRUNG = jp.Mechanism(
    CHAIN.bodies, CHAIN.joints, [*CHAIN.forces, COIL], {"m": 1.5, "k": 20.0}, coordinates="bodies"
)


def run(m, **settings):
    return jm.simulate(
        CHAIN.system,
        Q,
        V,
        TS,
        {"m": m},
        **({"steps": jm.FixedSteps(8), "formulation": LAW} | settings),
    )


def test_motions_and_their_audit_are_those_of_the_default() -> None:
    sol, expected = run(1.5), run(1.5, formulation=jm.laws.UdwadiaKalaba())
    np.testing.assert_allclose(sol.q, expected.q, atol=1e-12)
    np.testing.assert_allclose(sol.v, expected.v, atol=1e-12)
    np.testing.assert_allclose(sol.energy, expected.energy, atol=1e-10)
    np.testing.assert_allclose(sol.energy_drift, expected.energy_drift, rtol=1e-4)
    # The estimates are made at other steps.
    np.testing.assert_allclose(sol.integration_error, expected.integration_error, rtol=0.5)
    assert sol.rank == expected.rank == 6
    assert sol.evaluations == expected.evaluations
    assert sol.position_residual.max() < 1e-14
    assert sol.velocity_residual.max() < 1e-14


@pytest.mark.slow
def test_derivatives_in_a_batch_agree_with_differences() -> None:
    def end(k):
        params = {"k": k, "m": 1.5}
        return jm.simulate(
            SPRUNG.system, Q, V, TS, params, steps=jm.FixedSteps(8), formulation=LAW
        ).q

    ks = jnp.array([20.0, 30.0])
    values, slopes = jax.jit(
        jax.vmap(lambda k: (end(k)[-1, 5], jax.grad(lambda k: end(k)[-1, 5])(k)))
    )(ks)
    more, less = (jnp.stack([end(k + d)[-1, 5] for k in ks]) for d in (1e-3, -1e-3))
    np.testing.assert_allclose(slopes, (more - less) / 2e-3, rtol=1e-6)
    np.testing.assert_allclose(values, (more + less) / 2, rtol=1e-6)


def test_an_inconsistent_start_is_named() -> None:
    with pytest.raises(
        jm.errors.SimulationError, match=r"INCONSISTENT.*'hinge1' has a position.*0\.2"
    ):
        jm.simulate(
            CHAIN.system,
            Q.at[3:].add(0.2),
            V,
            TS,
            {"m": 1.5},
            steps=jm.FixedSteps(8),
            formulation=LAW,
        )


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"steps": jm.Adaptive(rtol=1e-6)}, r"`steps` must be FixedSteps\(\)"),
        ({"method": jm.RATTLE()}, "`method` must be an explicit Runge-Kutta"),
        ({"steps": jm.FixedSteps(8, max_step=0.1)}, "without `max_step` and `times`"),
        ({"projection": jm.Baumgarte(1.0, 1.0)}, r"must be Projection\(\) or None"),
        ({"projection": jm.Projection(solver=jm.laws.QR())}, r"solver LDL\(\)"),
        ({"events": jm.Event(lambda q, v, t, p: q[0])}, "`events` must be left out"),
    ],
)
def test_policies_that_are_not_supported_are_refused(settings, message) -> None:
    with pytest.raises(ValueError, match=message):
        run(1.5, **settings)


def test_systems_that_are_not_supported_are_refused() -> None:
    joints = chain(1, coordinates="joints")
    with pytest.raises(ValueError, match=r'Mechanism\(\.\.\., coordinates="bodies"\)'):
        jm.simulate(joints.system, [0.0], [0.0], TS, {"m": 1.5}, formulation=LAW)
    model = jm.models.pendulum()
    with pytest.raises(ValueError, match=r"not that of a jaxmech\.parts\.Mechanism"):
        jm.simulate(model.system, *model.initial(), TS, model.params, formulation=LAW)
    line = jm.Holonomic(lambda q, t, p: q[0], name="line")
    free = jp.Mechanism([jp.point_mass("bob", mass=1.0)], [line], coordinates="bodies")
    with pytest.raises(ValueError, match="'line', which is not a joint"):
        jm.simulate(free.system, [0.0, 1.0], [0.0, 0.0], TS, {}, formulation=LAW)
    with pytest.raises(ValueError, match=r"UdwadiaKalaba\(\)"):
        jm.acceleration(CHAIN.system, Q, V, 0.0, {"m": 1.5}, formulation=LAW)
