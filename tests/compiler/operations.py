"""The operations of random programs: floats, integers and truth values, as people use them in JAX.

Every operation takes a pool of vectors, and a source of fixed random numbers for its choices. It
returns a vector of `N` numbers of any type, which the pool keeps. Results stay small, so that
round-off does.
"""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

N = 3
MATRIX = np.random.default_rng(5).normal(size=(N, N)) / 2
TOUCHES = np.array([[1, 1, 0], [0, 1, 1], [1, 1, 1]], bool)
GRID, HEIGHTS = np.linspace(-2.0, 2.0, 9), np.random.default_rng(6).normal(size=9)
BYTES = np.random.default_rng(7).normal(size=120)


class Draw:
    """Random numbers that are the same whenever a function is traced."""

    def __init__(self, numbers: Sequence[float]) -> None:
        self._rest = iter(numbers)

    def index(self, count: int) -> int:
        return int(next(self._rest) * count)

    def number(self, low: float = -1.0, high: float = 1.0) -> float:
        return round(low + next(self._rest) * (high - low), 3)

    def of(self, values: Sequence[Any]) -> Any:
        return values[self.index(len(values))]


class Pool:
    """The vectors computed so far, by kind: floats `f`, integers `i`, truth values `b`."""

    def __init__(self, vectors: Sequence[Any]) -> None:
        x, y = vectors[0], vectors[-1]
        self.type = x.dtype
        self.kinds: dict[str, list[Any]] = {
            "f": list(vectors),
            "i": [jnp.floor(4 * x).astype(jnp.int32), jnp.arange(N) - 1],
            "b": [x > y, jnp.array([True, False, True])],
        }

    def add(self, vector: Any) -> None:
        if jnp.issubdtype(vector.dtype, jnp.floating):
            self.kinds["f"].append(vector.astype(self.type))
        else:
            self.kinds["b" if vector.dtype == bool else "i"].append(vector)

    def pick(self, kind: str, draw: Draw) -> Any:
        return draw.of(self.kinds[kind])

    def constant(self, values: Any) -> Any:
        return jnp.asarray(values, self.type)


Operation = Callable[[Pool, Draw], Any]


def _unary(fn: Callable[[Any], Any], kind: str = "f") -> Operation:
    return lambda pool, draw: fn(pool.pick(kind, draw))


def _binary(fn: Callable[[Any, Any], Any], kind: str = "f") -> Operation:
    return lambda pool, draw: fn(pool.pick(kind, draw), pool.pick(kind, draw))


def _small(i: Any) -> Any:
    """Integers as floats of moderate size."""
    return (i % 7).astype(float) / 7 - 0.4


