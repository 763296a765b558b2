"""The benchmark: its measurements, crashing routes, and written results."""

import json
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

from experiments.speed import __main__ as benchmark
from experiments.speed import benchmarks, cases, gradients, jax_routes, workers
from experiments.speed.benchmarks import Measured, Results
from experiments.speed.compare import compare
from experiments.speed.contest import Entrant, Outcome, contest, difference
from experiments.speed.report import as_json, content
from experiments.speed.routes import Unavailable, runs_on
from experiments.speed.settings import Speed, Timing
from experiments.speed.straight_line import rollout_kernel
from experiments.speed.workers import Job, JobError, Worker, mean_seconds
from jaxmech.cli.main import main
from jaxmech.config.errors import InputError
from jaxmech.config.toml import ConfigError, read
from tests.speed import jobs

ROOT = Path(__file__).resolve().parents[2]
TINY = """\
parts = ["table"]
timing = { rounds = 2, least = 0.0 }
[table]
routes = ["jaxmech, bare kernel", "Cholesky"]
cases.chain_1 = { batches = [3], steps = 4, step = 0.01 }
"""
ALL_PARTS = """
[scaling]
routes = ["jaxmech, bare kernel"]
precisions = ["float64", "float32"]
cases.chain_1 = { batches = [3, 2000], steps = 4, step = 0.01 }
cases.dense_5 = { batches = [3], steps = 4, step = 0.01 }
[gradient]
cases.chain_1 = { batches = [3], steps = 4, step = 0.01 }
"""


def written(folder: Path, text: str = TINY) -> Path:
    path = folder / "tiny.toml"
    path.write_text(text, encoding="utf-8")
    return path


def benched(folder: Path, text: str, monkeypatch: pytest.MonkeyPatch) -> dict:
    monkeypatch.chdir(ROOT)
    assert main(["bench", str(written(folder, text)), "--out", str(folder / "run")]) == 0
    return json.loads((folder / "run" / "speed.json").read_text(encoding="utf-8"))


@pytest.mark.slow
def test_a_tiny_table_from_the_outside(tmp_path, monkeypatch, capfd) -> None:
    found = benched(tmp_path, TINY, monkeypatch)
    assert found["finished"]
    assert {p.name for p in (tmp_path / "run").iterdir()} == {"speed.json", "speed.md", "speed.png"}
    assert found["devices"]["cpu"]["jax"] == jax.__version__
    assert 1e8 < found["devices"]["cpu"]["peak"]["float64"] < 1e14
    (case,) = found["table"]
    assert (case["n"], case["m"], case["batch"], case["steps"]) == (2, 1, 3, 4)
    assert (case["platform"], case["precision"]) == ("cpu", "float64")
    for outcome in case["outcomes"].values():
        assert outcome["problem"] == ""
        assert len(outcome["seconds"]) == 2
        assert outcome["steps_per_second"] == 3 * 4 / min(outcome["seconds"])
        work = outcome["steps_per_second"] * case["operations"]
        assert outcome["share_of_peak"] == work / found["devices"]["cpu"]["peak"]["float64"]
        assert outcome["compile_seconds"] > 0
        assert outcome["difference"] < 1e-12
        assert outcome["position_residual"] < 1e-6
    shown = (tmp_path / "run" / "speed.md").read_text(encoding="utf-8")
    assert "\n| Cholesky | " in shown
    assert "Cholesky" in capfd.readouterr().out


@pytest.mark.slow
def test_all_parts(tmp_path, monkeypatch) -> None:
    text = TINY.replace('["table"]', '["scaling", "gradient"]').replace("rounds = 2", "rounds = 1")
    found = benched(tmp_path, text + ALL_PARTS, monkeypatch)
    assert found["table"] == []
    shapes = [(x["precision"], x["n"], x["batch"]) for x in found["scaling"]]
    expected = [(2, 3), (2, 2000), (5, 3)]
    assert shapes == [(kind, *x) for kind in ("float64", "float32") for x in expected]
    forms = found["gradients"][0]["outcomes"]
    assert list(forms) == list(gradients.FORMS)
    assert forms[gradients.OUTSIDE]["difference"] < 1e-12
    *less, most = gradients.SENSITIVITIES
    assert all(forms[form]["difference"] < gradients.TOLERANCE for form in less)
    assert forms.pop(most)["problem"] == "unavailable: its parameters are 3 numbers"
    measured = [x for part in ("scaling", "gradients") for x in found[part]]
    assert all(o["best"] > 0 for x in measured for o in x["outcomes"].values())
    assert (tmp_path / "run" / "scaling.png").stat().st_size > 10_000


