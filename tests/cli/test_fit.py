"""`jaxmech fit` from the outside: what it writes, what it refuses, and where it goes on."""

import json
import re
import shutil
import tomllib
import warnings
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from matplotlib.figure import Figure

from jaxmech import FixedSteps, Signal, simulate
from jaxmech.cli import fit as fit_module
from jaxmech.cli.fit import FitStudy, Outcome, model
from jaxmech.cli.main import main
from jaxmech.config import plain
from jaxmech.config.errors import Problem, StudyError
from jaxmech.config.load import load
from jaxmech.config.toml import key_lines, structure
from jaxmech.identify import Fit, MultiStart, Recording, Shooting
from jaxmech.identify.result import Predicted
from jaxmech.identify.uncertainty import uncertainty
from jaxmech.integrate import DormandPrince5
from jaxmech.plot.fit import fit_over_data, residuals
from tests.identify.swings import made_up

ROOT = Path(__file__).resolve().parents[2]
TRUTH = {"gravity": 9.6, "viscous": 0.06, "dry": 0.12}
EVERYTHING = """\
model = "swing.py:swing"
initial_states = "free"

[data]
file = "d.npz"
observed = [0, "y"]
noise_sd = [0.1, 0.2]
validation = ["validation"]
wraps = [0]
units = { y = "mm" }

[parameters]
free = ["arm"]
start.arm.l = 2.0
bounds.arm.l = [0, inf]
prior."arm.l" = [2.0, 0.1]

[optimizer]
evaluations = 50

[horizon]
length = 0.5

[method]
name = "DormandPrince5"

[steps]
per_save = 2
max_step = 0.01

[optimizer.starts]
count = 8
refine = 2
"""


class Done(NamedTuple):
    """A run that has been done once for all tests that look at it."""

    folder: Path
    out: str
    code: int


@pytest.fixture(scope="module")
def done(tmp_path_factory) -> Done:
    folder = copied(tmp_path_factory.mktemp("fit"))
    with pytest.MonkeyPatch.context() as patch, warnings.catch_warnings():
        warnings.filterwarnings("error", "the integration error is about")  # its steps are fine
        shown: list[str] = []
        patch.setattr("builtins.print", lambda *texts, **_: shown.extend(map(str, texts)))
        code = main(["fit", str(folder / "fit_pendulum.toml"), "--out", str(folder / "run")])
    return Done(folder, "\n".join(shown), code)


def copied(folder: Path, *changes: tuple[str, str]) -> Path:
    """The example of `configs/`, with changes of its configuration."""
    for suffix in ("py", "csv", "toml"):
        shutil.copyfile(ROOT / "configs" / f"fit_pendulum.{suffix}", folder / f"fit.{suffix}")
        (folder / f"fit.{suffix}").rename(folder / f"fit_pendulum.{suffix}")
    config = folder / "fit_pendulum.toml"
    text = config.read_text()
    for old, new in changes:
        assert old in text
        text = text.replace(old, new, 1)
    config.write_text(text)
    return folder


def test_the_example_finds_the_truth(done) -> None:
    assert done.code == 0, done.out
    fit = Fit.load(done.folder / "run" / "fit.npz")
    ends = fit.uncertainty["white noise"].interval(0.999)
    for name, (low, high) in zip(fit.names, ends, strict=True):
        assert low < TRUTH[name] < high
    assert [one.name for one in fit.validation.recordings] == ["5", "6"]
    assert 0.8 < fit.noise.size < 1.2


SLIDER = """
import jaxmech as jm

system = jm.System(
    lambda q, v, t, p: (p["m"] * v @ v - p["k"] * q @ q) / 2,
    force=lambda q, v, t, p: p["push"](t) + 0 * q - p["c"] * v,
    coordinates=("x",),
)
slider = jm.identify.Identifiable(system, {"m": 1.0, "k": 25.0, "c": 0.8})
"""
DRIVEN = """
model = "slider.py:slider"

[data]
file = "push.csv"
observed = ["x"]
time = "t"
inputs = { push = "tau" }
interpolation = "hold"

[steps]
per_save = 4
"""


