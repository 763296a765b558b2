"""The command `check`, and how it finds a system and its state."""

import numpy as np
import pytest

from jaxmech.cli.main import main
from jaxmech.cli.resolve import load_state
from jaxmech.config.errors import InputError

SPRING = """
import jax.numpy as jnp
import jaxmech as jm


def lagrangian(q, v, t, p):
    return 0.5 * p["m"] * v @ v - 0.5 * p["k"] * q @ q


system = jm.System(lagrangian, coordinates=("x", "y"))
tied = jm.System(
    lagrangian, [jm.Holonomic(lambda q, t, p: q[0] - q[1], name="tie")], coordinates=("x", "y")
)
q0 = [0.3, 0.1]
params = {"m": 2.0, "k": 8.0}
"""


@pytest.fixture
def spring(tmp_path):
    path = tmp_path / "spring.py"
    path.write_text(SPRING)
    return path


def test_a_model_is_checked_by_its_name(capsys) -> None:
    assert main(["check", "pendulum", "--fast"]) == 0
    shown = capsys.readouterr().out
    assert "  holonomic     rod (1)" in shown
    assert "  findings      0, of which 0 serious" in shown


@pytest.mark.slow
def test_a_bad_start_sets_the_exit_code(capsys, spring) -> None:
    assert main(["check", f"{spring}:tied", "--fast"]) == 1
    shown = " ".join(capsys.readouterr().out.split())
    assert (
        "serious: the state violates constraint 'tie' at the level of its position by 0.2" in shown
    )
    assert "which changes x by -0.1, y by +0.1" in shown
    spring.write_text(SPRING.replace("[0.3, 0.1]", "[0.1, 0.1]"))
    assert main(["check", f"{spring}:tied", "--fast"]) == 0


@pytest.mark.slow
def test_everything_is_checked_without_fast(capsys, spring) -> None:
    assert main(["check", f"{spring}:system"]) == 0
    shown = capsys.readouterr().out
    assert "  findings      0, of which 0 serious" in shown
    (gradients,) = [line for line in shown.splitlines() if line.startswith("GradientCheck:")]
    assert gradients.startswith("GradientCheck: 3 of 3 derivatives agree")


def test_gradients_in_contact_are_left_to_a_motion(capsys, spring) -> None:
    gap = "\nfloor = jm.Unilateral(lambda q, t, p: q[0], restitution=0.5, name='floor')\n"
    resting = "landed = jm.System(lagrangian, [floor], coordinates=('x', 'y'))\n"
    spring.write_text(SPRING.replace("[0.3, 0.1]", "[0.0, 0.1]") + gap + resting)
    assert main(["check", f"{spring}:landed"]) == 0
    shown = capsys.readouterr()
    assert "use check_gradients" in shown.err
    assert "GradientCheck" not in shown.out


def test_the_state_of_a_file(spring) -> None:
    _, found = load_state("spring.py:system", spring.parent)
    np.testing.assert_array_equal(found.q, [0.3, 0.1])
    np.testing.assert_array_equal(found.v, [0.0, 0.0])
    assert found.t == 0
    assert found.params == {"m": 2.0, "k": 8.0}
    spring.write_text(SPRING.replace("q0 =", "start ="))
    with pytest.raises(InputError, match="a System without a state; write q0"):
        load_state("spring.py:system", spring.parent)
