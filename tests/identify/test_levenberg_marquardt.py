"""The state of optimistix' solver, whose fields a fit reads."""

import jax
import jax.numpy as jnp
import numpy as np
import optimistix as optx


def rosenbrock(y, args):
    return jnp.stack([10 * (y[1] - y[0] ** 2), 1 - y[0]]), None


def test_the_fields_of_the_solver_mean_what_a_fit_takes_them_for() -> None:
    solver = optx.LevenbergMarquardt(rtol=1e-8, atol=1e-8)
    y = jnp.array([-1.2, 1.0])
    struct = jax.ShapeDtypeStruct((2,), y.dtype)
    state = solver.init(rosenbrock, y, None, {}, struct, None, frozenset())
    assert np.array_equal(state.y_eval, y)  # the first step only evaluates the start
    rejections = 0
    for _ in range(100):
        trial, accepted = state.y_eval, state.num_accepted_steps
        before, (y, state, _) = y, solver.step(rosenbrock, y, None, {}, state, frozenset())
        is_accepted = bool(state.num_accepted_steps == accepted + 1)
        rejections += not is_accepted
        assert np.array_equal(y, trial if is_accepted else before)
        assert np.array_equal(state.f_info.residual, rosenbrock(y, None)[0])
        if bool(solver.terminate(rosenbrock, y, None, {}, state, frozenset())[0]):
            break
    assert 5 < int(state.num_steps) < 60
    assert rejections > 0
    assert np.allclose(y, 1.0, rtol=1e-8)
