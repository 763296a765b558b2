"""Models by name, and messages for misuse."""

import jax.numpy as jnp
import numpy as np
import pytest

from jaxmech.models import CATALOGUE, chain, four_bars, make, pendulum


@pytest.mark.parametrize("name", CATALOGUE)
def test_every_model_has_its_name_and_a_summary(name: str) -> None:
    model = make(name, {})
    assert model.name == name
    assert len(model.summary.splitlines()) == 1


def test_unknown_model_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ValueError, match=r"`name` must be a known model, but is 'nope'.*andrews"):
        make("nope", {})


def test_unknown_option_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ValueError, match=r"`chain` \(links\), but has 'rods'"):
        make("chain", {"rods": 3})
    with pytest.raises(ValueError, match=r"`pendulum` \(none\), but has 'links'"):
        make("pendulum", {"links": 3})


@pytest.mark.parametrize("size", [0, -1, True])
def test_impossible_sizes_are_refused(size: int) -> None:
    with pytest.raises(ValueError, match="`links` must be a positive integer"):
        chain(links=size)
    with pytest.raises(ValueError, match="`bars` must be a positive integer"):
        four_bars(bars=size)


def test_the_catalogue_cannot_be_changed() -> None:
    with pytest.raises(TypeError):
        CATALOGUE["mine"] = pendulum


def test_initial_uses_defaults_for_missing_values() -> None:
    q, v = pendulum().initial({"theta": 0.0}, {"l": 2.0})
    np.testing.assert_allclose(q, [0.0, -2.0])
    np.testing.assert_allclose(v, [0.0, 0.0])


def test_initial_refuses_unknown_names() -> None:
    with pytest.raises(ValueError, match="`start` must name only theta, omega, but has 'angle'"):
        pendulum().initial({"angle": 0.0})
    with pytest.raises(ValueError, match="`params` must name only m, l, g, but has 'L'"):
        pendulum().initial(params={"L": jnp.ones(())})