SMOOTH: dict[str, Operation] = {
    "add": _binary(lambda x, y: x + y),
    "sub": _binary(lambda x, y: x - y),
    "mul": _binary(lambda x, y: x * y),
    "div": _binary(lambda x, y: x / (1.5 + y * y)),
    "neg": _unary(lambda x: -x),
    "scaled": lambda pool, draw: draw.number() * pool.pick("f", draw) + draw.number(),
    "tanh": _unary(jnp.tanh),
    "sin": _unary(jnp.sin),
    "cos": _unary(jnp.cos),
    "bell": _unary(lambda x: jnp.exp(-x * x)),
    "log1p": _unary(lambda x: jnp.log1p(x * x)),
    "log": _unary(lambda x: jnp.log(1.2 + x * x)),
    "root": _unary(lambda x: jnp.sqrt(1 + x * x)),
    "arctan2": _binary(lambda x, y: jnp.arctan2(x, 1 + y * y)),
    "logistic": _unary(jax.nn.sigmoid),
    "softplus": _unary(jax.nn.softplus),
    "softmax": _unary(jax.nn.softmax),
    "logsumexp": _unary(lambda x: x - jax.nn.logsumexp(x)),
    "erf": _unary(lax.erf),
    "float power": lambda pool, draw: (1 + pool.pick("f", draw) ** 2) ** draw.number(),
    "integer power": lambda pool, draw: jnp.sin(pool.pick("f", draw)) ** draw.of([0, 1, 2, 3, 5]),
    "inverse power": lambda pool, draw: (1 + pool.pick("f", draw) ** 2) ** -draw.of([1, 2, 3]),
    "power of array": _unary(lambda x: jnp.sin(x) ** jnp.array([1, 2, 3])),
    "power of computed": lambda pool, draw: (
        (1.1 + pool.pick("f", draw) ** 2) ** jnp.clip(pool.pick("i", draw), -3, 3)
    ),
    "two to": lambda pool, draw: 2.0 ** jnp.clip(pool.pick("i", draw), -4, 2).astype(jnp.int32),
    "where": lambda pool, draw: jnp.where(*(pool.pick(kind, draw) for kind in "bff")),
    "reversed": _unary(lambda x: x[::-1]),
    "rolled": lambda pool, draw: jnp.roll(pool.pick("f", draw), draw.of([1, -1])),
    "cumsum": _unary(lambda x: jnp.cumsum(x) / 2),
    "cumprod": _unary(lambda x: jnp.cumprod(jnp.sin(x))),
    "mean": _unary(lambda x: x - x.mean()),
    "dot": _binary(lambda x, y: x * jnp.dot(x, y) / (1 + x @ x)),
    "matrix": lambda pool, draw: pool.constant(MATRIX) @ pool.pick("f", draw),
    "einsum": lambda pool, draw: jnp.einsum(
        "ij,jk,k->i", pool.constant(MATRIX), pool.constant(MATRIX), pool.pick("f", draw)
    ),
    "outer": _binary(lambda x, y: jnp.tanh(jnp.outer(x, y)).sum(0)),
    "wider dot": _unary(
        lambda x: (
            x * jnp.tanh(jnp.dot(*[x.astype(jnp.float32)] * 2, preferred_element_type=jnp.float64))
        )
    ),
    "norm": _unary(lambda x: x / jnp.linalg.norm(jnp.append(x, 1.0))),
    "cross": _binary(jnp.cross),
    "polynomial": lambda pool, draw: jnp.polyval(
        pool.constant([0.1, -0.3, 0.5]), jnp.tanh(pool.pick("f", draw))
    ),
    "set": lambda pool, draw: pool.pick("f", draw).at[draw.index(N)].set(draw.number()),
    "set all": _unary(lambda x: jnp.zeros_like(x).at[:].set(x)),
    "set row": _binary(lambda x, y: jnp.zeros((2, N), x.dtype).at[0].set(x).at[1].add(y).sum(0)),
    "taken": _unary(lambda x: x[np.array([2, 0, 2])]),
    "stacked": _binary(lambda x, y: jnp.stack([x, y])[:, 1:].reshape(-1)[:N]),
    "flipped scalar": _unary(lambda x: x * jnp.flip(x[0])),
    "checkpoint": _binary(jax.checkpoint(lambda x, y: jnp.sin(x) * y)),
    "jit": _binary(jax.jit(lambda x, y: jnp.cos(x) + y)),
    "vmap": _binary(lambda x, y: jax.vmap(lambda a: jnp.tanh(a * y).sum())(x)),
    "map": _unary(lambda x: lax.map(lambda a: jnp.sin(a) * a, x)),
    "gradient": _binary(lambda x, y: jax.grad(lambda z: jnp.sin(z @ y) + (z**3).sum() / 9)(x)),
    "jacobian": _binary(lambda x, y: jax.jacfwd(lambda z: jnp.tanh(z * y))(x) @ y),
    "short loop": _binary(lambda x, y: lax.fori_loop(0, 3, lambda k, z: jnp.sin(z + y) + k / 9, x)),
    "long loop": _binary(lambda x, y: lax.fori_loop(0, 11, lambda k, z: jnp.sin(z + y / 4), x)),
    "scan": _binary(
        lambda x, y: jnp.tanh(
            lax.scan(lambda c, a: (0.5 * c + a, c * a), x, jnp.stack([x, y, x * y]))[1].sum(0)
        )
    ),
    "long scan": _binary(
        lambda x, y: lax.scan(
            lambda c, k: (jnp.sin(c + y * k / 20), c[0]), x, jnp.arange(10), reverse=True
        )[1][-N:].astype(x.dtype)
    ),
    "cond": lambda pool, draw: lax.cond(
        pool.pick("b", draw)[0], jnp.sin, lambda x: x * jnp.cos(x) + 1, pool.pick("f", draw)
    ),
    "rare cond": lambda pool, draw: lax.cond(
        pool.pick("b", draw)[1],
        lambda x: jnp.tanh(pool.constant(MATRIX) @ jnp.sin(x)) * x,
        lambda x: x,
        pool.pick("f", draw),
    ),
}

