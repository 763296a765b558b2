"""The measured pendulums: models, friction laws and their choice; real recordings if present."""

import json
from dataclasses import replace
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxmech as jm
from experiments.measured_pendulum.__main__ import main
from experiments.measured_pendulum.pendulums import PENDULUMS, rig
from experiments.measured_pendulum.study import LAWS, of_authors
from jaxmech.cli.fit import FitStudy, model
from jaxmech.config.toml import read
from jaxmech.identify.table import read_table

CONFIGS = Path(__file__).resolve().parents[1] / "configs"
# RMS errors of the published estimates [mrad]: mean over training segments, and validation segments
PUBLISHED = {
    "single": (123.0, [14.7, 20.5]),
    "double": (9.7, [4.36, 4.04, 3.43, 12.77]),
    "triple": (3.94, [3.46, 2.63, 1.92, 2.92]),  # of mean 2.73
}


SHORT = """
model = "{model}:single"
model_options = {{ law = "viscous" }}
initial_states = "fixed"

[data]
file = "single.npz"
columns = ["phi", "w"]
observed = ["phi"]
v0 = ["w"]
validation = ["validation"]
stride = 2

[steps]
per_save = 1
max_step = 5e-3
"""


@pytest.fixture
def config(tmp_path: Path) -> Path:
    """Four segments without noise, each slower, of a single pendulum with dry friction and drag."""
    subject = rig("single", "coulomb+drag").subject
    p = {**subject.params, "c": 6e-4, "d": 2e-5}
    ts = jnp.linspace(0.0, 1.0, 201)

    def swing(w: jax.Array) -> jax.Array:
        sol = jm.simulate(
            subject.system, jnp.array([np.pi]), w[None], ts, p, steps=jm.FixedSteps(1)
        )
        return jnp.concatenate([sol.q, sol.v], axis=1)

    swings = np.array(jax.vmap(swing)(jnp.array([11.0, 9.0, 7.0, 6.0, 5.0])))
    swings[4, 190:] = np.nan
    estimate = [p["a"], p["m"], p["I"], 2e-4, p["g"]]
    np.savez(
        tmp_path / "single.npz",
        train=swings[:4],
        validation=swings[4:],
        dt=5e-3,
        published_estimate=estimate,
    )
    file = tmp_path / "short.toml"
    file.write_text(SHORT.format(model=CONFIGS / "measured_pendulum.py"), encoding="utf-8")
    return file


@pytest.mark.slow
def test_the_study_finds_the_law_and_compares_both_coordinates(
    config: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    main(config, tmp_path / "run", laws=("viscous", "coulomb+drag"), folds=2)
    errors = json.loads((tmp_path / "run" / "errors.json").read_text(encoding="utf-8"))
    for part, count in (("train", 4), ("validation", 1)):
        found = {who: np.array(errors[who][part]) for who in ("published", "angles", "bodies")}
        assert found["published"].shape == (count,)
        assert found["published"].min() > 1e-3
        assert max(found["angles"].max(), found["bodies"].max()) < 2e-5  # steps of 1 and of 5 ms
    shown = capsys.readouterr().out
    assert "coulomb+drag has the smallest error" in shown
    assert "| bodies | 0.00 (" in shown
    assert {"angles", "bodies"} <= {file.name for file in (tmp_path / "run").iterdir()}


@pytest.mark.slow
def test_measured_laws_converge() -> None:
    file = CONFIGS / "measured_pendulum_single.toml"
    data = read(file, FitStudy).data
    if not (CONFIGS / data.file).is_file():
        pytest.skip(f"the recordings {data.file} are missing")
    laws = "viscous", "lifting+drag", "stribeck+drag"
    recordings = read_table(replace(data, start_sd=None), CONFIGS).train
    settings = {"steps": jm.FixedSteps(1, max_step=4e-3)}
    found = {
        (law, states): jm.fit(
            rig("single", law).subject, recordings, initial_states=states, **settings
        )
        for law in laws
        for states in ("fixed", "free")
    }
    assert all(one.converged for one in found.values())
    # the smallest errors in all runs so far
    np.testing.assert_allclose(1e3 * found["lifting+drag", "fixed"].errors.mean(), 1.848, atol=2e-3)
    np.testing.assert_allclose(1e3 * found["lifting+drag", "free"].errors.mean(), 0.876, atol=2e-3)


@pytest.mark.parametrize("name", PENDULUMS)
def test_the_configurations_are_in_order(name: str) -> None:
    file = CONFIGS / f"measured_pendulum_{name}.toml"
    study = read(file, FitStudy)
    assert study.model_options["law"] in LAWS[name]
    subject = model(study, CONFIGS).other
    expected = rig(name, study.model_options["law"]).subject
    assert tuple(subject.free) == tuple(expected.free)
    assert subject.bounds == expected.bounds
    low = [subject.bounds[one][0] for one in subject.free if one in subject.bounds]
    assert low == pytest.approx([max(bound, 0.0) for bound in low])


@pytest.mark.parametrize("name", PENDULUMS)
def test_the_published_estimates_err_as_published(name: str) -> None:
    """Compared with the figures that come with the recordings: whole segments, then means."""
    file = CONFIGS / f"measured_pendulum_{name}.toml"
    study = read(file, FitStudy)
    data = CONFIGS / study.data.file
    if not data.is_file():
        pytest.skip(f"the recordings {data.name} are missing in {data.parent}")
    whole = read_table(replace(study.data, stride=1), CONFIGS)
    with np.load(data) as arrays:
        found = of_authors(name, arrays["published_estimate"], whole)
    train, validation = PUBLISHED[name]
    np.testing.assert_allclose(1e3 * found["train"].mean(), train, rtol=6e-3)
    np.testing.assert_allclose(1e3 * found["validation"], validation, atol=0.06)