@pytest.mark.slow
def test_a_worker_survives_its_jobs() -> None:
    worker = Worker(limit=120.0)
    try:
        for job, problem in (
            (jobs.absent, "unavailable: no such thing here"),
            (jobs.raising, "failed: ValueError: first line"),
            (jobs.dying, "crashed (SIGKILL)"),
        ):
            with pytest.raises(JobError) as caught:
                worker.prepare(job)
            assert str(caught.value) == problem
        seconds, arrays = worker.prepare(partial(jobs.given, 1.0, 2.0))
        assert seconds == 0.5
        assert [x.tolist() for x in arrays] == [[1.0, 2.0], [0.0, 0.0]]
        assert 0 < worker.seconds(0.0) < 1
    finally:
        worker.close()


@pytest.mark.parametrize(
    ("at_least", "expected", "runs"),
    [
        (0.0, 9.0, 1),  # the first run fills the time
        (10.0, 4.0, 4),  # it does not, and only warms up
    ],
)
def test_a_short_run_warms_up_before_it_counts(monkeypatch, at_least, expected, runs) -> None:
    clock, durations = [0.0], [9.0, 4.0, 4.0, 4.0, 4.0]

    def run() -> None:
        clock[0] += durations.pop(0)

    monkeypatch.setattr(workers.time, "perf_counter", lambda: clock[0])
    assert mean_seconds(run, at_least) == expected
    assert len(durations) == 5 - runs


def test_a_worker_without_an_answer_is_given_up() -> None:
    worker = Worker(limit=0.1)
    with pytest.raises(JobError, match=r"took longer than 0\.1 s"):
        worker.prepare(jobs.slow)
    worker.close()


class FakePool:
    """Workers in this process: each returns its array and its seconds for a run."""

    def __init__(self, **given: tuple[float, list[float]]) -> None:
        self.given, self.order = given, []

    def worker(self, name: str) -> "FakeWorker":
        return FakeWorker(self, name)


class FakeWorker:
    def __init__(self, pool: FakePool, name: str) -> None:
        self.pool, self.name = pool, name

    def prepare(self, job: Job) -> tuple[float, list[np.ndarray]]:
        return 1.0, [np.array([1.0, self.pool.given[self.name][0]])]

    def seconds(self, at_least: float) -> float:
        self.pool.order.append(self.name)
        times = self.pool.given[self.name][1]
        if not times:
            raise JobError("crashed (SIGABRT)")
        return times.pop(0)


def entrants(*names: str) -> dict[str, Entrant]:
    return {name: Entrant(lambda: None, tolerance=1e-9) for name in names}


def test_routes_that_disagree_or_crash_are_not_timed() -> None:
    pool = FakePool(a=(1.0, [3.0, 2.0, 4.0]), b=(1.0 + 1e-8, [1.0]), c=(1.0, [5.0]))
    outcomes: dict[str, Outcome] = {}
    contest(entrants("a", "b", "c"), pool, Timing(rounds=3), outcomes)
    assert pool.order == ["a", "c", "a", "c", "a"]
    assert outcomes["a"].best == 2.0
    assert outcomes["b"].problem == "disagrees by 1.0e-08"
    assert outcomes["c"].problem == "crashed (SIGABRT)"
    assert outcomes["b"].best is outcomes["c"].best is None


def test_the_reference_is_the_first_of_the_strictest() -> None:
    pool = FakePool(a=(1.0 + 1e-6, [1.0]), b=(1.0, [1.0]), c=(1.0 + 1e-8, [1.0]))
    outcomes: dict[str, Outcome] = {}
    loose = {"a": Entrant(lambda: None, tolerance=1e-5)}
    contest(loose | entrants("b", "c"), pool, Timing(rounds=1), outcomes)
    assert outcomes["a"].difference == pytest.approx(1e-6)
    assert [outcomes[name].problem for name in "abc"] == ["", "", "disagrees by 1.0e-08"]


def test_slow_routes_stop_after_the_second_round() -> None:
    pool = FakePool(a=(1.0, [0.1] * 4), b=(1.0, [9.0] * 4))
    outcomes: dict[str, Outcome] = {}
    contest(entrants("a", "b"), pool, Timing(rounds=4, most=5.0), outcomes)
    assert (len(outcomes["a"].seconds), len(outcomes["b"].seconds)) == (4, 2)


@pytest.mark.parametrize(
    ("array", "expected"),
    [
        ([1.0, -4.0], 0.0),
        ([1.0, -4.4], 0.1),
        ([np.nan, -4.0], np.inf),
        ([1.0, -np.inf], np.inf),
    ],
)
def test_differences_are_relative_to_the_largest_entry(array, expected) -> None:
    reference = [np.array([1.0, -4.0]), np.zeros(3)]
    found = difference([np.array(array), np.full(3, 1e-12)], reference)
    assert found == pytest.approx(max(expected, 1e-12 / 4e-6))


