"""Random inputs: white noise and random phases, as draws of a study and as `simulate` sees them."""

from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxmech as jm
from jaxmech.config.errors import StudyError
from jaxmech.config.toml import ConfigError, read
from jaxmech.ensemble import RandomPhases, Study, WhiteNoise, open_results, run_study
from jaxmech.ensemble.draws.inputs import TimeRange
from jaxmech.ensemble.store.layout import array_of
from jaxmech.system import Signal
from tests.ensemble.studies import CAR, replayed

STUDY = """
model = "car.py:car"
size = 6
block = 6

[times]
end = 1.9
saves = 20

[steps]
per_save = 4

[coordinates]
height = 0.0

[parameters]
m = 1.0
c = 1.0
k = 40.0

[inputs.road]
"""
NOISE = "kind = 'white-noise'\nintensity = 2e-6\ninterval = 0.1\n"
PHASES = "kind = 'random-phases'\nfile = 'road.csv'\ncolumn = 'road'\n"
TIMES = np.arange(41) / 20
ROAD = 0.01 + 0.02 * np.random.default_rng(0).normal(size=41)
SIGNAL = Signal(TIMES, ROAD)


def study_of(folder: Path, text: str) -> Path:
    (folder / "car.py").write_text(CAR)
    rows = np.stack([TIMES, ROAD], axis=1)
    np.savetxt(folder / "road.csv", rows, delimiter=",", header="t,road", comments="")
    (folder / "study.toml").write_text(STUDY + text)
    return folder / "study.toml"


@pytest.mark.parametrize(("text", "shape"), [(NOISE, (19,)), (PHASES, (20,))])
def test_a_trajectory_has_an_input_of_its_own(
    text: str, shape: tuple[int, ...], tmp_path: Path
) -> None:
    config, out = study_of(tmp_path, text), tmp_path / "run"
    run_study(read(config, Study), out, folder=tmp_path)
    draws = np.asarray(array_of(open_results(out).group, "parameter_road")[...])
    assert draws.shape == (6, *shape)
    trajectory = replayed(out, 4)
    assert all(trajectory.compared.values())
    if text == NOISE:
        road = Signal(0.1 * np.arange(19), np.sqrt(2e-6 / 0.1) * draws[4], "hold")
    else:
        spectrum = np.fft.rfft(ROAD)
        spectrum[1:] = abs(spectrum[1:]) * np.exp(1j * draws[4])
        road = Signal(TIMES, np.fft.irfft(spectrum, 41))
    np.testing.assert_allclose(trajectory.params["road"].values, road.values, atol=1e-12)
    system = trajectory.subject.system
    params = {"m": 1.0, "c": 1.0, "k": 40.0, "road": road}
    ts = np.linspace(0.0, 1.9, 20)
    sol = jm.simulate(system, [0.0], [0.0], ts, params, steps=jm.FixedSteps(4))
    np.testing.assert_allclose(trajectory.values["q"], sol.q, atol=1e-9)
    assert np.abs(sol.q).max() > 1e-4
    if text == NOISE:
        assert "input road from white noise" in (out / "summary.txt").read_text()


def test_white_noise_has_its_intensity() -> None:
    process = WhiteNoise(intensity=3.0, interval=0.05).process(TimeRange(1.0, 2.0, ""))
    assert process.shape == (20,)
    assert process.signal.interpolation == "hold"
    np.testing.assert_allclose(np.asarray(process.signal.ts)[[0, -1]], [1.0, 1.95])
    assert float(process.values(jnp.ones(20))[3]) ** 2 * 0.05 == pytest.approx(3.0)


def test_random_phases_keep_the_spectrum_of_the_recording() -> None:
    process = RandomPhases(file="a.csv", column="x").process(SIGNAL)
    values = process.values(jnp.linspace(0.0, 6.0, 20))
    np.testing.assert_allclose(abs(np.fft.rfft(values)), abs(np.fft.rfft(ROAD)), atol=1e-12)
    recorded = process.values(jnp.angle(jnp.fft.rfft(jnp.asarray(ROAD)))[1:])
    np.testing.assert_allclose(recorded, ROAD, atol=1e-12)
    low = RandomPhases(file="a.csv", column="x", highest=2.0).process(SIGNAL)
    assert low.shape == (4,)  # of 1/2.05 s
    kept = np.fft.rfft(low.values(jnp.zeros(4)))[5:]
    np.testing.assert_allclose(kept, np.fft.rfft(ROAD)[5:], atol=1e-12)


def test_random_amplitudes_make_a_gaussian_process_of_the_same_spectrum() -> None:
    process = RandomPhases(file="a.csv", column="x", amplitudes="random").process(SIGNAL)
    numbers = jax.random.normal(jax.random.key(0), (20_000, *process.shape))
    values = np.asarray(jax.vmap(process.values)(numbers))
    assert values.mean() == pytest.approx(ROAD.mean(), abs=1e-4)
    np.testing.assert_allclose(values.var(0), ROAD.var(), rtol=0.06)
    power = (abs(np.fft.rfft(values)) ** 2).mean(0)[1:]
    np.testing.assert_allclose(power, abs(np.fft.rfft(ROAD))[1:] ** 2, rtol=0.06)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (NOISE.replace("0.1", "0.0"), "inputs.road.interval must be above 0, but is 0.0"),
        (NOISE.replace("white-noise", "white"), "did you mean `white-noise`"),
        (PHASES.replace("'road.csv'", "['road.csv']"), "must be a single file"),
        (PHASES + "highest = 0.1", "must be at least 0.487805, the lowest frequency"),
    ],
)
def test_a_wrong_process_is_named(text: str, message: str, tmp_path: Path) -> None:
    config = study_of(tmp_path, text)
    with pytest.raises((StudyError, ConfigError), match=message):
        run_study(read(config, Study), tmp_path / "run", folder=tmp_path)
    assert not (tmp_path / "run").exists()
