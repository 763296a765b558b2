"""Misuse raises immediately, with the argument and the remedy in the message.

The cases run in a separate process, because here every call is type-checked first.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]

SETUP = """
import functools, json, math, sys
import jax, jax.numpy as jnp, numpy as np
import jaxmech as jm
jax.config.update("jax_enable_x64", True)

def L(q, v, t, p): return 0.5 * p["m"] * v @ v - 9.81 * q[1]
def gap(q, v, t, p): return q[0]
def rod(q, t, p): return (q @ q - p["l"] ** 2) / 2
rods = [jm.Holonomic(rod)]
system = jm.System(L, rods, coordinates=("x", "y"))
q, v, ts, p = [0.6, -0.8], [0.8, 0.6], [0.0, 0.1, 0.2], {"m": 1.0, "l": 1.0}
nan, inf = float("nan"), float("inf")

class Unhashable:
    __hash__ = None
    def __call__(self, q, v, t, p): return 0.5 * v @ v
def made(lagrangian=L, constraints=(), force=None, coordinates=("x", "y")):
    return jm.System(lagrangian, constraints, force, coordinates=coordinates)
def holonomic(fn):
    return made(constraints=[jm.Holonomic(fn, "loop")]).equations(q, v, 0.0, p)
def simulate(q=q, v=v, ts=ts, p=p, system=system, **policies):
    return jm.simulate(system, q, v, ts, p, **policies)
def assemble(q=q, v=v, t=0.0, p=p, system=system, **options):
    return jm.assemble(system, q, v, t, p, **options)
