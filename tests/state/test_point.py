"""The nearest point of a surface compared with a search over coordinates of the surface.

A surface is given twice: by an equation level(y, a) = 0, which is all that `nearest` knows, and by
coordinates u, y = chart(u, a). In u the distance is a function without constraints, whose minima
are found from a dense grid by Newton's method, and whose derivatives are those of the minimizer.
"""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxmech import parts as jp
from jaxmech.compiler import explain
from jaxmech.state.nearest import nearest
from jaxmech.system import Levels
from jaxmech.system.known import mass_and_rows


class Surface(NamedTuple):
    """The same surface by an equation and by coordinates u, which a grid covers."""

    level: Callable[[Any, Any], Any]
    chart: Callable[[Any, Any], Any]
    grid: np.ndarray
    width: float


def curve(level: Any, x: Any, y: Any, grid: np.ndarray, width: float = 2.0) -> Surface:
    return Surface(
        lambda q, a: level(q[0], q[1], a)[None],
        lambda u, a: jnp.stack([x(u[0], a), y(u[0], a)]),
        grid[:, None],
        width,
    )


TURN = np.linspace(-np.pi, np.pi, 1500, endpoint=False)


def rods(q: Any, a: Any) -> Any:
    first, second = q[:2], q[2:] - q[:2]
    return jnp.stack([first @ first - a**2, second @ second - a**2]) / 2


def arms(u: Any, a: Any) -> Any:
    first = a * jnp.stack([jnp.cos(u[0]), jnp.sin(u[0])])
    return jnp.concatenate([first, first + a * jnp.stack([jnp.cos(u[1]), jnp.sin(u[1])])])


SURFACES = {
    "circle": curve(
        lambda x, y, a: x**2 + y**2 - a**2,
        lambda s, a: a * jnp.cos(s), lambda s, a: a * jnp.sin(s), TURN,
    ),
    "ellipse": curve(
        lambda x, y, a: x**2 / 4 + y**2 - a**2,
        lambda s, a: 2 * a * jnp.cos(s), lambda s, a: a * jnp.sin(s), TURN, 3.0,
    ),
    "thin ellipse": curve(
        lambda x, y, a: x**2 / 100 + y**2 - a**2,
        lambda s, a: 10 * a * jnp.cos(s), lambda s, a: a * jnp.sin(s), TURN, 5.0,
    ),
    "limacon": curve(
        lambda x, y, a: (x**2 + y**2 - 2 * a * x) ** 2 - 1.44 * a**2 * (x**2 + y**2),
        lambda s, a: a * (1.2 + 2 * jnp.cos(s)) * jnp.cos(s),
        lambda s, a: a * (1.2 + 2 * jnp.cos(s)) * jnp.sin(s), TURN,
    ),
    "double pendulum": Surface(
        rods, arms,
        np.stack(np.meshgrid(*[np.linspace(-np.pi, np.pi, 48, endpoint=False)] * 2), -1)
        .reshape(-1, 2), 1.5,
    ),
}  # fmt: skip
METRIC = np.array([1.0, 0.6, 2.5, 0.8])


def judged(surface: Surface, a: Any, guesses: np.ndarray) -> dict[str, np.ndarray]:
    """The failures of the nearest points, one boolean per guess and kind."""
    M, grid, a = jnp.diag(METRIC[: guesses.shape[1]]), jnp.asarray(surface.grid), jnp.asarray(a)

    def cost(u: Any, a: Any, guess: Any) -> Any:
        way = surface.chart(u, a) - guess
        return way @ (M @ way) / 2

    def refined(u: Any, guess: Any) -> tuple[Any, Any]:
        """A minimum near u by Newton's method, and the derivative of the point by a."""

        def newton(_: Any, u: Any) -> Any:
            step = jnp.linalg.solve(jax.hessian(cost)(u, a, guess), jax.grad(cost)(u, a, guess))
            return u - step

        u = jax.lax.fori_loop(0, 8, newton, u)
        curvature = jax.hessian(cost)(u, a, guess)
        by_a = jax.jacfwd(jax.grad(cost), 1)(u, a, guess)
        du = -jnp.linalg.solve(curvature, by_a)
        dy = jax.jvp(surface.chart, (u, a), (du, jnp.ones_like(a)))[1]
        return u, dy, curvature

    def one(guess: Any) -> dict[str, Any]:
        def found(a: Any) -> Any:
            return nearest(surface.level, guess, M, (a,))

        y, slope = found(a), jax.jacfwd(found)(a)
        points = jax.vmap(surface.chart, (0, None))(grid, a)
        at_grid = jax.vmap(cost, (0, None, None))(grid, a, guess)
        u, dy, curvature = refined(grid[jnp.argmin(((points - y[None]) ** 2).sum(1))], guess)
        best = refined(grid[jnp.argmin(at_grid)], guess)[0]
        least = jnp.minimum(at_grid.min(), cost(best, a, guess))
        spread = jnp.linalg.norm(curvature) / jnp.abs(jnp.linalg.det(curvature))
        return {
            "missing": ~jnp.isfinite(y).all(),
            "off": jnp.abs(surface.level(y, a)).max() > 1e-10,
            "no minimum": (jnp.abs(surface.chart(u, a) - y).max() > 1e-6)
            | (jnp.linalg.eigvalsh(curvature) <= 0).any(),
            "wrong slope": ~(
                jnp.abs(slope - dy).max() <= 1e-6 * (1 + jnp.abs(dy).max()) * (1 + spread)
            ),
            "local": (y - guess) @ (M @ (y - guess)) / 2 > least * (1 + 1e-6) + 1e-12,
        }

    return jax.tree.map(np.asarray, jax.jit(jax.vmap(one))(guesses))


