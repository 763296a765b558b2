"""Controllers with a sample time."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.integrate import solve_ivp

from jaxmech import (
    Adaptive,
    Controller,
    Event,
    FixedSteps,
    Signal,
    System,
    Transition,
    controlled,
    observe,
    simulate,
)
from jaxmech.integrate import ForwardMode

GAINS = {"m": 1.0, "K": 400.0, "B": 2.5}
HELD = FixedSteps(1)
TS = np.linspace(0.0, 1.0, 11)


def push(measured: Any, memory: Any, t: Any, p: Any) -> Any:
    q, v = measured
    return -p["K"] * q[0] - p["B"] * v[0], memory


def lagrangian(q: Any, v: Any, t: Any, p: Any) -> Any:
    return 0.5 * p["m"] * v[0] ** 2


CART = System(lagrangian, force=lambda q, v, t, p: p["push"][None], coordinates=("x",))
LOOP = controlled(CART, Controller(push, 0.01))


def torque(measured: Any, memory: Any, t: Any, p: Any) -> Any:
    q, v = measured
    return -40.0 * q[0] - 10.0 * v[0], memory


PENDULUM = System(
    lambda q, v, t, p: 0.5 * v[0] ** 2 - 9.81 * jnp.cos(q[0]),
    force=lambda q, v, t, p: p["torque"][None],
    coordinates=("theta",),
)
TURN = Event(lambda q, v, t, p: t - 0.55, name="turn")
LATE = controlled(PENDULUM, Controller(torque, 0.02, delay="lag", longest_delay=0.06))


def pendulum_by_scipy(period: float, delay: float, end: float = 0.5) -> np.ndarray:
    """The inverted pendulum, from one change of its torque to the next."""
    samples = np.arange(np.ceil(end / period - 1e-9)) * period
    y, held, last, waiting = np.array([0.3, 0.0]), 0.0, 0.0, []
    for t, kind in sorted([(t, 0) for t in samples] + [(t + delay, 1) for t in samples]):
        if t > end:
            break
        if t > last:
            force = held
            y = solve_ivp(
                lambda t, y, u=force: [y[1], 9.81 * np.sin(y[0]) + u], (last, t), y, rtol=1e-12,
                atol=1e-13, method="DOP853",
            ).y[:, -1]  # fmt: skip
            last = t
        if kind == 0:
            waiting.append(-40.0 * y[0] - 10.0 * y[1])
        else:
            held = waiting.pop(0)
    rest = (last, end)
    last_part = solve_ivp(
        lambda t, y: [y[1], 9.81 * np.sin(y[0]) + held], rest, y, rtol=1e-12, atol=1e-13,
        method="DOP853",
    )  # fmt: skip
    return np.asarray(last_part.y[:, -1])


@pytest.mark.parametrize("steps", [HELD, Adaptive(rtol=1e-10)])
def test_a_held_feedback_has_the_closed_form(steps: Any) -> None:
    """Published: drake#12786; from sample to sample a linear map, |z|^2 = 1 + K T^2/2m - B T/m."""
    sol = simulate(LOOP, [0.1], [0.0], TS, GAINS, steps=steps)
    np.testing.assert_allclose(sol["x"][-1], 0.028568990968, atol=1e-12)
    np.testing.assert_allclose(sol["x.rate"][-1], -1.464352584597, atol=1e-11)
    held = -400.0 * sol["x"] - 2.5 * sol["x.rate"]
    np.testing.assert_allclose(sol["push"][:-1], held[:-1], rtol=1e-12)
    assert sol["push.sample"].tolist() == [*range(0, 100, 10), 99]
    assert [*sol.names] == ["x", "x.rate", "push", "push.sample"]
    reactions = observe(LOOP, sol, GAINS)
    np.testing.assert_allclose(reactions.qdd[:, 0], sol["push"])


