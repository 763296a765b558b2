"""Models by name, and messages for misuse."""

import numpy as np
import pytest

from jaxmech.models import CATALOGUE, make, pendulum


@pytest.mark.parametrize("name", CATALOGUE)
def test_every_model_has_its_name_and_a_summary(name: str) -> None:
    model = make(name, {})
    assert model.name == name
    assert len(model.summary.splitlines()) == 1


def test_the_catalogue_cannot_be_changed() -> None:
    with pytest.raises(TypeError):
        CATALOGUE["mine"] = pendulum


def test_initial_uses_defaults_for_missing_values() -> None:
    q, v = pendulum().initial({"theta": 0.0}, {"l": 2.0})
    np.testing.assert_allclose(q, [0.0, -2.0])
    np.testing.assert_allclose(v, [0.0, 0.0])
