"""The study of synthetic recordings with few repeats."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from experiments.recovery import __main__ as recovery
from experiments.recovery.mechanisms import Case, double_pendulum, four_bar
from experiments.recovery.recordings import CORRELATION, OUTLIERS, noise_like
from experiments.recovery.study import Recovery, Row, Series, in_words, run
from experiments.recovery.vehicles import cart_pole, rolling_disc
from jaxmech.config.toml import ConfigError, read

T = jnp.zeros(())
CONFIGS = Path(__file__).resolve().parents[1] / "configs"
SHORT = """
exact = 2

[[series]]
mechanism = "double pendulum"
starts = "exact"
repeats = 12
recordings = 2
duration = 0.5

[[series]]
mechanism = "pendulum"
starts = "positions"
repeats = 30
recordings = 2
noise = 0.01
duration = 0.5
"""


@pytest.mark.parametrize("made", [double_pendulum, four_bar, cart_pole])
def test_starts_are_consistent(made: Callable[[], Case]) -> None:
    """Starts are consistent for every initial state that may be drawn."""
    case = made()
    rng, p = np.random.default_rng(0), case.params
    x, rate = (
        jnp.asarray(rng.uniform(*ends, (20, case.minimal.n)))
        for ends in zip(case.low, case.high, strict=True)
    )
    q, v = jax.vmap(lambda x, rate: case.start(x, rate, p))(x, rate)
    for one, speed in zip(q, v, strict=True):
        position, violated = jax.jvp(
            lambda q: case.system.position_level(q, T, p), (one,), (speed,)
        )
        np.testing.assert_allclose(position, 0.0, atol=1e-14)
        np.testing.assert_allclose(violated, 0.0, atol=1e-13)


def test_the_four_bar_has_two_equations_too_many() -> None:
    case = four_bar()
    q, _ = case.start(jnp.array([0.4]), jnp.array([1.0]), case.params)
    A = jax.jacfwd(lambda q: case.system.position_level(q, T, case.params))(q)
    assert A.shape == (10, 9)
    assert np.linalg.matrix_rank(A) == 8


@pytest.mark.slow
def test_study_on_a_short_configuration(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = tmp_path / "short.toml"
    config.write_text(SHORT, encoding="utf-8")
    recovery.main(config, tmp_path / "run")
    facts = json.loads((tmp_path / "run" / "results.json").read_text(encoding="utf-8"))
    result, positions = facts["results"]
    assert result["converged"] == positions["converged"] == 1.0
    assert result["warned"] == positions["warned"] == 0.0
    assert [row["name"] for row in result["rows"]] == ["c1", "c2", "l1", "l2", "m2"]
    assert max(row["error"] for row in result["rows"]) < 1e-6
    scores = np.array([row["scores"] for row in result["rows"]])
    assert scores.shape == (5, 12)
    np.testing.assert_allclose(np.sqrt(np.mean(scores**2)), 1.0, atol=0.4)
    assert abs(result["noise"] - 1) < 0.1
    for row in positions["rows"]:
        assert row["error"] < 1e-6
        assert row["coverage"] >= 0.8
        np.testing.assert_allclose(row["scatter"], row["stated"], rtol=0.4)
    assert abs(positions["noise"] - 1) < 0.1
    assert (tmp_path / "run" / "quantiles.png").stat().st_size > 10_000
    shown = capsys.readouterr().out
    assert shown.count("| double pendulum | exact | 1 mrad | 2 | 5 |") == 1
    table = (tmp_path / "run" / "table.md").read_text(encoding="utf-8")
    assert table.count("| double pendulum | exact | 1 mrad | 2 | ") == 6
    assert table.count("| pendulum | positions | 10 mrad | 2 | ") == 3


@pytest.mark.slow
def test_study_with_measured_starts_and_a_closed_loop() -> None:
    series = (Series(mechanism="four-bar", starts="measured", repeats=20),)
    (result,) = run(Recovery(series=series, exact=1))
    assert result.converged == 1.0
    for row in result.rows:
        assert row.error < 1e-6
        assert row.coverage >= 0.8  # of 20
        np.testing.assert_allclose(row.scatter, row.stated, rtol=0.5)


UNLIKE = {"cart-pole": (5e-4, 6e-2), "rolling disc": (5e-4, 5e-4, 6e-2, 6e-2)}


@pytest.mark.slow
@pytest.mark.parametrize("mechanism", UNLIKE)
@pytest.mark.parametrize("kind", ["white", "outliers", "correlated"])
def test_unlike_sensors_a_recorded_force_outliers_and_correlated_noise(
    mechanism: Any, kind: Any
) -> None:
    series = Series(
        mechanism=mechanism, starts="positions", repeats=20, recordings=1, kind=kind,
        noise=UNLIKE[mechanism], duration=5.0, rate=50.0,
    )  # fmt: skip
    (result,) = run(Recovery(series=(series,), exact=1))
    assert result.converged == 1.0
    assert abs(result.noise - 1) < 0.2
    for row in result.rows:
        assert row.error < 1e-6
        assert row.coverage >= 0.8  # of 20


def test_noise_in_words() -> None:
    series = Series(
        mechanism="rolling disc", starts="positions", kind="outliers", noise=UNLIKE["rolling disc"]
    )
    assert in_words(series, rolling_disc()) == "0.5 mm, 60 mrad, 1 % outliers, Huber"
    noise = noise_like(np.random.default_rng(0), (40_000, 2), "correlated")
    correlation = (noise[1:] * noise[:-1]).mean(0) / (noise**2).mean(0)
    np.testing.assert_allclose(correlation, CORRELATION, atol=0.01)
    noise = noise_like(np.random.default_rng(0), (40_000, 1), "outliers")
    # beyond five sizes there are 87 % of the samples with thirty times the noise
    np.testing.assert_allclose((np.abs(noise) > 5).mean(), 0.87 * OUTLIERS, rtol=0.1)


def test_a_missed_target_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    good = Row("l1", 0.8, 1e-8, 0.95, 1e-4, 1e-4, [0.0])
    assert good.missed == []
    assert replace(good, error=2e-6).missed == ["l1: relative error 2.0e-06 without noise"]
    assert replace(good, error=float("nan")).missed
    assert replace(good, coverage=0.5).missed == ["l1: the intervals contain the truth in 50.0%"]
    assert replace(good, coverage=1.0).missed

    (tmp_path / "a.toml").write_text("", encoding="utf-8")
    for rows, code in (([good], 0), ([replace(good, coverage=0.5)], 1)):
        results = [
            recovery.Result(Series(mechanism="pendulum", starts="exact"), 1.0, 0.0, 1.0, "", rows)
        ]
        monkeypatch.setattr(recovery, "run", lambda *_, results=results, **__: results)
        assert recovery.main(tmp_path / "a.toml", tmp_path / "run") == code


def test_unknown_keys_are_refused(tmp_path: Path) -> None:
    config = tmp_path / "wrong.toml"
    config.write_text("spreads = 2\n", encoding="utf-8")
    with pytest.raises(ConfigError, match=r"wrong.toml:1: spreads .*did you mean `spread`"):
        recovery.main(config, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_the_configuration_is_the_default() -> None:
    assert read(CONFIGS / "recovery.toml", Recovery) == Recovery()
