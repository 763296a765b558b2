"""Which parts read parameters, so that a mechanism of numbers alone is not traced."""

import jax

from jaxmech import parts as jp

BAR = jp.planar_body("bar", mass=1.0, inertia=0.1)


def test_only_mechanisms_that_may_read_parameters_are_traced(monkeypatch) -> None:
    traced = []
    shapes = jax.eval_shape
    monkeypatch.setattr(jax, "eval_shape", lambda *args: traced.append(args) or shapes(*args))
    hinge = jp.revolute("A", jp.ground, (0, 0), BAR, (-0.5, 0.0))
    numbers = {"coordinates": "bodies"}
    jp.Mechanism([BAR], [hinge], [jp.gravity()], **numbers)
    assert not traced
    jp.Mechanism([BAR], [hinge], [jp.gravity("g")], {"g": 9.81}, **numbers)
    assert traced
    traced.clear()
    jp.Mechanism([BAR], [hinge], [lambda q, v, t, p: -0.1 * v], **numbers)
    assert traced