@pytest.mark.parametrize("name", [*cases.NAMES, "chain_3", "dense_4"])
def test_starts_are_consistent_seeded_and_all_different(name: str) -> None:
    case = cases.make(name, batch=5, steps=1, step_size=1e-3)
    q0, v0 = cases.states(case)
    assert q0.shape == v0.shape == (5, case.model.system.n)
    outcome = Outcome()
    benchmarks.residuals(case)(outcome, [q0, v0])
    assert max(outcome.position_residual or 0, outcome.velocity_residual) < 1e-13
    assert len(np.unique(np.hstack([q0, v0]), axis=0)) == 5
    assert all(map(np.array_equal, cases.states(case), (q0, v0)))
    assert not np.array_equal(cases.states(case, seed=2)[1], v0)


@pytest.mark.slow
@pytest.mark.parametrize("route", ["pseudoinverse", "library_cholesky", "with_diffrax"])
def test_rivals_reach_the_states_of_simulate(route: str) -> None:
    if route == "with_diffrax":
        pytest.importorskip("diffrax", reason="diffrax is not installed: see the extra `bench`")
    case = cases.make("double_pendulum", batch=2, steps=7, step_size=0.02)
    start = cases.states(case)
    expected = jax_routes.simulated(case, *start, projection=None).run()
    prepared = getattr(jax_routes, route)(case, *start)
    assert prepared.compile_seconds > 0
    assert difference(prepared.run(), expected) < 1e-13


@pytest.mark.slow
def test_the_gradient_is_the_derivative_of_the_mean() -> None:
    case = cases.make("chain_1", batch=2, steps=3, step_size=0.1)

    def mean(g: float) -> float:
        params = {**case.model.params, "g": g}
        other = replace(case, model=replace(case.model, params=params))
        return float(np.mean(gradients.prepare(gradients.FORWARD, other, 1).run()))

    slope = (mean(9.81 + 1e-4) - mean(9.81 - 1e-4)) / 2e-4
    assert min(case.model.params) == "g"
    for form in (gradients.INSIDE, gradients.OUTSIDE, *list(gradients.SENSITIVITIES)[:3]):
        prepared = gradients.prepare(form, case, 1)
        np.testing.assert_allclose(prepared.compared(prepared.run())[0], slope, rtol=1e-6)
    with pytest.raises(Unavailable, match="its parameters are 3 numbers"):
        gradients.prepare(list(gradients.SENSITIVITIES)[3], case, 1)


def interrupted_contest(after: int) -> Callable[..., None]:
    """A contest with its own figures, which is interrupted after several cases."""
    calls = []

    def run(entrants: dict, pool: object, timing: Timing, outcomes: dict, **rest: object) -> None:
        calls.append(entrants)
        for name in entrants:
            problem = "unavailable: no such thing" if name == "pinv" else ""
            outcomes[name] = Outcome(problem, 0.1, 0.0, 1e-12, 1e-11)
            if not problem:
                outcomes[name].seconds.append(0.01 * len(outcomes))
            if len(calls) > after:
                raise KeyboardInterrupt

    return run


def known_device(platform: str, name: str = "some device") -> dict[str, Any]:
    """What is known about a device before anything is measured on it."""
    facts = {"platform": platform, "device": name, "processor": name, "driver": "580.1"}
    return {**facts, "jax": "1", "python": "3", "peak": {"float64": 1e9, "float32": 2e9}}