def test_samples_are_exact_however_long_the_steps_and_wherever_the_saves() -> None:
    end = simulate(LOOP, [0.1], [0.0], TS, GAINS, steps=HELD).q[-1, 0]
    for ts in (np.linspace(0.0, 1.0, 101), np.array([0.0, 0.1234, 0.5, 1.0]), np.array([0.0, 1.0])):
        sol = simulate(LOOP, [0.1], [0.0], ts, GAINS, steps=HELD)
        np.testing.assert_allclose(sol.q[-1, 0], end, rtol=1e-12)
        assert sol.accepted <= 102


@pytest.mark.slow
def test_the_loop_is_stable_for_damping_between_its_published_limits() -> None:
    """Colgate and Schenkel 1997: K T / 2 < B < 2 m / T, here 2 < B < 200."""

    def growth(B: Any) -> Any:
        sol = simulate(LOOP, [0.1], [0.0], np.linspace(0.0, 6.0, 3), GAINS | {"B": B}, steps=HELD)
        energy = 400.0 * sol.q[1:, 0] ** 2 + sol.v[1:, 0] ** 2
        return energy[1] / energy[0]

    ratios = jax.vmap(growth)(jnp.array([1.5, 1.95, 2.05, 60.0, 190.0, 201.0]))
    assert (np.asarray(ratios) < 1).tolist() == [False, False, True, True, True, False]


@pytest.mark.parametrize(
    ("delay", "theta", "rate"),
    [(0.0, 0.001673664583, -0.016350435048), (0.02, 0.001789548446, -0.013377066233)],
)
def test_an_inverted_pendulum_with_a_late_torque(delay: float, theta: float, rate: float) -> None:
    loop = controlled(PENDULUM, Controller(torque, 0.02, delay=delay))
    sol = simulate(loop, [0.3], [0.0], [0.0, 0.5, 1.0], steps=FixedSteps(4))
    np.testing.assert_allclose([sol["theta"][-1], sol["theta.rate"][-1]], [theta, rate], atol=1e-10)
    assert sol.accepted <= 204
    by_name = simulate(LATE, [0.3], [0.0], [0.0, 0.5, 1.0], {"lag": delay}, steps=FixedSteps(4))
    np.testing.assert_allclose(by_name["theta"], sol["theta"], rtol=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("delay", "steps"), [(0.006, FixedSteps(4)), (0.054, Adaptive(rtol=1e-11))]
)
def test_any_delay_and_its_gradient(delay: float, steps: Any) -> None:
    def theta(delay: Any) -> Any:
        return simulate(LATE, [0.3], [0.0], [0.0, 0.5], {"lag": delay}, steps=steps).q[-1, 0]

    value, slope = jax.value_and_grad(theta)(delay)
    e = 1e-5
    np.testing.assert_allclose(value, pendulum_by_scipy(0.02, delay)[0], atol=1e-9)
    both = [pendulum_by_scipy(0.02, delay + x)[0] for x in (-e, e)]
    np.testing.assert_allclose(slope, (both[1] - both[0]) / (2 * e), rtol=1e-4)


@pytest.mark.slow
def test_the_gradient_of_a_delay_of_whole_samples_is_that_of_a_longer_one() -> None:
    def theta(delay: Any) -> Any:
        params = {"lag": delay}
        return simulate(LATE, [0.3], [0.0], [0.0, 0.5], params, steps=FixedSteps(4)).q[-1, 0]

    slopes = [jax.grad(theta)(x) for x in (0.0, 1e-7, 0.02, 0.02 + 1e-7)]
    np.testing.assert_allclose(slopes[::2], slopes[1::2], rtol=1e-4)


