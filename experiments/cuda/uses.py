"""What users do on a GPU, and the same on the CPU of its machine: motions, a study and a fit."""

import os
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

import jax
import jax.numpy as jnp
import numpy as np

import jaxmech as jm
from experiments.cases import made, states
from experiments.cuda import fits, speed
from experiments.cuda.agreement import LARGEST, SINGLE, difference
from jaxmech.ensemble import Moments, Normal, Study, Times, Uniform, run_study

Row = dict[str, Any]
BATCH = 10**5
STUDY = 10**6  # trajectories
SAVES, STEPS, END = 101, 1000, 2.0  # steps of the whole motion, and its end [s]
SHOWN = 1000  # trajectories that are compared
DRAWN = 1e-9  # allowed difference of the statistics of a study, which adds in another order
CHOSEN = 1e-6  # and of steps that a tolerance chooses
SENSITIVE = 1e-8  # of a gradient along 2.7 s of swings from any angle, which amplify round-off


class Use(NamedTuple):
    """A call as users write it, with the number of its trajectories and of their steps."""

    name: str
    call: Callable[..., Any]
    args: tuple[Any, ...]
    trajectories: int
    steps: int | None
    allowed: float
    type: str = "float64"


def measured() -> Iterator[Row]:
    """Yield two rows for each use; that of the GPU has the difference from the CPU.

    Kernels are kept on disk, as they are by default: the second study finds those of the first.
    """
    with (
        tempfile.TemporaryDirectory() as folder,
        patch.dict(os.environ, JAXMECH_KERNEL_CACHE=folder),
    ):
        for use in uses():
            row, expected = clocked(use, "cpu")
            yield {"route": "CPU", **row}
            row, results = clocked(use, speed.GPU)
            yield {"route": "GPU", **row, **difference(results, expected, use.allowed)}


def clocked(use: Use, platform: str) -> tuple[Row, list[np.ndarray]]:
    """Measure the first call, and the fastest of those after it; return its first results, too."""
    device = jax.devices(platform)[0]
    with jax.default_device(device):
        args = jax.device_put(use.args, device)
        first, best, result = speed.fastest(use.call, args)
    row = {
        "use": use.name,
        "device": device.device_kind,
        "type": use.type,
        "trajectories": use.trajectories,
        "steps": use.steps,
        "first_seconds": first,
        "seconds": best,
        "trajectories_per_second": use.trajectories / best,
    }
    if use.steps is not None:
        row["steps_per_second"] = use.steps * use.trajectories / best
    leaves = [x for x in jax.tree.leaves(result) if isinstance(x, jax.Array | np.ndarray)]
    return row, [np.asarray(x[:SHOWN] if x.ndim else x) for x in leaves]


def uses() -> Iterator[Use]:
    """Make the uses, one after the other."""
    model = made("double_pendulum")
    system, params = model.system, dict(model.params)
    q, v = states("double_pendulum", np.linspace(0.0, 1.0, BATCH))
    ts = jnp.linspace(0.0, END, SAVES)
    fixed = jm.FixedSteps(STEPS // (SAVES - 1))

    def motion(q: Any, v: Any, ts: Any = ts, **how: Any) -> Any:
        same = jax.tree.map(lambda x: jnp.asarray(x, q.dtype), params)
        sol = jm.simulate(system, q, v, ts.astype(q.dtype), same, **how)
        return sol.q, sol.v, sol.status, sol.events

    def saves(q: Any, v: Any) -> Any:
        return motion(q, v, steps=fixed)

    def crossing(q: Any, v: Any, t: Any, p: Any) -> Any:
        return q[0]

    def located(q: Any, v: Any) -> Any:
        steps, events = jm.FixedSteps(STEPS), (jm.Event(crossing),)
        return motion(q, v, ts[:: SAVES - 1], steps=steps, events=events)

    def adaptive(q: Any, v: Any) -> Any:
        return motion(q, v, ts[::10], steps=jm.Adaptive())

    one, exact = (q[0], v[0]), LARGEST["solution"]
    single = tuple(x.astype(np.float32) for x in (q, v))
    batched = jax.jit(jax.vmap(saves))
    yield Use("one trajectory, 101 saves", jax.jit(saves), one, 1, STEPS, exact)
    yield Use("101 saves", batched, (q, v), BATCH, STEPS, exact)
    yield Use("101 saves", batched, single, BATCH, STEPS, SINGLE, "float32")
    yield Use("101 saves, step chosen", jax.vmap(motion), (q, v), BATCH, None, exact)
    yield Use("an event", jax.jit(jax.vmap(located)), (q, v), BATCH, STEPS, CHOSEN)
    yield Use("adaptive steps", jax.jit(jax.vmap(adaptive)), (q, v), BATCH, None, CHOSEN)
    yield from contacts()
    yield Use("study, statistics", study, (), STUDY, STEPS, DRAWN)
    yield from evaluations()


def contacts() -> Iterator[Use]:
    """Make motions between two stops of an angle, and with friction in both joints."""
    name = "double_pendulum_angles"
    model, ts = made(name), jnp.linspace(0.0, END, 2)
    start = states(name, np.linspace(0.0, 1.0, BATCH))
    stops = jm.Unilateral(
        lambda q, t, p: 0.5 + jnp.array([1.0, -1.0]) * q[0], restitution=0.5, name="stops"
    )
    friction = jm.DryFriction(lambda q, v, t, p: v, static=0.5, name="friction")
    for contact in (stops, friction):
        system = replace(model.system, unilateral=(contact,))

        def motion(q: Any, v: Any, system: Any = system) -> Any:
            sol = jm.simulate(system, q, v, ts, model.params, steps=jm.FixedSteps(STEPS))
            return sol.q, sol.v, sol.status, sol.events.counts

        call = jax.jit(jax.vmap(motion))
        yield Use(contact.name, call, start, BATCH, STEPS, CHOSEN)


def study() -> list[np.ndarray]:
    """Compute a study of double pendulums from the draws to the statistics on disk."""
    angle = Uniform(low=-0.5, high=0.5)
    asked = Study(
        model="double_pendulum",
        size=STUDY,
        seed=1,
        times=Times(end=END, saves=5),
        steps=jm.FixedSteps(STEPS // 4),
        start={"theta1": angle, "theta2": angle},
        parameters={name: Normal(sd=0.02, relative=True) for name in ("m1", "m2", "l1", "l2")},
        store="statistics",
        statistics={"motion": Moments(of="q")},
    )
    with tempfile.TemporaryDirectory() as folder:
        run_study(asked, Path(folder, "run"))
        with np.load(Path(folder, "run", "statistics.npz")) as stored:
            return [stored[name] for name in sorted(stored.files)]


def evaluations() -> Iterator[Use]:
    """Make the evaluations of a fit, whose data are on the device of the call."""
    on_device = cache(lambda device: fits.evaluations())
    for name in ("forward run", "reverse gradient", "Jacobian"):

        def evaluate(name: str = name) -> Any:
            functions, y = on_device(jax.config.jax_default_device)
            return functions[name](y)

        steps = fits.SAMPLES - 1
        yield Use(f"fit, {name}", evaluate, (), fits.RECORDINGS, steps, SENSITIVE)