"""

# The type of an error with a part of its remedy, or of its requirement; then names in messages,
# each with code that causes one.
MISUSE = {
    ("TypeError", "jnp.sin"): [
        ("`lagrangian`", "made(lambda q, v, t, p: v @ v - np.sin(q[0])).equations(q, v, 0.0, p)"),
        (
            "`lagrangian`",
            "made(lambda q, v, t, p: v @ v if q[0] > 0 else 0.0).equations(q, v, 0.0, p)",
        ),
        ("'loop'", "holonomic(lambda q, t, p: math.sin(q[0]))"),
    ],
    ("TypeError", "it is called with all of these, whether"): [
        ("`lagrangian`", "made(lambda q, v: v @ v)"),
        ("`fn`", "jm.Holonomic(lambda q: q[0])"),
    ],
    ("IndexError", "correct the index, for which JAX would"): [
        ("`lagrangian`", "simulate(system=made(lambda q, v, t, p: v @ v - q[2]))"),
        (
            "'wall'",
            "assemble(system=made(constraints=[jm.Holonomic(lambda q, t, p: q[-3], 'wall')]))",
        ),
    ],
    ("TypeError", "put it into a list"): [
        ("`bodies`", "jm.parts.Mechanism(jm.parts.point_mass('ball', mass=1.0))")
    ],
    ("TypeError", "wrap the function, for example"): [
        ("`events`", "simulate(events=[3])"),
        ("`constraints`", "made(constraints=['rod'])"),
    ],
    ("ValueError", "have distinct names"): [
        ("`events`", "simulate(events=2 * [jm.Event(L)])"),
        ("`coordinates`", "made(coordinates=('x', 'x'))"),
        ("`constraints`", "made(constraints=2 * rods)"),
    ],
    ("ValueError", "give one event for each component"): [
        ("'event1'", "simulate(events=jm.Event(lambda q, v, t, p: q))")
    ],
    ("TypeError", "instead of a comparison, return the"): [
        ("'event1'", "simulate(events=jm.Event(lambda q, v, t, p: q[0] > 0))")
    ],
    ("ValueError", "add a `return` to its function"): [
        ("'event1'", "simulate(events=jm.Event(lambda q, v, t, p: None))"),
        ("'loop'", "holonomic(lambda q, t, p: None)"),
    ],
    ("MissingParameterError", "hold 'x', which event 'event1' reads"): [
        ("`params`", "simulate(events=jm.Event(lambda q, v, t, p: q[0] - p['x']))")
    ],
    ("MissingParameterError", "hold 'e', which the transition of event"): [
        (
            "`params`",
            "simulate(events=jm.Event(gap, transition=jm.Transition(None, lambda p: p['e'])))",
        )
    ],
    ("ValueError", "Its constraints: rod"): [
        ("'L'", "simulate(events=jm.Event(L, transition=jm.Transition(off='rods')))")
    ],
    ("ValueError", "leave that constraint out of the system"): [
        ("`inactive`", "simulate(inactive='rod')")
    ],
    ("ValueError", "give the jump of v by `Transition(fn)`"): [
        ("'L'", "simulate(events=jm.Event(L, transition=jm.Transition(restitution=0.5)))")
    ],
    ("ValueError", "return q and v of shape (2,)"): [
        (
            "'gap'",
            "simulate(events=jm.Event(gap, transition=jm.Transition(lambda *a: 3)))",
        )
    ],
    ("TypeError", "be a function"): [
        ("`fn`", "jm.Event(3)"),
        ("`lagrangian`", "made(lagrangian=3)"),
        ("`force`", "made(force=0)"),
        ("`nonideal`", "jm.System(L, nonideal=0, coordinates=('x', 'y'))"),
        ("`fn`", "jm.Holonomic(3)"),
    ],
    ("ValueError", "be a function of q, v, t and params, or"): [
        ("`fn`", "jm.Event(lambda q, v: 0.0)")
    ],
    ("ValueError", "1 is for changes from negative to"): [
        ("`direction`", "jm.Event(L, direction=2)")
    ],
    ("ValueError", "it is the number of occurrences to keep"): [("`keep`", "jm.Event(L, keep=0)")],
    ("ValueError", "leave out one of the two"): [
        ("`transition`", "jm.Event(L, terminal=True, transition=jm.Transition(restitution=1.0))")
    ],
    ("ValueError", "for an event that changes nothing"): [("`fn`", "jm.Transition()")],
    ("ValueError", "an elastic impact has 1"): [
        ("`restitution`", "jm.Transition(restitution=-0.5)")
    ],
    ("ValueError", "not name what `on` names"): [("`off`", "jm.Transition(on='rod', off='rod')")],
    ("TypeError", "hold names of constraints"): [("`on`", "jm.Transition(on=3)")],
    ("ValueError", "name at least one coordinate"): [("`coordinates`", "made(coordinates=())")],
    ("TypeError", 'write ("x",) for a single coordinate x'): [
        ("`coordinates`", "made(coordinates='xy')")
    ],
    ("TypeError", "be a string such as 'm' or 'rad'"): [
        ("`y`", "made(coordinates={'x': 'm', 'y': 2})")
    ],
    ("StudyError", "be the name of one quantity, such as 'q'"): [
        ("`of`", "jm.ensemble.Moments(of=('q',))")
    ],
    ("StudyError", "be a tuple of names, such as ('q',)"): [
        ("`of`", "jm.ensemble.Covariance(of='q')")
    ],
    ("ValueError", "have non-empty names"): [("`coordinates`", "made(coordinates=('x', ''))")],
    ("TypeError", "be a Model, a Mechanism or a function"): [
        ("`subject`", "jm.animate(3, ([0.0, 1.0], [q, q]))")
    ],
    ("TypeError", "be a Solution, or a tuple of times and"): [
        ("`motion`", "jm.animate(lambda q, t, p: {'a': q}, q)")
    ],
    ("TypeError", "write a function and keep its arrays in"): [
        ("`lagrangian`", "made(lagrangian=Unhashable())")
    ],
    ("TypeError", "be a string"): [("`name`", "jm.Nonholonomic(rod, name=3)")],
    ("ValueError", "stack its components into one array"): [
        ("'loop'", "holonomic(lambda q, t, p: q[None])")
    ],
    ("ValueError", "have shape () (a scalar)"): [
        ("`lagrangian`", "made(lambda q, v, t, p: v).equations(q, v)")
    ],
    ("ValueError", "add a `return`"): [
        ("`lagrangian`", "made(lambda q, v, t, p: None).equations(q, v)")
    ],
    ("ValueError", "have shape (2,) (one number per"): [
        ("`force`", "made(force=lambda q, v, t, p: v[0]).equations(q, v, 0.0, p)"),
        ("`q`", "system.equations([0.0, 0.0, 0.0], v, 0.0, p)"),
        ("`v`", "jm.acceleration(system, q, 0.0, 0.0, p)"),
        ("`v0`", "simulate(v=[0.0])"),
        ("`q_guess`", "assemble(q=[0.0])"),
    ],
    ("ValueError", "for a batch use `jax.vmap`"): [
        ("`t`", "jm.acceleration(system, q, v, [0.0], p)"),
        ("`q0`", "simulate(q=[[0.6, -0.8]])"),
        ("`solution`", "jm.observe(system, jax.tree.map(lambda leaf: leaf[None], simulate()), p)"),
    ],
    ("ValueError", "be finite"): [
        ("`q0[1]`", "simulate(q=[0.6, nan])"),
        ("`v0[0]`", "simulate(v=[-inf, 0.6])"),
        ("`ts[1]`", "simulate(ts=[0.0, inf, inf])"),
        ("`params['m']`", "simulate(p={'m': nan, 'l': 1.0})"),
        (
            "`params['deep'][1]['grid'][1][0]`",
            "simulate(p={**p, 'deep': [0.0, {'grid': np.array([[1.0, 2.0], [inf, 3.0]])}]})",
        ),
        ("`v_guess[0]`", "assemble(v=[nan, 0.0])"),
        ("`t`", "assemble(t=nan)"),
        ("`params[1]`", "assemble(p=(p, nan))"),
        ("`q[0]`", "jm.laws.compare_formulations(system, [nan, 0.0], v, 0.0, p)"),
    ],
    ("ValueError", "have shape (T,) with T >= 2 save times"): [("`ts`", "simulate(ts=[0.0])")],
    ("ValueError", "sort it and drop repeated times"): [("`ts`", "simulate(ts=[0.0, 0.2, 0.1])")],
    ("TypeError", "one trajectory of a batch is"): [("`sol[name]`", "simulate()[3]")],
    ("StudyError", "be a distribution such as Fixed(1.0)"): [
        (
            "`start.theta`",
            "jm.ensemble.Study(model='pendulum', size=1, times=None, start={'theta': 0.3})",
        )
    ],
    ("TypeError", "be an object such as RK4()"): [("`method`", "simulate(method='rk4')")],
    ("TypeError", "must not be Adaptive(), which belongs"): [
        ("`method`", "simulate(method=jm.Adaptive())")
    ],
    ("TypeError", "must not be RK4(), which belongs to"): [("`steps`", "simulate(steps=jm.RK4())")],
    ("TypeError", "be an object such as Projection() or"): [
        ("`projection`", "simulate(projection=True)"),
        ("`projection`", "jm.analysis.choose_steps(system, q, v, ts, p, projection='none')"),
    ],
    ("TypeError", "be an object such as UdwadiaKalaba()"): [
        ("`formulation`", "simulate(formulation=jm.laws.LDL())"),
        ("`formulation`", "jm.observe(system, simulate(), p, formulation=None)"),
        (
            "`formulation`",
            "jm.analysis.sensitivities(system, lambda m: (q, v, p), 1.0, ts, formulation=3)",
        ),
    ],
    ("TypeError", "be an object such as ReverseMode()"): [
        ("`derivative`", "simulate(derivative='forward')")
    ],
    ("TypeError", "be an object such as System(...)"): [
        ("`system`", "simulate(system=L)"),
        ("`system`", "jm.observe(3, simulate(), p)"),
    ],
    ("TypeError", "be an object such as LDL()"): [
        ("`solver`", "jm.laws.UdwadiaKalaba('svd')"),
        ("`solver`", "jm.Projection(solver=3)"),
    ],
    ("ValueError", "pass `projection=None` for no projection"): [
        ("`iterations`", "jm.Projection(iterations=0)")
    ],
    ("ValueError", "give the steps per save interval, or"): [
        ("`per_save`", "jm.FixedSteps(per_save='3')")
    ],
    ("ValueError", "negative rates make the violation grow"): [
        ("`beta`", "jm.Baumgarte(alpha=1.0, beta=-2.0)")
    ],
    ("TypeError", "be an object such as FixedSteps()"): [
        ("`steps`", "jm.analysis.choose_steps(system, q, v, ts, p, steps=jm.Adaptive())")
    ],
    ("ValueError", "have finite accelerations"): [
        (
            "`system`",
            "jm.laws.compare_formulations(made(lambda q, v, t, p: v @ v + jnp.sqrt(-q @ q)), q, v)",
        )
    ],
    ("ValueError", "have shape (1,)"): [
        ("`w3`", "jm.laws.multiplier_family(system, q, v, 0.0, p).member([1.0, 2.0])")
    ],
    ("ValueError", "have the coordinates r, a of `system`"): [
        ("`solution`", "jm.observe(made(coordinates=('r', 'a')), simulate(), p)")
    ],
    ("ValueError", "leave it out for eps^(2/3)"): [("`tolerance`", "jm.laws.SVD(tolerance=1.0)")],
    ("TypeError", "be an object such as the result of"): [
        ("`solution`", "jm.observe(system, 3, p)")
    ],
    ("ValueError", "the coordinates are x, y"): [
        ("`fixed`", "assemble(fixed=['z'])"),
        ("`fixed_velocities`", "assemble(fixed_velocities=('y', 0))"),
    ],
    ("TypeError", "write ('x',)"): [("`fixed`", "assemble(fixed='x')")],
}
CASES = [(code, *error, name) for error, cases in MISUSE.items() for name, code in cases]

# Code and its result: close to misuse, but correct.
FINE = {
    "made(constraints=(c for c in rods), coordinates=(c for c in 'xy')) == system": "True",
    "made(constraints=rods[0]) == system": "True",
    "made(force=functools.partial(lambda k, q, v, t, p: k * v, 2.0))": (
        "System(coordinates=('x', 'y'), constraints=(), force=given)"
    ),
    "bool(jm.FixedSteps(np.int64(2)) == jm.FixedSteps(2))": "True",
    "jm.Baumgarte(alpha=20, beta=20)": "Baumgarte(alpha=20, beta=20)",
    "simulate(system=made(), ts=[0, 1, 2]).ts.dtype": "dtype('float64')",
    "simulate(ts=[0.2, 0.1, 0.0]).status.item()": "0",
    "assemble(fixed={'x'})[0].tolist()": "[0.6, -0.8]",
}

REPORT = """
answers = {}
for code in json.load(sys.stdin):
    try:
        answers[code] = repr(eval(code))
    except Exception as error:
        answers[code] = f"{type(error).__name__}: {error}"
print(json.dumps(answers))
"""


@pytest.fixture(scope="module")
def answers() -> dict[str, str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "JAX_PLATFORMS": "cpu"}
    run = subprocess.run(
        [sys.executable, "-W", "error", "-c", SETUP + REPORT],
        input=json.dumps([*(code for code, *_ in CASES), *FINE]),
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert run.returncode == 0, run.stderr
    return dict(json.loads(run.stdout))


@pytest.mark.parametrize(
    ("code", "kind", "remedy", "name"), CASES, ids=[code for code, *_ in CASES]
)
def test_misuse(code: str, kind: str, remedy: str, name: str, answers: dict[str, str]) -> None:
    said, _, message = answers[code].partition(": ")
    assert (said, name in message, remedy in message) == (kind, True, True), answers[code]


@pytest.mark.parametrize("code", FINE)
def test_fine(code: str, answers: dict[str, str]) -> None:
    assert answers[code] == FINE[code]
