"""Names of arrays: what a study may not name them, and what becomes of the names of a model."""

from pathlib import Path

import jaxmech.ensemble as je
from tests.ensemble.studies import computed

ROBOT = """
import jaxmech as jm

robot = jm.System(
    lambda q, v, t, p: 0.5 * p["mass.left/arm"] * v @ v,
    constraints=[jm.Holonomic(lambda q, t, p: q[:1] - q[1:], name="left/tie")],
    coordinates=("left/x", "right/x"),
)
"""
STUDY = """
model = "spring.py:robot"
size = 3
save = ["q", "multipliers"]

[times]
end = 1.0
saves = 2

[steps]
per_save = 1

[coordinates]
"left/x" = { distribution = "uniform", low = 0.0, high = 1.0 }
"right/x" = 0.5

[parameters]
"mass.left/arm" = 2.0

[statistics]
pull = { statistic = "moments", of = "multipliers_left.tie" }
"""


def test_slashes_of_a_model_are_points_in_its_arrays(tmp_path: Path) -> None:
    found = je.open(computed(tmp_path, STUDY, spring=ROBOT))
    assert found["coordinate_left.x"].long_name == "initial coordinate left/x"
    assert float(found["parameter_mass.left.arm"]) == 2.0
    assert found["multipliers_left.tie"].shape == (3, 2, 1)
    assert found.coordinate.values.tolist() == ["left/x", "right/x"]
    assert "pull_mean" in found


def test_a_statistic_does_not_hide_an_array(tmp_path: Path) -> None:
    study = je.Study(
        model="pendulum",
        size=4,
        times=je.Times(end=1.0, saves=3),
        events={"lowest": je.StudyEvent(of="x1")},
        statistics={"lowest": je.FirstPassage(of="lowest")},
    )
    je.run_study(study, tmp_path / "run")
    found = je.open(tmp_path / "run")
    assert found.lowest_count.dims == ("trajectory",)
    assert int(found.statistic_lowest_count) == 4
    assert int(found.lowest_never) == 4 - int((found.lowest_count > 0).sum())