def test_a_file_with_an_input(tmp_path) -> None:
    """A mass on a spring, pushed by a force that is held for 50 ms at a time."""
    truth = {"m": 1.3, "k": 30.0, "c": 0.4}
    (tmp_path / "slider.py").write_text(SLIDER)
    (tmp_path / "fit.toml").write_text(DRIVEN)
    system = load("slider.py:system", {}, tmp_path).system
    rng, ts = np.random.default_rng(0), np.arange(61) / 20
    push = Signal(ts, rng.normal(size=ts.size), "hold")
    sol = simulate(system, [0.1], [0.0], ts, {**truth, "push": push}, steps=FixedSteps(16))
    rows = np.stack([ts, np.asarray(sol.q)[:, 0] + rng.normal(0, 1e-4, ts.size), push.values], 1)
    np.savetxt(tmp_path / "push.csv", rows, delimiter=",", header="t,x,tau", comments="")
    assert main(["fit", str(tmp_path / "fit.toml"), "--out", str(tmp_path / "run")]) == 0
    fit = Fit.load(tmp_path / "run" / "fit.npz")
    ends = dict(zip(fit.names, fit.uncertainty["white noise"].interval(0.999), strict=True))
    for name, value in truth.items():
        low, high = ends[name]
        assert low < value < high < low + 0.1 * value


def test_what_is_in_the_run_folder(done) -> None:
    run = done.folder / "run"
    assert {p.name for p in run.iterdir() if p.name[0] != "."} == {
        "config.toml", "environment.json", "fit.npz", "model.py", "report.txt",
    }  # fmt: skip
    assert done.out.startswith((run / "report.txt").read_text())
    facts = json.loads((run / "environment.json").read_text())
    assert len(facts["data_sha256"]) == len(facts["model_sha256"]) == 64


def test_the_resolved_configuration_is_a_configuration(done) -> None:
    text = (done.folder / "run" / "config.toml").read_text()
    study = structure(tomllib.loads(text), FitStudy)
    assert plain(study) == tomllib.loads(text)
    assert study.model == "model.py:pendulum"


@pytest.mark.slow
def test_a_finished_run_is_only_shown_again(done, monkeypatch, capsys) -> None:
    monkeypatch.setattr(fit_module, "fit", None)
    config = str(done.folder / "fit_pendulum.toml")
    assert main(["fit", config, "--out", str(done.folder / "run")]) == 0
    assert capsys.readouterr().out.startswith((done.folder / "run" / "report.txt").read_text())


def test_another_configuration_needs_another_folder(done, tmp_path, capsys) -> None:
    folder = copied(tmp_path, ("per_save = 1", "per_save = 2"))
    shutil.copytree(done.folder / "run", folder / "run")
    data = ["--data", str(done.folder / "fit_pendulum.csv")]
    arguments = ["fit", str(folder / "fit_pendulum.toml"), "--out", str(folder / "run"), *data]
    assert main(arguments) == 2
    assert "`steps.per_save` is 1 there and 2 here" in capsys.readouterr().err
    copied(tmp_path)
    csv = done.folder / "fit_pendulum.csv"
    text = csv.read_text()
    try:
        csv.write_text(text + "\n")
        assert main(arguments) == 2
    finally:
        csv.write_text(text)
    assert "the measurements differ" in capsys.readouterr().err