@pytest.mark.slow
def test_batches_and_gradients_of_gains() -> None:
    def end(B: Any, **ways: Any) -> Any:
        ways = {"steps": HELD} | ways
        return simulate(LOOP, [0.1], [0.0], TS, GAINS | {"B": B}, **ways).q[-1, 0]

    Bs = jnp.array([1.5, 2.5, 3.0])
    each = [float(end(B)) for B in Bs]
    np.testing.assert_array_equal(jax.vmap(end)(Bs), each)
    np.testing.assert_allclose(jax.jit(jax.vmap(end))(Bs), each, rtol=1e-12)
    differences = [(float(end(B + 1e-5)) - float(end(B - 1e-5))) / 2e-5 for B in Bs]
    slopes = jax.vmap(jax.grad(end))(Bs)
    np.testing.assert_allclose(slopes, differences, rtol=1e-7)
    adaptive = jax.grad(lambda B: end(B, steps=Adaptive(rtol=1e-9)))(2.5)
    forward = jax.jvp(lambda B: end(B, derivative=ForwardMode()), (2.5,), (1.0,))[1]
    np.testing.assert_allclose([adaptive, forward], slopes[1], rtol=1e-8)


def sampled_by_hand(periods: tuple[float, float], end: float) -> tuple[float, float]:
    """A slow loop that sets the reference of a fast one, in steps of a hundredth of a second."""
    x = v = total = target = u = 0.0
    step = 0.01
    for k in range(round(end / step)):
        if k % round(periods[0] / step) == 0:
            total += 0.1 * (1.0 - x)
            target = 2.0 * (1.0 - x) + total
        if k % round(periods[1] / step) == 0:
            u = 0.125 * np.round(4.0 * (target - v) / 0.125)
        x, v = x + v * step + u * step**2 / 2, v + u * step
    return x, v


@pytest.mark.parametrize(
    "ways",
    [
        {},
        pytest.param({"steps": Adaptive(rtol=1e-9)}, marks=pytest.mark.slow),
        pytest.param({"events": [TURN]}, marks=pytest.mark.slow),
    ],
)
def test_an_output_given_by_the_memory_has_a_derivative(ways: Any) -> None:
    """Without a sample in the run, the cart moves by half the output in the first second."""
    idle = controlled(CART, Controller(push, 10.0, phase=5.0))
    sample = simulate(idle, [0.1], [0.0], TS, GAINS, steps=HELD).memory[0, 1]

    def end(output: Any) -> Any:
        memory = jnp.stack([output, sample])
        sol = simulate(idle, [0.1], [0.0], TS, GAINS, memory=memory, **{"steps": HELD} | ways)
        return sol.q[-1, 0] + sol["push"][-1]

    np.testing.assert_allclose(jax.value_and_grad(end)(0.6), (1.0, 1.5), rtol=1e-9)


@pytest.mark.slow
def test_two_loops_a_memory_and_a_rounded_output() -> None:
    def target(measured: Any, memory: Any, t: Any, p: Any) -> Any:
        memory = {"total": memory["total"] + 0.1 * (1.0 - measured), "count": memory["count"] + 1}
        return 2.0 * (1.0 - measured) + memory["total"], memory

    def drive(measured: Any, memory: Any, t: Any, p: Any) -> Any:
        output = jnp.stack([4.0 * (p["target"] - measured[1][0]), t])
        return 0.125 * jnp.round(output / 0.125), memory

    slow = Controller(target, 0.05, {"total": 0.0, "count": 0}, measure=lambda q, v, t, p: q[0])
    fast = Controller(drive, 0.02, output=[0.0, 0.0])
    cart = System(lambda q, v, t, p: v[0] ** 2 / 2, force=lambda q, v, t, p: p["drive"][:1],
                  coordinates=("x",))  # fmt: skip
    loops = controlled(cart, [slow, fast])
    sol = simulate(loops, [0.0], [0.0], [0.0, 0.5, 2.0], steps=HELD)
    expected = sampled_by_hand((0.05, 0.02), 2.0)
    np.testing.assert_allclose([sol["x"][-1], sol["x.rate"][-1]], expected, rtol=1e-10)
    assert sol["target.memory.count"].tolist() == [1, 11, 40]
    assert sol["drive[1]"].tolist() == [0.0, 0.5, 2.0]  # 1.98, rounded


