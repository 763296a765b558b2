"""Best motions of trees by jaxmech, and by CasADi with the same Ipopt: costs and times.

    python -m experiments.optimal_peers [--json FILE]

Both solve the same program: multiple shooting with four RK4 steps in each interval, controls that
are linear in time, and the effort by Boole's rule, from the same guess with the same tolerance.
CasADi has the equations of motion written out by hand, as expressions of scalars, and second
derivatives; jaxmech has a Lagrangian, and differences of first derivatives. Costs must agree to
1e-6 before times are printed. Times are CPU seconds: `first` is with all that is compiled (or
built, for CasADi; that of LLVM, in a process of its own, is not counted), `again` the shortest of
three more calls.
"""

import argparse
import os
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import casadi as ca
import jax
import jax.numpy as jnp
import numpy as np

import jaxmech as jm
from experiments.measuring import table_head, table_row, timed, write
from jaxmech.control import optimize

G = 9.81
HEAD = (
    "problem", "cost", "jaxmech first [s]", "jaxmech again [s]", "iterations", "CasADi first [s]",
    "CasADi again [s]", "iterations",
)  # fmt: skip
BOOLE = np.array([7.0, 32.0, 12.0, 32.0, 7.0]) / 90
STEPS = 4  # of an interval


class Case(NamedTuple):
    """A motion from rest at zero to rest at an aim, with the least effort of one force."""

    system: jm.System
    rates: Callable[[Any, Any, Any], Any]  # accelerations from q, v, u in expressions of CasADi
    aim: list[float]
    seconds: float
    intervals: int


def single(gravity: float, aim: float, seconds: float, intervals: int) -> Case:
    """A pendulum of 1 m and 1 kg with a torque; without gravity as good as a mass with a force."""
    system = jm.System(
        lambda q, v, t, p: v @ v / 2 + gravity * jnp.cos(q[0]),
        force=lambda q, v, t, p: p["u"](t)[None],
        coordinates=("x",),
    )
    return Case(system, lambda q, v, u: u - gravity * ca.sin(q), [aim], seconds, intervals)


def with_load(aim: Any, seconds: float, intervals: int) -> Case:
    """A cart of 2 kg with a load of 1 kg on a rod of 1 m: a crane, or to be swung up."""

    def lagrangian(q: Any, v: Any, t: Any, p: Any) -> Any:
        load = v[0] ** 2 + 2 * jnp.cos(q[1]) * v[0] * v[1] + v[1] ** 2
        return v[0] ** 2 + load / 2 + G * jnp.cos(q[1])

    def rates(q: Any, v: Any, u: Any) -> Any:
        s, c = ca.sin(q[1]), ca.cos(q[1])
        push = u + s * v[1] ** 2
        x = (push + G * s * c) / (3 - c**2)
        return ca.vertcat(x, -G * s - c * x)

    system = jm.System(
        lagrangian, force=lambda q, v, t, p: jnp.stack([p["u"](t), 0.0]), coordinates=("x", "angle")
    )
    return Case(system, rates, aim, seconds, intervals)


CASES = {
    "double integrator": partial(single, 0.0, 1.0, 2.0, 10),
    "pendulum, swung up": partial(single, G, np.pi, 2.0, 40),
    "crane": partial(with_load, [2.0, 0.0], 3.0, 30),
    "cart and pole, swung up": partial(with_load, [1.0, np.pi], 2.5, 50),
}


def guess_of(case: Case) -> tuple[np.ndarray, np.ndarray]:
    """States at the nodes on the straight way, at rest."""
    q = np.linspace(np.zeros(len(case.aim)), case.aim, case.intervals + 1)
    return q, np.zeros_like(q)