def test_what_counts_as_success() -> None:
    outcome = Outcome("a fit", made_up())
    assert outcome.succeeded
    early = replace(made_up().optimization, converged=False)
    assert not replace(outcome, fit=replace(made_up(), optimization=early)).succeeded
    lost = replace(made_up().train, values=(np.full((3, 1), np.nan),))
    assert not replace(outcome, fit=replace(made_up(), validation=lost)).succeeded


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('["theta [rad]"]', '["thta"]', "toml:12: data.observed names 'thta', which is not a"),
        ('time = "t [s]"\n', "", "fit_pendulum.csv: when were the samples taken? Name the col"),
        ("[steps]", "[parameters]\nfree = ['dri']\n[steps]", "toml:20: parameters.free names"),
        ("[steps]", "[parameters.start]\ndri = 1\n[steps]", "toml:20: parameters.start.dri is"),
    ],
)
def test_bad_input_is_one_line(tmp_path, capsys, old, new, message) -> None:
    folder = copied(tmp_path, (old, new))
    arguments = ["fit", str(folder / "fit_pendulum.toml"), "--out", str(folder / "run")]
    assert main(arguments) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.startswith(f"jaxmech: {folder}/fit_pendulum.")
    assert message in shown.err
    assert "Traceback" not in shown.err
    if "toml:" in message and "toml: " not in message:
        assert not (folder / "run").exists()


@pytest.mark.slow
def test_a_configuration_with_everything() -> None:
    study = structure(tomllib.loads(EVERYTHING), FitStudy)
    assert study.parameters.bounds == {"arm.l": [0, float("inf")]}
    assert study.parameters.prior == {"arm.l": [2.0, 0.1]}
    made = study.settings()
    assert made.optimizer.evaluations == 50
    assert made.horizon == Shooting(0.5)
    assert made.optimizer.starts == MultiStart(8, 0.5, 2, 0)
    assert (made.method, made.steps) == (DormandPrince5(), FixedSteps(2, max_step=0.01))
    assert structure(plain(study), FitStudy) == study


def test_lines_of_tables_in_a_list() -> None:
    lines = key_lines("[[c]]\na = 1\n[[c]]\na = 2\n[c.d]\nb = 3")
    assert lines["c[0]", "a"] == 2
    assert lines["c[1]", "a"] == 4
    assert lines["c[1]", "d", "b"] == 6


def test_a_model_of_the_catalogue_needs_no_file(tmp_path) -> None:
    text = 'model = "pendulum"\n[data]\nfile = "d.npz"\nobserved = [0, 1]\n[parameters]\nfree = '
    study = structure(tomllib.loads(f'{text}["g"]\nstart = {{ g = 9.0 }}'), FitStudy)
    subject = model(study, tmp_path).other
    assert subject.free == ("g",)
    assert float(subject.params["g"]) == 9.0
    with pytest.raises(StudyError) as caught:
        model(structure(tomllib.loads(f'{text}["G"]'), FitStudy), tmp_path)
    (problem,) = caught.value.problems
    assert problem == Problem(
        ("parameters", "free"), "names 'G', which is not a parameter; Known: g, l, m"
    )


def test_pictures_show_what_they_should() -> None:
    fit = made_up()
    ax = Figure().subplots()
    fit_over_data(fit, ax=ax)
    dots, line = ax.lines
    np.testing.assert_array_equal(dots.get_ydata(), fit.train.recordings[0].observed[:, 0])
    np.testing.assert_array_equal(line.get_ydata(), fit.train.values[0][:, 0])
    ax = Figure().subplots()
    residuals(fit, ax=ax, sensors=["x"])
    np.testing.assert_allclose(ax.lines[-1].get_ydata(), fit.residuals[0][:, 0])
    assert ax.lines[-1].get_label() == "x"


def _fit_of_unlike_sensors() -> Fit:
    """A fit with residuals of 0.5 mm and 60 mrad."""
    ts, sizes = np.arange(50) / 10, np.array([5e-4, 6e-2, 5e-4])
    motion = np.stack([np.sin(ts), 9 * ts, np.cos(ts)], axis=1)
    noise = sizes * np.random.default_rng(0).normal(size=motion.shape)
    part = Predicted((Recording(ts, motion + noise, [0.0], [0.0], name="disc"),), (motion,))
    return replace(made_up(), train=part)