KINKED: dict[str, Operation] = {
    "abs": _unary(jnp.abs),
    "sign": _binary(lambda x, y: jnp.sign(x) * y),
    "clip": lambda pool, draw: jnp.clip(pool.pick("f", draw), draw.number() - 1, 0.7),
    "clip by": lambda pool, draw: jnp.clip(pool.pick("f", draw), None, pool.pick("f", draw)),
    "maximum": _binary(jnp.maximum),
    "minimum": _binary(jnp.minimum),
    "relu": _unary(jax.nn.relu),
    "friction": _binary(lambda x, y: -jnp.sign(x) * jnp.abs(x) ** 1.5 / (1 + jnp.abs(y))),
    "cubic": _unary(lambda x: jnp.sign(x) * jnp.abs(jnp.tanh(x)) ** jnp.array(3)),
    "floor": _unary(lambda x: jnp.floor(3 * x) / 3),
    "ceil": _unary(lambda x: jnp.ceil(2 * x + 0.1) / 4),
    "round": _unary(lambda x: jnp.round(5 * x + 0.05) / 5),
    "mod": lambda pool, draw: pool.pick("f", draw) % draw.of([1.0, 0.37, -0.8]),
    "fmod": _binary(lambda x, y: jnp.fmod(x, 0.3 + jnp.abs(y))),
    "largest": _unary(lambda x: x - x.max()),
    "cummax": _unary(lax.cummax),
    "at largest": _binary(lambda x, y: x + y[jnp.argmax(x)]),
    "at smallest": _binary(lambda x, y: x * y[jnp.argmin(y)]),
    "interp": lambda pool, draw: jnp.interp(
        pool.pick("f", draw), pool.constant(GRID), pool.constant(HEIGHTS)
    ),
    "searched": lambda pool, draw: (
        pool.pick("f", draw)
        + jnp.searchsorted(pool.constant(GRID), pool.pick("f", draw)).astype(pool.type) / 9
    ),
    "select": lambda pool, draw: jnp.select(
        [pool.pick("b", draw), pool.pick("b", draw)],
        [pool.pick("f", draw), pool.pick("f", draw)],
        draw.number(),
    ),
    "piecewise": _unary(
        lambda x: jnp.piecewise(x, [x < -0.2, x > 0.4], [lambda y: -y, jnp.sin, lambda y: y * y])
    ),
    "gathered": lambda pool, draw: pool.pick("f", draw)[pool.pick("i", draw) % N],
    "gathered anywhere": lambda pool, draw: (
        pool.pick("f", draw).at[pool.pick("i", draw)].get(mode="fill", fill_value=0.5)
    ),
    "clipped place": lambda pool, draw: pool.pick("f", draw)[jnp.clip(pool.pick("i", draw), -1, 1)],
    "byte place": lambda pool, draw: pool.constant(BYTES)[
        (60 * pool.pick("f", draw)).astype(draw.of([jnp.int8, jnp.uint8]))
    ],
    "scattered": lambda pool, draw: (
        pool.pick("f", draw).at[pool.pick("i", draw)].add(jnp.sin(pool.pick("f", draw)))
    ),
    "scattered set": lambda pool, draw: (
        pool.pick("f", draw).at[pool.pick("i", draw)[0]].set(draw.number())
    ),
    "dynamic slice": lambda pool, draw: lax.dynamic_slice(
        jnp.append(pool.pick("f", draw), pool.pick("f", draw)), [pool.pick("i", draw)[0]], [N]
    ),
    "dynamic update": lambda pool, draw: lax.dynamic_update_slice(
        pool.pick("f", draw), pool.pick("f", draw)[:2], [pool.pick("i", draw)[1]]
    ),
    "segments": lambda pool, draw: jax.ops.segment_sum(
        pool.pick("f", draw), pool.pick("i", draw) % N, num_segments=N
    ),
    "one hot": lambda pool, draw: (
        jax.nn.one_hot(pool.pick("i", draw)[0], N, dtype=pool.type) * pool.pick("f", draw)
    ),
    "from integers": lambda pool, draw: _small(pool.pick("i", draw)).astype(pool.type),
    "from truths": lambda pool, draw: pool.pick("b", draw).astype(pool.type) * pool.pick("f", draw),
    "times truths": lambda pool, draw: pool.pick("b", draw) * pool.pick("f", draw),
    "times integers": lambda pool, draw: (pool.pick("i", draw) % 4) * pool.pick("f", draw) / 4,
    "single precision": _unary(lambda x: x.astype(jnp.float32) * 1.5),
    "while": lambda pool, draw: lax.while_loop(
        lambda c: (c[0] < 12) & (c[1].sum() < 2.0),
        lambda c: (c[0] + 1, c[1] + 0.3 * jnp.abs(jnp.sin(c[1])) + 0.05),
        (0, lax.stop_gradient(pool.pick("f", draw))),
    )[1],
    "counted while": lambda pool, draw: (
        _small(
            lax.while_loop(
                lambda c: c[0] != 1,
                lambda c: (jnp.where(c[0] % 2 == 0, c[0] // 2, 3 * c[0] + 1), c[1] + 1),
                (jnp.abs(pool.pick("i", draw)[0].astype(jnp.int32)) % 9 + 1, jnp.int32(0)),
            )[1]
        ).astype(pool.type)
        * pool.pick("f", draw)
    ),
    "cond on a count": lambda pool, draw: lax.cond(
        (pool.pick("i", draw) > 0).sum() > 1, lambda x: x - 1, lambda x: 2 * x, pool.pick("f", draw)
    ),
    "median": _unary(lambda x: jnp.maximum(jnp.minimum(x[0], x[1]), x[2]) - x),
}

INTEGERS: dict[str, Operation] = {
    "i add": _binary(lambda i, j: i + j, "i"),
    "i sub": _binary(lambda i, j: i - j, "i"),
    "i mul": _binary(lambda i, j: i * j, "i"),
    "i neg": _unary(lambda i: -i, "i"),
    "i floor division": _binary(lambda i, j: i // jnp.where(j == 0, 3, j), "i"),
    "i mod": _binary(lambda i, j: i % jnp.where(j == 0, 5, j), "i"),
    "i div": _binary(
        lambda i, j: lax.div(*jnp.broadcast_arrays(i.astype(jnp.int32), j.astype(jnp.int32))), "i"
    ),
    "i div by constant": lambda pool, draw: -pool.pick("i", draw) // draw.of([1, 2, 3, -2, 7]),
    "i constant by": lambda pool, draw: draw.of([0, 1, 12, -7]) % (pool.pick("i", draw) % 5 + 1),
    "i power": _unary(lambda i: (i % 5) ** 3, "i"),
    "i bits": lambda pool, draw: draw.of([jnp.bitwise_and, jnp.bitwise_or, jnp.bitwise_xor])(
        pool.pick("i", draw), pool.pick("i", draw)
    ),
    "i not": _unary(lambda i: ~i, "i"),
    "i abs": _unary(jnp.abs, "i"),
    "i sign": _unary(jnp.sign, "i"),
    "i extreme": lambda pool, draw: draw.of([jnp.maximum, jnp.minimum])(
        pool.pick("i", draw), pool.pick("i", draw)
    ),
    "i clip": _unary(lambda i: jnp.clip(i, -2, 3), "i"),
    "i where": lambda pool, draw: jnp.where(*(pool.pick(kind, draw) for kind in "bii")),
    "i cumsum": _unary(jnp.cumsum, "i"),
    "i dot": _binary(lambda i, j: jnp.dot(i, j) + i, "i"),
    "i argmax": _unary(lambda x: jnp.argmax(x) + jnp.arange(N), "f"),
    "i floor": _unary(lambda x: jnp.floor(7 * x).astype(jnp.int64), "f"),
    "i round": _unary(lambda x: jnp.round(9 * x + 0.02).astype(jnp.int32), "f"),
    "i from truths": _unary(lambda b: b.astype(jnp.int32) - 1, "b"),
    "i count": _unary(lambda b: b.sum() + jnp.arange(N), "b"),
    "i type": lambda pool, draw: (
        pool.pick("i", draw)
        .astype(draw.of([jnp.int8, jnp.uint8, jnp.int16, jnp.uint32, jnp.int64]))
        .astype(jnp.int32)
    ),
    "i unsigned": lambda pool, draw: (
        (-pool.pick("i", draw).astype(draw.of([jnp.uint8, jnp.uint32, jnp.uint64]))) // 7
    ).astype(jnp.int32),
    "i unsigned mod": _binary(
        lambda i, j: (
            lax.rem(-i.astype(jnp.uint32), lax.bitwise_or(j.astype(jnp.uint32), np.uint32(1)))
        ).astype(jnp.int64),
        "i",
    ),
    "i bytes": _binary(lambda i, j: (i.astype(jnp.int8) * j.astype(jnp.int8)).astype(int), "i"),
    "i loop": _unary(lambda i: lax.fori_loop(0, 4, lambda k, j: 3 * j % 11 - k, i), "i"),
    "i gathered": _binary(lambda i, j: i[j % N], "i"),
    "i scattered": _binary(lambda i, j: i.at[j % N].add(j), "i"),
}

TRUTHS: dict[str, Operation] = {
    "b compare": lambda pool, draw: draw.of([jnp.less, jnp.greater_equal, jnp.not_equal])(
        pool.pick("f", draw), pool.pick("f", draw) + 0.01
    ),
    "b with a number": lambda pool, draw: pool.pick("f", draw) > draw.number(),
    "b integers": lambda pool, draw: draw.of([jnp.less, jnp.equal, jnp.less_equal])(
        pool.pick("i", draw), pool.pick("i", draw)
    ),
    "b odd": _unary(lambda i: i % 2 == 1, "i"),
    "b logic": lambda pool, draw: draw.of(
        [jnp.logical_and, jnp.logical_or, jnp.logical_xor, jnp.equal, jnp.less]
    )(pool.pick("b", draw), pool.pick("b", draw)),
    "b not": _unary(lambda b: ~b, "b"),
    "b touches": _unary(lambda b: TOUCHES @ b, "b"),
    "b einsum": _unary(lambda b: jnp.einsum("ij,jk,k->i", TOUCHES, TOUCHES, b), "b"),
    "b any": _unary(lambda b: b.any() & ~b, "b"),
    "b all": _unary(lambda b: b.all() | b[::-1], "b"),
    "b finite": _unary(lambda x: jnp.isfinite(x) & (x < 0.5), "f"),
    "b count": _unary(lambda b: (b.sum() > 1) ^ b, "b"),
    "b extreme": _binary(jnp.maximum, "b"),
    "b where": lambda pool, draw: jnp.where(*(pool.pick("b", draw) for _ in range(3))),
    "b cumulative": _unary(lambda b: jnp.cumsum(b) % 2 == 0, "b"),
}


@jax.custom_jvp
def _clipped_slope(x: Any) -> Any:
    return jnp.sin(x) * x


@_clipped_slope.defjvp
def _clipped_slope_jvp(primals: Any, tangents: Any) -> Any:
    (x,), (dx,) = primals, tangents
    return _clipped_slope(x), jnp.tanh(jnp.cos(x) * x + jnp.sin(x)) * dx


@jax.custom_vjp
def scaled_cotangent(x: Any) -> Any:
    """A custom rule for reverse mode only."""
    return jnp.tanh(x)


scaled_cotangent.defvjp(
    lambda x: (jnp.tanh(x), x), lambda x, ct: (ct / (1 + x * x) + jnp.cos(x) / 9,)
)


def _near_identity(x: Any) -> Any:
    return jnp.eye(N, dtype=x.dtype) * 2 + jnp.outer(jnp.sin(x), jnp.cos(x)) / 4


# Most of these are not native code, and leave the loop around them to `vmap`.
OTHERS: dict[str, Operation] = {
    "sort": _unary(jnp.sort),
    "argsort": _binary(lambda x, y: y[jnp.argsort(x)]),
    "switch": lambda pool, draw: lax.switch(
        pool.pick("i", draw)[0], [jnp.sin, jnp.cos, lambda x: 2 * x], pool.pick("f", draw)
    ),
    "solve": _binary(lambda x, y: jnp.linalg.solve(_near_identity(x), y)),
    "inv": _unary(lambda x: jnp.linalg.inv(_near_identity(x)) @ x),
    "det": _unary(lambda x: x * jnp.linalg.det(_near_identity(x)) / 8),
    "complex": _unary(lambda x: jnp.real(jnp.exp(1j * x) * (x + 2j)).astype(x.dtype) / 3),
    "fourier": _unary(lambda x: jnp.abs(jnp.fft.rfft(jnp.append(x, 2.0)))[:N].astype(x.dtype) / 4),
    "random": lambda pool, draw: (
        pool.pick("f", draw) + jax.random.normal(jax.random.key(draw.index(9)), (N,), pool.type) / 4
    ),
    "random by count": lambda pool, draw: jax.random.uniform(
        jax.random.fold_in(jax.random.PRNGKey(1), pool.pick("i", draw)[0].astype(jnp.int32)),
        (N,),
        pool.type,
    ),
    "shifts": _binary(lambda i, j: (i << 2) + (j >> 1), "i"),
    "custom jvp": _unary(_clipped_slope),
    "convolution": _binary(lambda x, y: jnp.convolve(x, y, mode="same") / 3),
    "gamma": _unary(lambda x: lax.lgamma(1.5 + x * x) / (1 + x * x)),
    "sum of products": _binary(lambda x, y: jnp.tensordot(x, y, 0).trace() * x / 3),
    "associative": _unary(lambda x: lax.associative_scan(jnp.add, x) / 3),
    "top": _unary(lambda x: lax.top_k(x, N)[0]),
    "nan to num": _unary(lambda x: jnp.nan_to_num(jnp.where(x > 0, x, jnp.nan), nan=0.25)),
}

ANY = {**SMOOTH, **KINKED, **INTEGERS, **TRUTHS, **OTHERS}
