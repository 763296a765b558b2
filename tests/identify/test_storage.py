"""Fits in files: all fields are restored, and other files are refused."""

from dataclasses import fields, replace

import jax
import numpy as np
import pytest

import jaxmech as jm
from jaxmech import FixedSteps
from jaxmech.identify import Fit, Recording, TrustRegion
from jaxmech.identify.fit import fit
from tests.identify.swings import made_up


def lagrangian(q, v, t, p):
    return (v @ v - p["spring"]["k"] * q @ q) / 2


def observe(q, v, t, p):
    return q + p["offsets"][0]


@pytest.fixture(scope="module")
def found():
    """A real fit, nested parameters and all, too few steps to converge."""
    ts = np.linspace(0.0, 1.0, 11)
    noise = np.random.default_rng(0).normal(0, 1e-2, (4, 11))
    swings = [
        Recording(ts, a * np.cos(3 * ts) + e, [a], [0.0], name=f"swing {a}")
        for a, e in zip((0.5, 1.0, 1.5, 2.0), noise, strict=True)
    ]
    params = {"spring": {"k": 8.0}, "offsets": (np.zeros(1), 3, "steel")[:2]}
    return fit(
        jm.System(lagrangian, coordinates=("x",)), swings[:3], params, observe=observe,
        validation=swings[3:], optimizer=TrustRegion(evaluations=3), steps=FixedSteps(1)
    )  # fmt: skip


def test_everything_comes_back(found, tmp_path) -> None:
    again = Fit.load(found.save(tmp_path / "fit.npz"))
    assert repr(again) == repr(found)
    assert repr(again.identifiability) == repr(found.identifiability)
    assert again.warnings == found.warnings != ()
    assert jax.tree.structure(again.params) == jax.tree.structure(found.params)
    for field in fields(found):
        if field.name != "end":
            same(getattr(again, field.name), getattr(found, field.name))
    np.testing.assert_array_equal(again.validation_errors, found.validation_errors)
    with pytest.raises(ValueError, match="from a file"):
        again.function(lambda p: p["spring"]["k"])


def same(a, b) -> None:
    """The same bits."""
    if isinstance(b, dict):
        assert list(a) == list(b)
        for key in b:
            same(a[key], b[key])
    elif isinstance(b, tuple | list):
        assert len(a) == len(b)
        for x, y in zip(a, b, strict=True):
            same(x, y)
    elif hasattr(b, "__dataclass_fields__"):
        for field in fields(b):
            same(getattr(a, field.name), getattr(b, field.name))
    elif b is None or isinstance(b, str):
        assert a == b
    else:
        np.testing.assert_array_equal(np.asarray(a), np.asarray(b))
        assert np.asarray(a).dtype == np.asarray(b).dtype


def test_parameters_keep_their_structure(tmp_path) -> None:
    params = {
        "a": [1, (2.5, None, True)],
        "b": {"c": np.float32(0.1), 3: np.arange(6).reshape(2, 3)},
        "d": [],
        "e": float("inf"),
    }
    again = Fit.load(replace(made_up(), params=params).save(tmp_path / "fit.npz")).params
    same(again, params)
    assert type(again["a"][0]) is int
    assert type(again["a"][1]) is tuple
    assert again["a"][1][2] is True


def test_files_of_others_and_damage(tmp_path) -> None:
    """A flipped bit gives the same fit or the documented error, never another fit."""
    file = made_up().save(tmp_path / "fit.npz")
    whole, data = Fit.load(file), file.read_bytes()
    refused = 0
    for place in range(0, len(data), 29):
        changed = bytearray(data)
        changed[place] ^= 1 << place % 8
        file.write_bytes(changed)
        try:
            again = Fit.load(file)
        except ValueError as error:
            refused += "damaged or another file" in str(error)
        else:
            assert repr(again) == repr(whole)
            np.testing.assert_array_equal(again.values, whole.values)
    assert refused > 50
    np.savez(tmp_path / "other.npz", x=np.ones(3))
    for content in (b"", b"no fit", data[: len(data) // 2], (tmp_path / "other.npz").read_bytes()):
        file.write_bytes(content)
        with pytest.raises(ValueError, match="damaged or another file"):
            Fit.load(file)
