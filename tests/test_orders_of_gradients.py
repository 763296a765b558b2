"""Gradients taken one after the other in all orders: none may affect the next one.

JAX caches traced functions, so a differentiation rule that depends on which derivative is taken
first gives right numbers in most orders and wrong ones in some.
"""

from collections.abc import Callable
from itertools import permutations
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree

from jaxmech import FixedSteps, Holonomic, System, simulate
from tests.small import along, rod
from tests.test_gradients import central

TS = np.linspace(0.0, 0.3, 3)
X = {"g": 9.81, "l": 2.0, "m": 1.3, "rate": 0.5}
RATES = np.array([0.5, -0.2])
Loss = Callable[[Any], Any]


def system() -> System:
    """A new system, of which JAX has traced nothing."""
    return System(along, [Holonomic(rod)], coordinates=("x", "y"))


def start(x: Any) -> tuple[Any, Any]:
    return x["l"] * np.array([0.6, -0.8]), x["l"] * x["rate"] * np.array([0.8, 0.6])


def loss_of(system: System) -> Loss:
    """Parameters as arguments, and the energy in the loss."""

    def loss(x: Any) -> Any:
        params = {name: x[name] for name in ("g", "l", "m")}
        sol = simulate(system, *start(x), TS, params, steps=FixedSteps(2))
        return sol.q[-1] @ np.array([1.0, 2.0]) + sol.v[1, 0] + 0.1 * sol.energy[-1]

    return loss


def closing_loss() -> Loss:
    """Parameters that the functions of the system close over."""

    def loss(x: Any) -> Any:
        made = System(
            lambda q, v, t, p: along(q, v, t, x),
            [Holonomic(lambda q, t, p: rod(q, t, x))],
            coordinates=("x", "y"),
        )
        sol = simulate(made, *start(x), TS, steps=FixedSteps(2))
        return sol.q[-1] @ np.array([1.0, 2.0]) + sol.v[1, 0] + 0.1 * sol.energy[-1]

    return loss


class Programs:
    """Compiled programs by their text, so that a program that is traced again is not recompiled."""

    def __init__(self) -> None:
        self.known: dict[str, Any] = {}

    def run(self, fn: Callable[[Any], Any], x: Any) -> Any:
        """fn(x), traced anew."""
        lowered = jax.jit(fn).lower(x)
        text = lowered.as_text()
        if text not in self.known:
            self.known[text] = lowered.compile()
        return self.known[text](x)


PROGRAMS = Programs()


def by_all(loss: Loss) -> Any:
    return jax.grad(loss)(X)


def by_one(loss: Loss) -> Any:
    return {"g": jax.grad(lambda g: loss({**X, "g": g}))(X["g"])}


def by_start(loss: Loss) -> Any:
    return {"rate": jax.grad(lambda rate: loss({**X, "rate": rate}))(X["rate"])}


def checkpointed(loss: Loss) -> Any:
    return jax.grad(jax.checkpoint(loss))(X)


def both_compiled(loss: Loss) -> Any:
    def both(x: Any) -> Any:
        one = {"l": jax.grad(lambda l: loss({**x, "l": l}))(x["l"])}  # noqa: E741
        return jax.grad(jax.checkpoint(loss))(x), one

    whole, one = PROGRAMS.run(both, X)
    np.testing.assert_allclose(one["l"], whole["l"], rtol=1e-12)
    return whole


def of_a_batch(loss: Loss) -> Any:
    slopes = jax.vmap(lambda rate: jax.grad(loss)({**X, "rate": rate}))(RATES)
    return jax.tree.map(lambda slope: slope[0], slopes)


def of_a_scan(loss: Loss) -> Any:
    def total(x: Any) -> Any:
        def one(so_far: Any, _: None) -> tuple[Any, None]:
            return so_far + jax.checkpoint(loss)(x), None

        return jax.lax.scan(one, 0.0, None, length=2)[0] / 2

    return PROGRAMS.run(jax.grad(total), X)


def through_a_batch(loss: Loss) -> Any:
    def total(x: Any) -> Any:
        return (
            jax.vmap(lambda rate: loss({**x, "rate": rate}))(jnp.stack([x["rate"]] * 2)).sum() / 2
        )

    return jax.grad(total)(X)


def checkpointed_by_equinox(loss: Loss) -> Any:
    return eqx.filter_grad(eqx.filter_checkpoint(loss))(jax.tree.map(jnp.asarray, X))


def twice(loss: Loss) -> Any:
    slope = jax.grad(lambda g: loss({**X, "g": g}))
    return {"g": jax.jvp(slope, (X["g"],), (1.0,))[0]}


CHEAP = [
    by_all, by_one, by_start, checkpointed, checkpointed_by_equinox, of_a_batch, through_a_batch,
]  # fmt: skip
STEPS = [*(step for step in CHEAP if step is not by_start), both_compiled, of_a_scan]


@pytest.fixture(scope="module")
def expected() -> dict[str, np.ndarray]:
    """The gradients by fourth-order central differences."""
    x, unravel = ravel_pytree(jax.tree.map(jnp.asarray, X))
    loss = loss_of(system())
    return unravel(central(lambda x: loss(unravel(x))[None], x, h=1e-3)[0])


def walk(steps: list[Any], count: int) -> list[Any]:
    """A sequence that contains every `count` different steps in every order.

    Orders of one step less are the places and orders of `count` the ways from one to the next; as
    many lead to a place as away from it, so one walk goes along each once (Hierholzer's algorithm).
    """
    ways = {place: [c for c in steps if c not in place] for place in permutations(steps, count - 1)}
    trail, found = [next(iter(ways))], []
    while trail:
        place = trail[-1]
        if ways[place]:
            trail.append((*place[1:], ways[place].pop()))
        else:
            found.append(trail.pop())
    found.reverse()
    return [*found[0][:-1], *(place[-1] for place in found)]


def assert_right(step: Any, loss: Loss, expected: Any, said: str) -> None:
    for name, slope in step(loss).items():
        np.testing.assert_allclose(
            slope, expected[name], rtol=1e-7, atol=1e-9, err_msg=f"{name} of {said}"
        )


@pytest.mark.parametrize(
    ("steps", "count"),
    [(CHEAP, 2), pytest.param(STEPS, 2, marks=pytest.mark.slow)],
    ids=["pairs", "compiled"],
)
def test_all_orders(steps: list[Any], count: int, expected: Any) -> None:
    """Each of the 42 or 56 orders is right after all the orders before it, with warm caches.

    A second derivative comes in between, after which the walk continues.
    """
    loss, way = loss_of(system()), walk(steps, count)
    orders = zip(*(way[k:] for k in range(count)), strict=False)
    assert set(orders) == set(permutations(steps, count))
    names: list[str] = []
    for step in (*way[:20], twice, *way[18:]):
        names.append(step.__name__)
        assert_right(step, loss, expected, " after ".join(names[:-4:-1]))


@pytest.mark.slow
def test_from_cleared_caches(expected: Any) -> None:
    """Functions of a system that close over the parameters have the same gradients."""
    jax.clear_caches()
    loss = closing_loss()
    for step in (by_one, checkpointed):
        assert_right(step, loss, expected, step.__name__)
