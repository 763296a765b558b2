"""Misuse raises immediately, with the argument, the problem and the remedy in the message.

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

TRACED = (
    "must consist of JAX operations, since it is traced, but needs the value of an array ({}). "
    "Write `jnp.sin` instead of `np.sin` or `math.sin`, and `jnp.where` instead of `if`; the line "
    "is above."
)

# Code, and the type and message of its error.
MISUSE = {
    # functions that cannot be traced, or called
    "made(lambda q, v, t, p: v @ v - np.sin(q[0])).equations(q, v, 0.0, p)": (
        f"TypeError: `lagrangian` {TRACED.format('TracerArrayConversionError')}"
    ),
    "made(lambda q, v, t, p: v @ v if q[0] > 0 else 0.0).equations(q, v, 0.0, p)": (
        f"TypeError: `lagrangian` {TRACED.format('TracerBoolConversionError')}"
    ),
    "holonomic(lambda q, t, p: math.sin(q[0]))": (
        f"TypeError: Constraint 'loop' {TRACED.format('ConcretizationTypeError')}"
    ),
    "made(lambda q, v: v @ v)": (
        "TypeError: Argument `lagrangian` must be a function of (q, v, t, params), but takes "
        "(q, v); it is called with all of these, whether it uses them or not."
    ),
    "jm.Holonomic(lambda q: q[0])": (
        "TypeError: Argument `fn` must be a function of (q, t, params), but takes (q); it is "
        "called with all of these, whether it uses them or not."
    ),
    # indices that JAX would move to the nearest valid one
    "simulate(system=made(lambda q, v, t, p: v @ v - q[2]))": (
        "IndexError: `lagrangian` must read entries that exist, but reads index 2 of an axis of 2; "
        "correct the index, for which JAX would silently read the nearest entry."
    ),
    "assemble(system=made(constraints=[jm.Holonomic(lambda q, t, p: q[-3], 'wall')]))": (
        "IndexError: Constraint 'wall' must read entries that exist, but reads index -3 of an axis "
        "of 2; correct the index, for which JAX would silently read the nearest entry."
    ),
    # mechanisms
    "jm.parts.Mechanism(jm.parts.point_mass('ball', mass=1.0))": (
        "TypeError: Argument `bodies` must be a sequence, but is PointMass(name='ball', mass=1.0, "
        "dimension=2); put it into a list."
    ),
    # events
    "jm.Event(lambda q: q[0])": (
        "ValueError: Argument `fn` must be a function of q, v, t and params, or of these and "
        "reactions, but takes 1 argument."
    ),
    "simulate(events=[3])": (
        "TypeError: Argument `events` must hold Event objects, but holds 3; wrap the "
        "function, for example Event(fn, name=...)."
    ),
    "simulate(events=2 * [jm.Event(L)])": (
        "ValueError: Argument `events` must have distinct names, but 'L' is given twice."
    ),
    "simulate(events=jm.Event(lambda q, v, t, p: q))": (
        "ValueError: Event 'event1' must return a scalar, but returned shape (2,); give one event "
        "for each component."
    ),
    "simulate(events=jm.Event(lambda q, v, t, p: q[0] > 0))": (
        "TypeError: Event 'event1' must return a real number that crosses zero, but returned bool; "
        "instead of a comparison, return the difference of both sides."
    ),
    "simulate(events=jm.Event(lambda q, v, t, p: None))": (
        "ValueError: Event 'event1' returned None; add a `return` to its function."
    ),
    "simulate(events=jm.Event(lambda q, v, t, p: q[0] - p['x']))": (
        "MissingParameterError: Argument `params` must hold 'x', which event 'event1' reads, but "
        "holds l, m."
    ),
    "simulate(events=jm.Event(lambda q, v, t, p: q[0], "
    "transition=jm.Transition(restitution=lambda p: p['e'])))": (
        "MissingParameterError: Argument `params` must hold 'e', which the transition of event "
        "'event1' reads, but holds l, m."
    ),
    "simulate(events=jm.Event(L, transition=jm.Transition(off='rods')))": (
        "ValueError: The transition of event 'L' must name constraints of the system, but names "
        "'rods'. Its constraints: rod."
    ),
    "simulate(inactive='rod')": (
        "ValueError: Argument `inactive` must be empty where no event switches a constraint on, "
        "but names 'rod'; leave that constraint out of the system."
    ),
    "simulate(events=jm.Event(L, transition=jm.Transition(restitution=0.5)))": (
        "ValueError: Event 'L' must be a gap that depends on q, t and params only, because its "
        "transition has a restitution, but it depends on v; give the jump of v by "
        "`Transition(fn)`."
    ),
    "simulate(events=jm.Event(lambda q, v, t, p: q[0], transition=jm.Transition(lambda *a: 3)))": (
        "ValueError: The transition of event 'event1' must return q and v of shape (2,), but "
        "returned 3."
    ),
    "jm.Event(3)": "TypeError: Argument `fn` must be a function, but is 3.",
    "jm.Event(lambda q, v: 0.0)": (
        "ValueError: Argument `fn` must be a function of q, v, t and params, or of these and "
        "reactions, but takes 2 arguments."
    ),
    "jm.Event(L, direction=2)": (
        "ValueError: Argument `direction` must be -1, 0 or 1, but is 2; 1 is for changes from "
        "negative to positive, -1 for the others."
    ),
    "jm.Event(L, keep=0)": (
        "ValueError: Argument `keep` must be a positive integer, but is 0; it is the number of "
        "occurrences to keep."
    ),
    "jm.Event(L, terminal=True, transition=jm.Transition(restitution=1.0))": (
        "ValueError: Argument `transition` must be None for a terminal event, after which the "
        "state is held constant; leave out one of the two."
    ),
    "jm.Transition()": (
        "ValueError: Argument `fn`, `restitution`, `on` or `off` must be given, but none is; for "
        "an event that changes nothing, leave out the transition."
    ),
    "jm.Transition(restitution=-0.5)": (
        "ValueError: Argument `restitution` must be a finite number from 0 on, but is -0.5; an "
        "elastic impact has 1."
    ),
    "jm.Transition(restitution=float('inf'))": (
        "ValueError: Argument `restitution` must be a finite number from 0 on, but is inf; an "
        "elastic impact has 1."
    ),
    "jm.Transition(on='rod', off='rod')": (
        "ValueError: Argument `off` must not name what `on` names, but both name 'rod'."
    ),
    "jm.Transition(on=3)": ("TypeError: Argument `on` must hold names of constraints, but is 3."),
    # a system
    "made(lagrangian=3)": "TypeError: Argument `lagrangian` must be a function, but is 3.",
    "made(lagrangian=None)": "TypeError: Argument `lagrangian` must be a function, but is None.",
    "made(force=0)": "TypeError: Argument `force` must be a function, but is 0.",
    "jm.System(L, nonideal=0, coordinates=('x', 'y'))": (
        "TypeError: Argument `nonideal` must be a function, but is 0."
    ),
    "made(coordinates=())": (
        "ValueError: Argument `coordinates` must name at least one coordinate, but is empty."
    ),
    "made(coordinates='xy')": (
        "TypeError: Argument `coordinates` must be a sequence of names, but is 'xy'; write "
        '("x",) for a single coordinate x.'
    ),
    "made(coordinates={'x': 'm', 'y': 2})": (
        "TypeError: The unit of `y` must be a string such as 'm' or 'rad', but is 2."
    ),
    "jm.ensemble.Moments(of=('q',))": (
        "StudyError: Argument `of` must be the name of one quantity, such as 'q', but is ('q',)"
    ),
    "jm.ensemble.Covariance(of='q')": (
        "StudyError: Argument `of` must be a tuple of names, such as ('q',), but is 'q'"
    ),
    "made(coordinates=2)": (
        'TypeError: Argument `coordinates` must be a sequence of names, but is 2; write ("x",) '
        "for a single coordinate x."
    ),
    "made(coordinates=('x', 'x'))": (
        "ValueError: Argument `coordinates` must have distinct names, but 'x' is given twice."
    ),
    "made(coordinates=('x', ''))": (
        "ValueError: Argument `coordinates` must have non-empty names, but has ''."
    ),
    "made(coordinates=('x', 3))": (
        "ValueError: Argument `coordinates` must have non-empty names, but has 3."
    ),
    "made(constraints=None)": (
        "TypeError: Argument `constraints` must hold Holonomic, Nonholonomic or Acceleration "
        "objects, but holds None; wrap the function, for example Holonomic(fn, name=...)."
    ),
    "made(constraints=['rod'])": (
        "TypeError: Argument `constraints` must hold Holonomic, Nonholonomic or Acceleration "
        "objects, but holds 'rod'; wrap the function, for example Holonomic(fn, name=...)."
    ),
    "made(constraints=2 * rods)": (
        "ValueError: Argument `constraints` must have distinct names, but 'rod' is given twice."
    ),
    "jm.animate(3, ([0.0, 1.0], [q, q]))": (
        "TypeError: Argument `subject` must be a Model, a Mechanism or a function (q, t, params) "
        "that returns points by name, but is int."
    ),
    "jm.animate(lambda q, t, p: {'a': q}, q)": (
        "TypeError: Argument `motion` must be a Solution, or a tuple of times and coordinates, but "
        "is list."
    ),
    "jm.Holonomic(3)": "TypeError: Argument `fn` must be a function, but is 3.",
    "jm.Acceleration(None)": "TypeError: Argument `fn` must be a function, but is None.",
    "made(lagrangian=Unhashable())": (
        "TypeError: Argument `lagrangian` must be hashable, but a Unhashable is not (unhashable "
        "type: 'Unhashable'); write a function and keep its arrays in `params`."
    ),
    "jm.Nonholonomic(rod, name=3)": "TypeError: Argument `name` must be a string, but is 3.",
    # what its functions return
    "holonomic(lambda q, t, p: None)": (
        "ValueError: Constraint 'loop' returned None; add a `return` to its function."
    ),
    "holonomic(lambda q, t, p: q[None])": (
        "ValueError: Constraint 'loop' must return a scalar or a (k,) array, but returned shape"
        " (1, 2); stack its components into one array."
    ),
    "made(lambda q, v, t, p: v).equations(q, v)": (
        "ValueError: The value of `lagrangian` must have shape () (a scalar), but has shape (2,)."
    ),
    "made(lambda q, v, t, p: None).equations(q, v)": (
        "ValueError: The value of `lagrangian` must have shape (), but is None; add a `return`."
    ),
    "made(force=lambda q, v, t, p: v[0]).equations(q, v, 0.0, p)": (
        "ValueError: The value of `force` must have shape (2,) (one number per coordinate), but"
        " has shape ()."
    ),
    # a state
    "system.equations([0.0, 0.0, 0.0], v, 0.0, p)": (
        "ValueError: Argument `q` must have shape (2,) (one number per coordinate), but has "
        "shape (3,)."
    ),
    "jm.acceleration(system, q, 0.0, 0.0, p)": (
        "ValueError: Argument `v` must have shape (2,) (one number per coordinate), but has "
        "shape ()."
    ),
    "jm.acceleration(system, q, v, [0.0], p)": (
        "ValueError: Argument `t` must have shape () (a scalar), but has shape (1,); for a batch "
        "use `jax.vmap`."
    ),
    "simulate(q=[[0.6, -0.8]])": (
        "ValueError: Argument `q0` must have shape (2,) (one number per coordinate), but has "
        "shape (1, 2); for a batch use `jax.vmap`."
    ),
    "simulate(v=[0.0])": (
        "ValueError: Argument `v0` must have shape (2,) (one number per coordinate), but has "
        "shape (1,)."
    ),
    "assemble(q=[0.0])": (
        "ValueError: Argument `q_guess` must have shape (2,) (one number per coordinate), but "
        "has shape (1,)."
    ),
    # values
    "simulate(q=[0.6, nan])": "ValueError: Argument `q0[1]` must be finite, but is nan.",
    "simulate(v=[-inf, 0.6])": "ValueError: Argument `v0[0]` must be finite, but is -inf.",
    "simulate(ts=[0.0, inf, inf])": "ValueError: Argument `ts[1]` must be finite, but is inf.",
    "simulate(p={'m': nan, 'l': 1.0})": (
        "ValueError: Argument `params['m']` must be finite, but is nan."
    ),
    "simulate(p={**p, 'deep': [0.0, {'grid': np.array([[1.0, 2.0], [inf, 3.0]])}]})": (
        "ValueError: Argument `params['deep'][1]['grid'][1][0]` must be finite, but is inf."
    ),
    "assemble(v=[nan, 0.0])": "ValueError: Argument `v_guess[0]` must be finite, but is nan.",
    "assemble(t=nan)": "ValueError: Argument `t` must be finite, but is nan.",
    "assemble(p=(p, nan))": "ValueError: Argument `params[1]` must be finite, but is nan.",
    # times
    "simulate(ts=[0.0])": (
        "ValueError: Argument `ts` must have shape (T,) with T >= 2 save times, but has shape (1,)."
    ),
    "simulate(ts=1.0)": (
        "ValueError: Argument `ts` must have shape (T,) with T >= 2 save times, but has shape ()."
    ),
    "simulate(ts=[0.0, 0.2, 0.1])": (
        "ValueError: Argument `ts` must be strictly increasing or strictly decreasing, but is "
        "not; sort it and drop repeated times."
    ),
    "simulate(ts=[0.0, 0.1, 0.1])": (
        "ValueError: Argument `ts` must be strictly increasing or strictly decreasing, but is "
        "not; sort it and drop repeated times."
    ),
    # objects
    "simulate()[3]": (
        "TypeError: `sol[name]` takes the name of a column, but 3 is none; one trajectory of a "
        "batch is `jax.tree.map(lambda x: x[3], sol)`."
    ),
    "jm.ensemble.Study(model='pendulum', size=1, times=None, start={'theta': 0.3})": (
        "StudyError: Argument `start.theta` must be a distribution such as Fixed(1.0), but is 0.3"
    ),
    # policies
    "simulate(method='rk4')": (
        "TypeError: Argument `method` must be an object such as RK4(), but is 'rk4'."
    ),
    "simulate(method=jm.Adaptive())": (
        "TypeError: Argument `method` must not be Adaptive(), which belongs to `steps`: write "
        "steps=Adaptive()."
    ),
    "simulate(steps=jm.RK4())": (
        "TypeError: Argument `steps` must not be RK4(), which belongs to `method`: write "
        "method=RK4()."
    ),
    "simulate(projection=True)": (
        "TypeError: Argument `projection` must be an object such as Projection() or None, but "
        "is True."
    ),
    "simulate(formulation=jm.laws.LDL())": (
        "TypeError: Argument `formulation` must be an object such as UdwadiaKalaba(), but is "
        "LDL(tolerance=None)."
    ),
    "simulate(derivative='forward')": (
        "TypeError: Argument `derivative` must be an object such as ReverseMode(), but is "
        "'forward'."
    ),
    "simulate(system=L)": (
        "TypeError: Argument `system` must be an object such as System(...), but is "
    ),
    "assemble(system=3)": (
        "TypeError: Argument `system` must be an object such as System(...), but is 3."
    ),
    "jm.acceleration(3, q, v)": (
        "TypeError: Argument `system` must be an object such as System(...), but is 3."
    ),
    "jm.laws.UdwadiaKalaba('svd')": (
        "TypeError: Argument `solver` must be an object such as LDL(), but is 'svd'."
    ),
    "jm.Projection(solver=3)": (
        "TypeError: Argument `solver` must be an object such as LDL(), but is 3."
    ),
    "jm.Projection(iterations=0)": (
        "ValueError: Argument `iterations` must be a positive integer, but is 0; pass "
        "`projection=None` for no projection."
    ),
    "jm.Projection(iterations=1.5)": (
        "ValueError: Argument `iterations` must be a positive integer, but is 1.5; pass "
        "`projection=None` for no projection."
    ),
    "jm.FixedSteps(per_save='3')": (
        "ValueError: Argument `per_save` must be a positive integer, but is '3'; give the steps"
        " per save interval, or leave it out to have them chosen."
    ),
    "jm.FixedSteps(True)": (
        "ValueError: Argument `per_save` must be a positive integer, but is True; give the "
        "steps per save interval, or leave it out to have them chosen."
    ),
    "jm.Baumgarte(alpha=1.0, beta=-2.0)": (
        "ValueError: Argument `beta` must be finite and not negative, but is -2.0; negative rates "
        "make the violation grow."
    ),
    "jm.Baumgarte(alpha=nan, beta=1.0)": (
        "ValueError: Argument `alpha` must be finite and not negative, but is nan; negative rates "
        "make the violation grow."
    ),
    "jm.analysis.choose_steps(system, q, v, ts, p, steps=jm.Adaptive())": (
        "TypeError: Argument `steps` must be an object such as FixedSteps(), but is Adaptive()."
    ),
    "jm.analysis.choose_steps(system, q, v, ts, p, projection='none')": (
        "TypeError: Argument `projection` must be an object such as Projection() or None, but is "
        "'none'."
    ),
    "jm.analysis.choose_steps(system, q, v, ts, p, formulation='maggi')": (
        "TypeError: Argument `formulation` must be an object such as UdwadiaKalaba(), but is "
        "'maggi'."
    ),
    "jm.acceleration(system, q, v, 0.0, p, formulation='Maggi')": (
        "TypeError: Argument `formulation` must be an object such as UdwadiaKalaba(), but is "
        "'Maggi'."
    ),
    "jm.observe(system, simulate(), p, formulation=None)": (
        "TypeError: Argument `formulation` must be an object such as UdwadiaKalaba(), but is None."
    ),
    "jm.analysis.sensitivities(system, lambda m: (q, v, p), 1.0, ts, formulation=3)": (
        "TypeError: Argument `formulation` must be an object such as UdwadiaKalaba(), but is 3."
    ),
    "jm.laws.compare_formulations(system, [nan, 0.0], v, 0.0, p)": (
        "ValueError: Argument `q[0]` must be finite, but is nan."
    ),
    "jm.laws.compare_formulations(made(lambda q, v, t, p: v @ v + jnp.sqrt(-q @ q)), q, v)": (
        "ValueError: Argument `system` must have finite accelerations, but has not at `q`."
    ),
    "jm.laws.multiplier_family(system, q, v, 0.0, p).member([1.0, 2.0])": (
        "ValueError: Argument `w3` must have shape (1,), but has shape (2,)."
    ),
    "jm.observe(made(coordinates=('r', 'a')), simulate(), p)": (
        "ValueError: Argument `solution` must have the coordinates r, a of `system`, but has x, y."
    ),
    "jm.laws.SVD(tolerance=1.0)": (
        "ValueError: Argument `tolerance` must be in [0, 1), but is 1.0; leave it out for "
        "eps^(2/3)."
    ),
    # a solution
    "jm.observe(3, simulate(), p)": (
        "TypeError: Argument `system` must be an object such as System(...), but is 3."
    ),
    "jm.observe(system, 3, p)": (
        "TypeError: Argument `solution` must be an object such as the result of `simulate`, but "
        "is 3."
    ),
    "jm.observe(system, jax.tree.map(lambda leaf: leaf[None], simulate()), p)": (
        "ValueError: Argument `solution` must be a single trajectory with q of shape (T, n), but "
        "has shape (1, 3, 2); for a batch use `jax.vmap`."
    ),
    # names
    "assemble(fixed=['z'])": (
        "ValueError: Argument `fixed` must hold names of coordinates, but holds 'z'; the "
        "coordinates are x, y."
    ),
    "assemble(fixed_velocities=('y', 0))": (
        "ValueError: Argument `fixed_velocities` must hold names of coordinates, but holds 0; "
        "the coordinates are x, y."
    ),
    "assemble(fixed='x')": (
        "TypeError: Argument `fixed` must be a sequence of names, but is 'x'; write ('x',)."
    ),
}

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
        input=json.dumps([*MISUSE, *FINE]),
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert run.returncode == 0, run.stderr
    return dict(json.loads(run.stdout))


@pytest.mark.parametrize("code", MISUSE)
def test_misuse(code: str, answers: dict[str, str]) -> None:
    said, expected = answers[code], MISUSE[code]
    if expected.endswith("but is "):  # followed by an address
        assert said.startswith(expected)
    else:
        assert said == expected


@pytest.mark.parametrize("code", FINE)
def test_fine(code: str, answers: dict[str, str]) -> None:
    assert answers[code] == FINE[code]