def test_recordings_of_one_name_have_panels_of_their_own() -> None:
    part = _fit_of_unlike_sensors().train
    twice = Predicted(part.recordings * 2, part.values * 2)
    panels = replace(made_up(), train=twice, validation=Predicted((), ())).plot()
    assert [*panels.axes] == ["disc", "disc residuals", "disc (2)", "disc (2) residuals"]


def test_sensors_of_unlike_units_have_their_own_axes() -> None:
    fit, names = _fit_of_unlike_sensors(), ("x [m]", "turn [rad]", "y [m]")
    for draw in (residuals, fit_over_data):
        first = draw(fit, sensors=names, ax=Figure().subplots())
        top, below = first.figure.axes
        assert first is top
        assert below.get_shared_x_axes().joined(top, below)
        assert (top.get_xlabel(), below.get_xlabel()) == ("", "t [s]")
        labels = [ax.get_ylabel().splitlines()[-1] for ax in (top, below)]
        assert labels == [f"{names[0]}, {names[2]}", names[1]]
    top, below = residuals(fit, sensors=names, ax=Figure().subplots()).figure.axes
    shown = [line.get_ydata() for line in (*top.lines[1:], *below.lines[1:])]
    np.testing.assert_array_equal(shown, fit.residuals[0].T[[0, 2, 1]])
    assert np.ptp(top.get_ylim()) < 0.1 * np.ptp(below.get_ylim())
    mm, rad = map(float, top.get_title().removeprefix("disc: RMS ").split(", "))
    np.testing.assert_allclose([mm, rad], [5e-4, 6e-2], rtol=0.2)


def test_correlations_as_numbers_and_what_is_not_determined() -> None:
    J = np.array([[1.0, 1.0, 0.0], [1.0, 0.0, 0.0], [0.0, 1.0, 0.0]])
    names, values, zeros = ("a", "b", "c"), np.ones(3), np.zeros(3)
    found = uncertainty(names, values, J, zeros, zeros)["white noise"].correlation
    np.testing.assert_allclose(found[0, 1], -0.5)
    assert np.isnan(found[2]).all()


def test_a_damaged_fit_and_an_edited_model_are_refused(done, tmp_path, capsys) -> None:
    out, file = tmp_path / "damaged", done.folder / "fit_pendulum.py"
    shutil.copytree(done.folder / "run", out)
    arguments = ["fit", str(done.folder / "fit_pendulum.toml"), "--out", str(out)]
    text = file.read_text()
    try:
        file.write_text(text.replace("jnp.cos(q[0])", "jnp.cos(1.01 * q[0])"))
        assert main([*arguments, "--data", str(done.folder / "fit_pendulum.csv")]) == 2
    finally:
        file.write_text(text)
    assert "the model file has changed" in capsys.readouterr().err
    data = (out / "fit.npz").read_bytes()
    (out / "fit.npz").write_bytes(data[: len(data) // 2])
    assert main(["report", str(out)]) == 2
    assert "but is damaged or another file" in capsys.readouterr().err


def test_the_page_about_a_fit(done, capsys) -> None:
    run = done.folder / "run"
    assert main(["report", str(run), "--out", str(done.folder / "fit.html")]) == 0
    assert capsys.readouterr().out.strip() == str(done.folder / "fit.html")
    page = (done.folder / "fit.html").read_text(encoding="utf-8")
    fit = Fit.load(run / "fit.npz")
    assert (
        f"Converged after {fit.optimization.evaluations} evaluations: {fit.optimization.reason}."
        in page
    )
    assert all(name in page for name in fit.names)
    assert "residuals over time" in page
    titles = re.findall(r"<(?:h2|summary)>([^<]*)<", page)
    assert titles[:3] == ["Measured and fitted", "Parameters", "Residuals"]
    assert "<h1>pendulum</h1>" in page
    assert "RMS errors of the recordings" in page
    assert not re.findall(r'(?:src|href)="(?!data:)', page)
