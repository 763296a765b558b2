"""Bad inputs raise at once: the call, the type of the error, and the argument that it names."""

# ruff: noqa: E501, F401 (a case is a line, and the calls use the imports)

import math
import os
import re
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxmech as jm
from jaxmech import ensemble, errors, laws, models, parts
from tests.small import DOUBLE, PENDULUM

nan, inf = float("nan"), float("inf")
ts = [0.0, 0.1, 0.2]
system, p, q, v = PENDULUM.system, PENDULUM.params, PENDULUM.q, PENDULUM.v

CONTROLLER = jm.Controller(lambda m, n, t, p: (0.0, n), period=0.1, name="u")
GAP = jm.Unilateral(lambda q, t, p: q[1] + 2.0, name="stop")


def energy(q: Any, v: Any, t: Any, p: Any) -> Any:
    return 0.5 * v @ v


def changed(**changes: Any) -> jm.System:
    return replace(system, **changes)


def loop(fn: Any, kind: Any = jm.Holonomic) -> Any:
    return jm.System(energy, [kind(fn, "loop")], coordinates=("x", "y")).equations(q, v, 0.0, p)


def simulate(system: Any = system, q: Any = q, v: Any = v, ts: Any = ts, p: Any = p, **more: Any):
    return jm.simulate(system, q, v, ts, p, **more)


def assemble(q: Any = q, v: Any = v, t: Any = 0.0, p: Any = p, **more: Any) -> Any:
    return jm.assemble(system, q, v, t, p, **more)


def recording(
    ts: Any = ts, observed: Any = ((1.0, 2.0),) * 3, q: Any = q, v: Any = v, **more: Any
) -> Any:
    return jm.Recording(ts, observed, q, v, **more)


def fit(recordings: Any = None, p: Any = p, **more: Any) -> Any:
    good = recording(observed=[q + 0.1 * k for k in range(3)])
    return jm.fit(system, good if recordings is None else recordings, p, **more)


def event(fn: Any, **more: Any) -> Any:
    return simulate(events=jm.Event(fn, **more), steps=jm.FixedSteps(1))