def by_jaxmech(case: Case) -> Callable[[], tuple[float, int]]:
    """The search, as a function that gives cost and iterations."""
    ts, aim = np.linspace(0.0, case.seconds, case.intervals + 1), jnp.asarray(case.aim)
    params = {"u": jm.Signal([0.0, case.seconds], [0.0, 0.0])}
    guess, rest = guess_of(case), np.zeros(len(case.aim))

    def cost(q: Any, v: Any, t: Any, p: Any) -> Any:
        return p["u"](t) ** 2

    def end(q: Any, v: Any, t: Any, p: Any) -> Any:
        return jnp.concatenate([q - aim, v])

    def run() -> tuple[float, int]:
        best = optimize(
            case.system, rest, rest, ts, params, controls=["u"], cost=cost, end=end,
            guess=guess, per_save=STEPS,
        )  # fmt: skip
        assert best.succeeded
        return best.cost, best.iterations

    return run


def by_casadi(case: Case) -> Callable[[], tuple[float, int]]:
    """The same program in CasADi."""
    n, h = len(case.aim), case.seconds / case.intervals / STEPS
    x, ends = ca.SX.sym("x", 2 * n), ca.SX.sym("u", 2)

    def rates(x: Any, at: float) -> Any:
        u = ends[0] + (ends[1] - ends[0]) * at / STEPS
        return ca.vertcat(x[n:], case.rates(x[:n], x[n:], u))

    state, effort = x, BOOLE[0] * ends[0] ** 2
    for k in range(STEPS):
        k1 = rates(state, k)
        k2 = rates(state + h / 2 * k1, k + 0.5)
        k3 = rates(state + h / 2 * k2, k + 0.5)
        k4 = rates(state + h * k3, k + 1)
        state = state + h / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
        u = ends[0] + (ends[1] - ends[0]) * (k + 1) / STEPS
        effort += BOOLE[k + 1] * u**2
    interval = ca.Function("interval", [x, ends], [state, STEPS * h * effort])
    X, U = ca.SX.sym("X", 2 * n, case.intervals + 1), ca.SX.sym("U", case.intervals + 1)
    cost, conditions = 0, [X[:, 0]]
    for k in range(case.intervals):
        moved, effort = interval(X[:, k], U[k : k + 2])
        cost += effort
        conditions.append(moved - X[:, k + 1])
    conditions.append(X[:, -1] - np.append(case.aim, np.zeros(n)))
    program = {"x": ca.vertcat(ca.vec(X), U), "f": cost, "g": ca.vertcat(*conditions)}
    options = {"print_time": False, "ipopt.print_level": 0, "ipopt.sb": "yes", "ipopt.tol": 1e-8}
    solver = ca.nlpsol("solver", "ipopt", program, options)
    first = np.append(np.concatenate(guess_of(case), axis=1), np.zeros(case.intervals + 1))

    def run() -> tuple[float, int]:
        result = solver(x0=first, lbg=0, ubg=0)
        assert solver.stats()["success"]
        return float(result["f"]), solver.stats()["iter_count"]

    return run


def cells(prepare: Callable[[Case], Callable[[], tuple[float, int]]], case: Case) -> Any:
    """Cost, seconds of the first call with its preparation and of a later one, and iterations."""
    prepared = cache(partial(prepare, case))

    def run() -> tuple[float, int]:
        return prepared()()

    first, again, (cost, iterations) = timed(run, 3)
    return cost, first, again, iterations


def main() -> None:
    """Print the table, and write it with the machine it was measured on."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    os.environ["JAXMECH_KERNEL_CACHE"] = "off"
    jax.config.update("jax_enable_x64", True)
    rows = []
    print(table_head(HEAD))
    for name, case in CASES.items():
        cost, *own = cells(by_jaxmech, case())
        other, *peer = cells(by_casadi, case())
        np.testing.assert_allclose(cost, other, rtol=1e-6, err_msg=name)
        rows.append((name, cost, *own, *peer))
        print(table_row(rows[-1]), flush=True)
    write(arguments.json, head=HEAD, rows=rows)


if __name__ == "__main__":
    main()