def swept(name: str, count: int) -> dict[str, int]:
    """The number of random guesses that go wrong, by kind."""
    surface, draw = SURFACES[name], np.random.default_rng(0)
    n = surface.chart(surface.grid[0], 1.0).size
    guesses = draw.uniform(-surface.width, surface.width, (count, n))
    return {kind: int(found.sum()) for kind, found in judged(surface, 1.0, guesses).items()}


@pytest.mark.parametrize(
    "name",
    [
        "limacon",
        pytest.param("thin ellipse", marks=pytest.mark.slow),
        pytest.param("double pendulum", marks=pytest.mark.slow),
    ],
)
def test_every_point_is_a_minimum_with_its_derivative(name: str) -> None:
    """A few are local minima that are not global, as documented."""
    wrong = swept(name, 2000)
    assert wrong.pop("local") < 200
    assert set(wrong.values()) == {0}


@jax.jit
@jax.vmap
def on_ellipse(guess: Any) -> tuple[Any, Any]:
    """The nearest point of x^2 / 4 + y^2 = 1, and its derivative by the length of the ellipse."""

    def found(a: Any) -> Any:
        return nearest(SURFACES["ellipse"].level, guess, jnp.eye(2), (a,))

    return found(1.0), jax.jacfwd(found)(1.0)


@pytest.mark.slow
def test_a_guess_on_a_line_of_symmetry_leaves_the_saddle() -> None:
    """For (c, 0) with c < 3/2 the end of the long axis is a local maximum of the distance."""
    c = np.array([0.4, 0.9, 1.2, 1.4])
    points, _ = on_ellipse(np.stack([c, 0 * c], 1))
    np.testing.assert_allclose(points[:, 0], 4 / 3 * c, atol=1e-12)
    np.testing.assert_allclose(np.abs(points[:, 1]), np.sqrt(1 - 4 * c**2 / 9), atol=1e-12)


@pytest.mark.slow
def test_second_derivatives_are_those_of_the_nearest_point() -> None:
    """The nearest point of a circle is radius times guess over its length."""

    def second(fn: Any) -> Any:
        return jax.jacfwd(jax.grad(lambda x: fn(x[:2], x[2]) @ jnp.array([1.0, 2.0])))

    ours = jax.jit(second(lambda y, a: nearest(SURFACES["circle"].level, y, jnp.eye(2), (a,))))
    x = jnp.array([1.5, 2.0, 0.7])
    exact = second(lambda y, a: a * y / jnp.sqrt(y @ y))(x)
    np.testing.assert_allclose(ours(x), exact, rtol=1e-11, atol=1e-12)


@functools.cache
def chain(count: int) -> jp.Mechanism:
    """Spatial bodies joined by hinges, in coordinates of bodies."""
    bodies = [jp.spatial_body(f"b{k}", mass=1.0, inertia=(0.02, 0.03, 0.04)) for k in range(count)]
    axes, ends = [(0, 0, 1), (0, 1, 0), (1, 0, 0)], [jp.ground, *bodies]
    joints = [
        jp.revolute(
            f"j{k}", ends[k], (0, 0, 0.25 if k else 0), bodies[k], (0, 0, -0.25), axis=axes[k % 3]
        )
        for k in range(count)
    ]
    return jp.Mechanism(bodies, joints, [jp.gravity()], {}, coordinates="bodies")


@pytest.mark.slow
@pytest.mark.parametrize("fn", [mass_and_rows, Levels.at])
def test_the_code_of_a_chain_grows_with_its_number_of_bodies(fn: Any) -> None:
    """Operations of the functions that `assemble` and `simulate` evaluate."""

    def operations(count: int) -> int:
        system = chain(count).system
        q = jnp.ones((1, 7 * count))
        found = explain(lambda q, v: fn(system, q, v, jnp.zeros(()), {}), q, q)
        return sum(part.operations for part in found.parts)

    three, six, twelve = map(operations, (3, 6, 12))
    assert three > 100
    assert twelve - six <= 2.02 * (six - three)