@pytest.mark.slow
def test_a_run_is_continued_and_evaluated_between_its_saves() -> None:
    loop = controlled(PENDULUM, Controller(torque, 0.02, delay=0.03))
    ts = np.linspace(0.0, 0.5, 6)
    whole = simulate(loop, [0.3], [0.0], ts, steps=HELD)
    for k in (2, 3):
        first = simulate(loop, [0.3], [0.0], ts[: k + 1], steps=HELD)
        kept = first.memory[-1]
        rest = simulate(loop, first.q[-1], first.v[-1], ts[k:], steps=HELD, memory=kept)
        np.testing.assert_allclose(rest.v[-1], whole.v[-1], rtol=1e-12)
        kept = whole.memory[k]
        again = simulate(loop, whole.q[k], whole.v[k], ts[k:], steps=HELD, memory=kept)
        np.testing.assert_allclose(again.v[-1], whole.v[-1], rtol=1e-12)
    times = np.linspace(0.0, 0.5, 26)
    fine = simulate(loop, [0.3], [0.0], times, steps=HELD)
    states = whole.at(times)
    np.testing.assert_allclose(states.q, fine.q, atol=1e-12)
    np.testing.assert_allclose(states.v, fine.v, atol=1e-10)
    np.testing.assert_allclose(states["torque"], fine["torque"], atol=1e-10)


@pytest.mark.slow
def test_events_read_outputs_and_leave_them_alone() -> None:
    wall = Event(
        lambda q, v, t, p: q[0] + 0.05, direction=-1, name="wall",
        transition=Transition(fn=lambda q, v, t, p: (q, -0.5 * v)),
    )  # fmt: skip
    stop = Event(lambda q, v, t, p: p["push"], terminal=True, name="stop")
    bounced = [
        simulate(LOOP, [0.1], [0.0], TS, GAINS, steps=steps, events=[wall])
        for steps in (HELD, Adaptive(rtol=1e-10))
    ]
    for sol in bounced:
        record = sol.events["wall"]
        np.testing.assert_allclose(record.v_after[0], -0.5 * record.v[0])
    np.testing.assert_allclose(bounced[0].v, bounced[1].v, atol=1e-8)
    times = np.linspace(0.0, 1.0, 41)
    fine = simulate(LOOP, [0.1], [0.0], times, GAINS, steps=HELD, events=[wall])
    np.testing.assert_allclose(bounced[0].at(times)["push"], fine["push"], atol=1e-8)
    sol = simulate(LOOP, [0.1], [0.0], TS, GAINS, steps=HELD, events=[stop])
    np.testing.assert_allclose(sol.events["stop"].t, [0.08], atol=1e-12)
    assert sol["push.sample"].tolist() == [0] + [8] * 10


@pytest.mark.slow
def test_inputs_and_long_runs_in_single_precision() -> None:
    def count(measured: Any, memory: Any, t: Any, p: Any) -> Any:
        return 0.0, memory + 1

    bump = Signal(np.array([0.0, 0.0305, 1.0]), np.array([0.0, 1.0, 0.0]))
    free = System(lambda q, v, t, p: v[0] ** 2 / 2, coordinates=("x",),
                  force=lambda q, v, t, p: p["bump"](t)[None])  # fmt: skip
    loop = controlled(free, Controller(count, 0.01, memory=0, phase=0.0025))
    start = np.zeros(1, np.float32)
    for steps in (HELD, Adaptive(rtol=1e-4)):
        sol = simulate(loop, start, start, np.array([0.0, 1.0, 20.0], np.float32),
                       {"bump": bump}, steps=steps)  # fmt: skip
        assert sol["count.memory"].tolist() == [0, 100, 2000]
        assert sol.q.dtype == np.float32


def test_traced_times_need_a_longest_run() -> None:
    def end(loop: System, ts: Any) -> Any:
        return simulate(loop, [0.1], [0.0], ts, GAINS, steps=HELD).q[-1, 0]

    with pytest.raises(ValueError, match="`longest_run`"):
        jax.jit(lambda ts: end(LOOP, ts))(TS)
    bounded = controlled(CART, Controller(push, 0.01), longest_run=1.5)
    value = jax.jit(lambda ts: end(bounded, ts))(TS)
    np.testing.assert_allclose(value, end(LOOP, TS), rtol=1e-12)