# fmt: off
CASES = [
    # systems
    ("changed(lagrangian=3)", TypeError, "lagrangian"),
    ("changed(lagrangian=lambda q, v: v @ v)", TypeError, "lagrangian"),
    ("simulate(changed(lagrangian=lambda q, v, t, p: v @ v - np.sin(q[0])))", TypeError, "lagrangian"),
    ("simulate(changed(lagrangian=lambda q, v, t, p: v @ v if q[0] > 0 else 0.0))", TypeError, "lagrangian"),
    ("simulate(changed(lagrangian=lambda q, v, t, p: v @ v - q[2]))", IndexError, "lagrangian"),
    ("simulate(changed(lagrangian=lambda q, v, t, p: v))", ValueError, "lagrangian"),
    ("simulate(changed(lagrangian=lambda q, v, t, p: None))", ValueError, "lagrangian"),
    ("jm.fit(system, jm.Recording(ts, [q] * 3, q, v), p, multistart=3)", TypeError, "multistart"),
    ("jm.analysis.equilibrium(jm.controlled(system, CONTROLLER), q, p)", ValueError, "system"),
    ("jm.control.kinematics(jm.controlled(system, CONTROLLER), 'x', [0.0], q, p)", ValueError, "system"),
    ("jm.control.kinematics(changed(unilateral=(GAP,)), 'x', [0.0], q, p)", ValueError, "system"),
    ("jm.control.inverse_dynamics(jm.controlled(system, CONTROLLER), lambda t, p: q, ts, p, actuators=['x'])", ValueError, "system"),
    ("changed(force=0)", TypeError, "force"),
    ("simulate(changed(force=lambda q, v, t, p: v[0]))", ValueError, "force"),
    ("changed(nonideal=0)", TypeError, "nonideal"),
    ("jm.System(energy, coordinates=())", ValueError, "coordinates"),
    ("jm.System(energy, coordinates='xy')", TypeError, "coordinates"),
    ("jm.System(energy, coordinates=('x', 'x'))", ValueError, "coordinates"),
    ("jm.System(energy, coordinates=('x', ''))", ValueError, "coordinates"),
    ("jm.System(energy, coordinates={'x': 'm', 'y': 2})", TypeError, "y"),
    ("jm.System(energy, coordinates=('x',), units=(('y', 'm'),))", ValueError, "units"),
    ("jm.System(energy, ['rod'], coordinates=('x', 'y'))", TypeError, "constraints"),
    ("jm.System(energy, 2 * list(system.constraints), coordinates=('x', 'y'))", ValueError, "constraints"),
    ("changed(states=('z',))", ValueError, "states"),
    ("changed(states='z', rates=energy)", TypeError, "states"),
    ("changed(rates=energy)", ValueError, "rates"),
    ("simulate(changed(states=('z',), rates=lambda q, v, t, p: v), [*q, 0.0], [*v, 0.0])", ValueError, "rates"),
    ("changed(velocities=('w',))", ValueError, "velocities"),
    ("changed(kinematics=lambda q, t, p: q)", ValueError, "kinematics"),
    ("simulate(7)", TypeError, "system"),
    ("simulate('arm')", TypeError, "system"),
    # constraints
    ("jm.Holonomic(3)", TypeError, "fn"),
    ("jm.Holonomic(lambda q: q[0])", TypeError, "fn"),
    ("jm.Nonholonomic(energy, name=3)", TypeError, "name"),
    ("loop(lambda q, t, p: math.sin(q[0]))", TypeError, "loop"),
    ("loop(lambda q, t, p: None)", ValueError, "loop"),
    ("loop(lambda q, t, p: q[None])", ValueError, "loop"),
    ("loop(lambda q, v, a, t, p: a[0] ** 2 - 1, jm.Acceleration)", ValueError, "loop"),
    ("loop(lambda q, v, a, t, p: jnp.abs(a[0]) - 1, jm.Acceleration)", ValueError, "loop"),
    ("loop(lambda q, v, a, t, p: 1e-10 * (a[0] + 0.1 * a[0] ** 2), jm.Acceleration)", ValueError, "loop"),
    # states, times, parameters
    ("simulate(q=[0.6, nan])", ValueError, "q0[1]"),
    ("simulate(v=[-inf, 0.6])", ValueError, "v0[0]"),
    ("simulate(v=[0.0])", ValueError, "v0"),
    ("simulate(q=[[0.6, -0.8]])", ValueError, "q0"),
    ("simulate(q=None)", TypeError, "q0"),
    ("simulate(q=np.array([1.2, -1.6j]))", TypeError, "q0"),
    ("simulate(q=np.array([1.2, -1.6], object))", TypeError, "q0"),
    ("simulate(q=np.float16([1.2, -1.6]))", TypeError, "q0"),
    ("simulate(q=[[1.0], [1.0, 2.0]])", TypeError, "q0"),
    ("simulate(q=[0.2, 0.0], steps=jm.FixedSteps(1))", errors.SimulationError, "rod"),
    ("simulate(ts=[0.0])", ValueError, "ts"),
    ("simulate(ts=[0.0, 0.2, 0.1])", ValueError, "ts"),
    ("simulate(ts=[0.0, inf, inf])", ValueError, "ts[1]"),
    ("simulate(p={**p, 'm': nan})", ValueError, "params['m']"),
    ("simulate(p={**p, 'deep': [0.0, {'grid': np.array([[1.0], [inf]])}]})", ValueError, "params['deep'][1]['grid'][1][0]"),
    ("simulate(p={'m': 1.0, 'g': 9.81})", ValueError, "params"),
    ("system.equations([0.0, 0.0, 0.0], v, 0.0, p)", ValueError, "q"),
    ("jm.acceleration(system, q, 0.0, 0.0, p)", ValueError, "v"),
    ("jm.acceleration(system, q, v, [0.0], p)", ValueError, "t"),
    ("assemble(q=[0.0])", ValueError, "q_guess"),
    ("assemble(v=[nan, 0.0])", ValueError, "v_guess[0]"),
    ("assemble(t=nan)", ValueError, "t"),
    ("assemble(fixed=['z'])", ValueError, "fixed"),
    ("assemble(fixed='x')", TypeError, "fixed"),
    ("simulate()[3]", TypeError, "sol[name]"),
    ("jm.observe(system, 3, p)", TypeError, "solution"),
    ("jm.observe(3, simulate(), p)", TypeError, "system"),
    ("jm.animate(lambda q, t, p: {'a': q}, q)", TypeError, "motion"),
    # policies
    ("simulate(method='rk4')", TypeError, "method"),
    ("simulate(method=jm.Adaptive())", TypeError, "method"),
    ("simulate(method=jm.RK4(), steps=jm.Adaptive())", ValueError, "method"),
    ("simulate(DOUBLE.system, DOUBLE.q, DOUBLE.v, p=DOUBLE.params, method=jm.Rodas5P(), formulation=laws.CoordinatePartition())", ValueError, "formulation"),
    ("simulate(steps=jm.RK4())", TypeError, "steps"),
    ("simulate(projection=True)", TypeError, "projection"),
    ("simulate(formulation=laws.LDL())", TypeError, "formulation"),
    ("simulate(derivative='forward')", TypeError, "derivative"),
    ("simulate(method=jm.RATTLE(), projection=jm.Baumgarte(1.0, 1.0))", ValueError, "projection"),
    ("simulate(method=jm.RATTLE(), formulation=laws.Maggi())", ValueError, "formulation"),
    ("simulate(changed(force=lambda q, v, t, p: -0.1 * v), method=jm.RATTLE())", ValueError, "force"),
    ("simulate(changed(lagrangian=lambda q, v, t, p: (1 + q[0] ** 2) * v @ v), method=jm.RATTLE())", ValueError, "method"),
    ("simulate(changed(lagrangian=lambda q, v, t, p: v @ v + q[0] * v[1]), method=jm.RATTLE())", ValueError, "gyroscopic"),
    ("simulate(changed(constraints=[jm.Nonholonomic(lambda q, v, t, p: v[0], 'edge')]), v=[0.0, 1.0], method=jm.RATTLE())", ValueError, "edge"),
    ("laws.UdwadiaKalaba('svd')", TypeError, "solver"),
    ("laws.SVD(tolerance=1.0)", ValueError, "tolerance"),
    ("laws.LDL(tolerance=nan)", ValueError, "tolerance"),
    ("laws.CoordinatePartition(iterations=0)", ValueError, "iterations"),
    ("jm.Projection(iterations=0)", ValueError, "iterations"),
    ("jm.Baumgarte(alpha=1.0, beta=-2.0)", ValueError, "beta"),
    ("jm.FixedSteps(per_save='3')", ValueError, "per_save"),
    ("jm.FixedSteps(max_step=0.0)", ValueError, "max_step"),
    ("jm.Adaptive(rtol=0.0)", ValueError, "rtol"),
    ("jm.Adaptive(max_steps=0)", ValueError, "max_steps"),
    ("jm.Adaptive(times=[1.0, nan])", ValueError, "times"),
    ("jm.Signal([0.0, 0.0], [1.0, 2.0])", ValueError, "ts"),
    ("jm.Signal([0.0, 1.0], [1.0, nan])", ValueError, "values"),
    ("jm.analysis.sensitivities(system, lambda m: (q, v, p), {'m': 1}, ts)", TypeError, "theta"),
    # fits
    ("fit([])", ValueError, "recordings"),
    ("fit([3])", TypeError, "recordings"),
    ("fit([recording(), recording(observed=[1.0, 2.0, 3.0])])", ValueError, "recordings"),
    ("fit(p=None)", ValueError, "params0"),
    ("fit(free=['L'])", ValueError, "free"),
    ("fit(free='m')", TypeError, "free"),
    ("fit(free=[])", ValueError, "free"),
    ("fit(bounds={'m': (2, 1)})", ValueError, "bounds"),
    ("fit(bounds={'m': 3})", ValueError, "bounds"),
    ("fit(bounds={'m': (100.0, None)})", ValueError, "params0"),
    ("fit(prior={'m': (1.0, 0.0)})", ValueError, "prior"),
    ("fit(prior={'mass': (1.0, 1.0)})", ValueError, "prior"),
    ("fit(observe=lambda q, v, t, p: q[0])", ValueError, "observe"),
    ("fit(optimizer=3)", TypeError, "optimizer"),
    ("recording(ts=[0.0, 0.2, 0.2])", ValueError, "ts"),
    ("recording(observed=[[1.0], [2.0]])", ValueError, "observed"),
    ("recording(observed=[1.0, inf, 2.0])", ValueError, "observed"),
    ("recording(q=[nan, 0.0])", ValueError, "q0"),
    ("recording(v=[0.0, 1.0, 2.0])", ValueError, "v0"),
    ("recording(weights=-1.0)", ValueError, "weights"),
    ("recording(start_sd=(0.1, 0.0))", ValueError, "start_sd"),
    ("recording(inputs={'push': ([0.0, 0.1], [0.0, 1.0])})", ValueError, "push"),
    ("jm.identify.Table(file='d.csv', observed=())", errors.StudyError, "observed"),
    # events
    ("jm.Event(3)", TypeError, "fn"),
    ("jm.Event(lambda q, v: 0.0)", ValueError, "fn"),
    ("jm.Event(energy, direction=2)", ValueError, "direction"),
    ("jm.Event(energy, keep=0)", ValueError, "keep"),
    ("jm.Event(energy, terminal=True, transition=jm.Transition(restitution=1.0))", ValueError, "transition"),
    ("jm.Transition()", ValueError, "fn"),
    ("jm.Transition(restitution=-0.5)", ValueError, "restitution"),
    ("jm.Transition(on='rod', off='rod')", ValueError, "off"),
    ("simulate(events=[3])", TypeError, "events"),
    ("simulate(events=2 * [jm.Event(energy)])", ValueError, "events"),
    ("simulate(inactive='rods')", ValueError, "inactive"),
    ("event(lambda q, v, t, p: q)", ValueError, "event1"),
    ("event(lambda q, v, t, p: q[0] > 0)", TypeError, "event1"),
    ("event(lambda q, v, t, p: q[0] - p['x'])", ValueError, "params"),
    ("event(energy, transition=jm.Transition(off='rods'))", ValueError, "energy"),
    # models, parts, studies
    ("models.make('nope', {})", ValueError, "name"),
    ("models.make('chain', {'rods': 3})", ValueError, "rods"),
    ("models.chain(links=0)", ValueError, "links"),
    ("models.pendulum().initial({'angle': 0.0})", ValueError, "start"),
    ("parts.Mechanism(parts.point_mass('ball', mass=1.0))", TypeError, "bodies"),
    ("ensemble.Moments(of=('q',))", errors.StudyError, "of"),
    ("ensemble.Study(model='pendulum', size=1, times=None, start={'theta': 0.3})", errors.StudyError, "start.theta"),
]
# fmt: on


@pytest.mark.skipif(os.environ.get("CHECK_TYPES") == "1", reason="beartype raises first")
@pytest.mark.parametrize(("call", "kind", "name"), CASES, ids=[call for call, *_ in CASES])
def test_a_bad_input_is_named(call: str, kind: type[Exception], name: str) -> None:
    with pytest.raises(kind) as caught:
        eval(call)
    assert re.search(rf"(^|[`' ]){re.escape(name)}($|[`'\[: ])", str(caught.value)), caught.value
