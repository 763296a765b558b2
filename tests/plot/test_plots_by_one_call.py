"""`sol.plot()`, `fit.plot()` and `results.plot()`: their panels, curves, names and units."""

from collections.abc import Iterator
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
import pytest
from matplotlib.figure import Figure

import jaxmech as jm
from jaxmech.ensemble import Results, Study, Times, Uniform, open_results, run_study
from jaxmech.status import Status
from tests.identify.swings import made_up

TS = jnp.linspace(0.0, 2.0, 21)
MODEL = jm.models.pendulum()
LOWEST = jm.Event(lambda q, v, t, p: q[0], name="lowest", keep=4)


def swing(speed: float) -> jm.Solution:
    q, v = MODEL.initial()
    return jm.simulate(MODEL.system, q, v + speed * jnp.stack([-q[1], q[0]]), TS, events=LOWEST,
                       params=MODEL.params)  # fmt: skip


@pytest.fixture(scope="module")
def motions() -> jm.Solution:
    return jax.vmap(swing)(jnp.linspace(0.0, 0.3, 14))


@pytest.fixture(scope="module")
def motion(motions: jm.Solution) -> jm.Solution:
    return jax.tree.map(lambda x: x[0], motions)


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Results:
    out = tmp_path_factory.mktemp("study")
    start = {"theta": Uniform(-1.0, 1.0)}
    run_study(Study(model="pendulum", size=8, times=Times(end=1.0, saves=6), start=start), out)
    return open_results(out)


@pytest.fixture(autouse=True)
def _close() -> Iterator[None]:
    yield
    plt.close("all")


def test_a_motion_has_its_columns_by_unit_and_its_audit(motion: jm.Solution) -> None:
    panels = motion.plot()
    assert list(panels.axes) == ["coordinates [m]", "rates [m/s]", "energy drift", "residual"]
    coordinates, rates, *_, residual = panels.axes.values()
    assert coordinates.get_legend_handles_labels()[1] == ["x1", "x2"]
    assert np.array_equal(coordinates.lines[1].get_ydata(), motion["x2"])
    assert rates.get_ylabel() == "rates [m/s]"
    assert (coordinates.get_xlabel(), residual.get_xlabel()) == ("", "t [s]")
    marked = [line.get_xdata()[0] for line in coordinates.lines[2:]]
    t = motion.events["lowest"].t
    assert marked == pytest.approx(t[np.isfinite(t)])


def test_impacts_are_vertical_and_reach_the_stop() -> None:
    floor = jm.Unilateral(lambda q, t, p: q[0], restitution=0.5, name="floor")
    drop = jm.System(lambda q, v, t, p: v @ v / 2 - 9.81 * q[0], [floor], coordinates={"h": "m"})
    sol = jm.simulate(drop, [1.0], [0.0], jnp.linspace(0, 0.8, 9))
    panels = sol.plot()
    height, rate = (panels.axes[name].lines[0].get_xydata() for name in ("h [m]", "h.rate [m/s]"))
    fall, speed = np.sqrt(2 / 9.81), np.sqrt(2 * 9.81)
    assert np.nanmin(height[:, 1]) == pytest.approx(0.0, abs=1e-9)
    jump = rate[np.isclose(rate[:, 0], fall)]
    np.testing.assert_allclose(jump[[0, -1], 1], [-speed, speed / 2], rtol=1e-6)
    assert np.all(np.diff(rate[np.isfinite(rate[:, 0]), 0]) >= 0)


def test_a_batch_is_drawn_by_quantiles_without_those_that_failed(motions: jm.Solution) -> None:
    status = motions.status.at[3].set(Status.NONFINITE)
    failed = eqx.tree_at(lambda sol: sol.status, motions, status)
    panels = failed.plot("x2")
    line = panels.axes["x2"].lines[0]
    good = np.delete(np.asarray(motions["x2"]), 3, axis=0)
    assert np.array_equal(line.get_ydata(), np.median(good, axis=0))
    assert panels.figure.get_suptitle() == "14 trajectories, 1 failed and left out"
    few = jax.tree.map(lambda x: x[:5], motions).plot("x2").axes["x2"]
    assert len(few.lines) == 5


def test_pairs_are_paths_and_sections(motion: jm.Solution, motions: jm.Solution) -> None:
    path = motion.plot(("x1", "x2")).axes["x2 over x1"]
    assert (path.get_xlabel(), path.get_ylabel()) == ("x1 [m]", "x2 [m]")
    assert path.get_aspect() == 1.0
    section = motions.plot(("x2", "x1.rate"), event="lowest").axes["x1.rate over x2"]
    assert (section.get_xlabel(), section.get_ylabel()) == ("x2 [m]", "x1.rate [m/s]")
    dots = section.lines[2]
    assert dots.get_linestyle() == "None"
    assert np.array_equal(dots.get_ydata(), motions.events["lowest"].v[2, :, 0], equal_nan=True)


def test_a_fit_shows_measurements_and_residuals() -> None:
    panels = made_up().plot(sensors=["angle [rad]"])
    assert panels.axes["swing"].get_ylabel() == "measured and fitted [rad]"
    assert len(panels.axes["swing"].lines) == 2
    assert panels.axes["swing residuals"].get_xlabel() == "t [s]"


def test_a_study_shows_quantiles(study: Results) -> None:
    panels = study.plot()
    assert [ax.get_ylabel() for ax in panels.axes.values()] == ["x1 [m]", "x2 [m]"]
    assert "8 trajectories" in panels.figure.get_suptitle()
    assert list(study.plot("x2").axes) == ["x2"]
    with pytest.raises(ValueError, match="'x3'"):
        study.plot("x3")


def test_panels_are_written_and_shown(motion: jm.Solution, tmp_path: Path) -> None:
    panels = motion.plot("x1")
    assert plt.get_fignums() == [panels.figure.number]
    assert panels.save(tmp_path / "x.png").stat().st_size > 1000
    figure = Figure()
    assert motion.plot("x1", figure=figure).figure is figure


def test_what_a_controller_counts_is_not_drawn() -> None:
    plant = jm.System(
        lambda q, v, t, p: v @ v / 2, force=lambda q, v, t, p: p["u"][None], coordinates={"x": "m"}
    )
    spring = jm.Controller(lambda m, mem, t, p: (-4 * m[0][0], mem), 0.05, delay=0.03, name="u")
    sol = jm.simulate(jm.controlled(plant, spring), [1.0], [0.0], jnp.linspace(0, 1, 11))
    assert "u.sample" in sol.names
    assert list(sol.plot().axes)[:3] == ["x [m]", "x.rate [m/s]", "u"]