def test_what_is_measured_before_an_interruption_is_written(tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.setattr(benchmarks, "contest", interrupted_contest(after=1))
    monkeypatch.setattr(benchmarks, "present", lambda devices: {"cpu": known_device("cpu")})
    text = TINY.replace('"Cholesky"]', '"Cholesky", "pinv"]')
    text += "cases.chain_2 = { batches = [3], steps = 4, step = 0.01 }\n"
    assert benchmark.main(written(tmp_path, text), tmp_path / "run") == 130
    found = json.loads((tmp_path / "run" / "speed.json").read_text(encoding="utf-8"))
    assert not found["finished"]
    assert [len(x["outcomes"]) for x in found["table"]] == [3, 1]
    shown = (tmp_path / "run" / "speed.md").read_text(encoding="utf-8")
    assert "| Cholesky | 0.001 (2×) | – |" in shown
    assert "- chain of 1 link, pinv: unavailable: no such thing" in shown
    assert (tmp_path / "run" / "speed.png").stat().st_size > 10_000
    assert "Interrupted" in capsys.readouterr().err


def machine(folder: Path, name: str, seconds: float) -> Path:
    """The file of a machine with a given time for a run."""
    results = Results(read(written(folder), Speed), {"cuda": known_device("cuda", name)})
    for batch in (1000, 100_000):
        for precision in ("float64", "float32"):
            case = cases.make("chain_1", batch, steps=10, step_size=0.01)
            outcome = Outcome(compile_seconds=0.5, seconds=[seconds * batch])
            measured = Measured(case, "cuda", precision, 50.0, {"jaxmech, bare kernel": outcome})
            results.scaling.append(measured)
    path = folder / f"{name}.json"
    path.write_text(as_json(content(results)), encoding="utf-8")
    return path


def test_machines_are_compared(tmp_path, monkeypatch, capsys) -> None:
    files = [machine(tmp_path, "slow", 1e-6), machine(tmp_path, "fast", 2.5e-7)]
    assert compare(files, tmp_path / "both") == 0
    shown = capsys.readouterr().out
    assert "- B: " in shown
    assert "fast, 1 G/s in float64, 2 G/s in float32, driver 580.1, jax 1, Python 3" in shown
    row = "| chain of 1 link | 100,000 | float64 | 10 (50 %, 0.5 s) | 40 (2e+02 %, 0.5 s) | 4× |"
    assert row in shown
    assert (tmp_path / "both" / "compare.png").stat().st_size > 10_000
    with pytest.raises(InputError, match="two different devices"):
        compare(files[:1], tmp_path / "one")
    (tmp_path / "other.json").write_text("{}")
    with pytest.raises(InputError, match=r"other\.json is not a speed\.json"):
        compare([files[0], tmp_path / "other.json"], tmp_path / "two")


def test_slow_cases_are_left_out() -> None:
    def chain(batch: int) -> Any:
        return cases.make("chain_1", batch, steps=10, step_size=0.01)

    outcomes = {"pinv": Outcome(seconds=[1.0])}
    few, many = (Measured(chain(n), "cpu", "float64", None, outcomes) for n in (10, 10_000))
    assert benchmarks.expected(chain(100_000), "pinv", [few, many]) == pytest.approx(10.0)
    assert benchmarks.expected(chain(100_000), "pinv", [few]) == 0.0  # it does not fill a device
    assert benchmarks.expected(chain(100_000), "Cholesky", [few, many]) == 0.0


def test_rivals_that_are_not_in_jax_run_on_a_cpu_in_float64_only() -> None:
    for route, here, there in (("pinv", True, True), ("straight-line C", True, False)):
        assert runs_on(route, "cpu", "float64") is here
        assert runs_on(route, "cuda", "float64") is there
        assert runs_on(route, "cpu", "float32") is there


def test_operations_of_a_step_do_not_depend_on_the_number_of_steps() -> None:
    """Loops count as often as they run: the remainder is the start of the trajectory."""
    few, many = (
        rollout_kernel(case, *(x[0] for x in cases.states(case)))[0]
        for case in (cases.make("chain_1", 1, steps, 1e-3) for steps in (64, 128))
    )
    assert few.operations == many.operations
    per_step = (many.executed - few.executed) / 64
    assert per_step < few.operations
    assert 0 <= few.executed - 64 * per_step < few.operations


@pytest.mark.parametrize("name", ["speed", "speed_quick"])
def test_the_configurations_of_the_project_are_read(name: str) -> None:
    config = read(ROOT / "configs" / f"{name}.toml", Speed)
    assert config.parts == ("table", "scaling", "gradient")


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("chain_1", "chain_0", "tiny.toml:5: table.cases.chain_0 is not a case"),
        ('"Cholesky"', '"Cholesy"', 'tiny.toml:4: table.routes[1] must be "jaxmech, default"'),
        (
            '"Cholesky"',
            '"jaxmech, bare kernel"',
            'tiny.toml:4: table.routes must name "jaxmech, bare kernel" only once',
        ),
        ('["table"]', '["gradient"]', "tiny.toml: gradient must be given, because it is"),
        ("[3]", "[3, 0]", "tiny.toml:5: table.cases.chain_1.batches[1] must be at least 1"),
        ("step = 0.01", "step = 0", "tiny.toml:5: table.cases.chain_1.step must be positive"),
        ("rounds = 2", "round = 2", "tiny.toml:2: timing.round is not a known key"),
    ],
)
def test_wrong_configurations_are_refused(tmp_path, old, new, message) -> None:
    config = written(tmp_path, TINY.replace(old, new))
    with pytest.raises(ConfigError) as caught:
        benchmark.main(config, tmp_path / "run")
    assert str(caught.value).startswith(f"{tmp_path}/{message}")
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_outside_a_clone_the_command_says_so(tmp_path, monkeypatch, capfd) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["bench"]) == 2
    assert "the benchmark belongs to a clone of the repository" in capfd.readouterr().err
    assert main(["bench", str(ROOT / "configs" / "none.toml")]) == 2
    assert "none.toml: cannot be read" in capfd.readouterr().err


def test_the_command_explains_itself(capsys) -> None:
    with pytest.raises(SystemExit):
        main(["bench", "--help"])
    shown = capsys.readouterr().out
    assert "configs/speed.toml" in shown
    assert max(map(len, shown.splitlines())) <= 110
