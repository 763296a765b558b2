"""`posterior`: samples of the posterior distribution of a fit, by Hamiltonian Monte Carlo.

The chains are NUTS of blackjax (Hoffman and Gelman 2014, JMLR 15), all of them one batch of native
code. They sample coordinates in which the fit has unit covariance, start from points that are
scattered by more than its errors, and adapt their steps independently, so that they can be compared
with each other: R-hat (Gelman and Rubin 1992, Statistical Science 7) is near 1 when all have
reached the same distribution.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxmech.identify.inference.density import Density
from jaxmech.identify.result import Fit
from jaxmech.utils.arrays import HostArray
from jaxmech.utils.checks import require_positive_integer, require_seed

if TYPE_CHECKING:
    import xarray

_SCATTER = 1.5  # of the first points, in standard errors
_RANK = 1e-10  # eigenvalue of the scaled information, relative to the largest, that counts as zero
_MIXED = 1.05  # R-hat up to which many chains of some hundred draws agree
_FALL = 3.0  # of the logarithm of the density for each unknown, at the points to begin with
_TRIES = 20  # of points to begin with


@dataclass(frozen=True, eq=False, repr=False)
class Posterior:
    """Samples of the posterior distribution; prints itself as a table.

    The result of `posterior`.

    Attributes:
        names: names of the fitted numbers, p in all.
        samples: their values, shape (C, N, p) for C chains of N draws.
        unknowns: the corresponding unknowns of `Fit.density`, shape (C, N, Y).
        fitted: values of the numbers in the fit, shape (p,).
        intervals: 95 % intervals of the fit, shape (p, 2).
        divergences: number of draws whose trajectory diverged.
        r_hat: R-hat of each number, shape (p,); near 1 if the chains agree.
        effective: effective number of independent samples of each number, shape (p,).
    """

    names: tuple[str, ...]
    samples: HostArray
    unknowns: HostArray
    fitted: HostArray
    intervals: HostArray
    divergences: int
    r_hat: HostArray
    effective: HostArray

    @property
    def mean(self) -> HostArray:
        """The mean of each number, (p,)."""
        return self.samples.mean((0, 1))

    @property
    def sd(self) -> HostArray:
        """The standard deviation of each number, (p,)."""
        return self.samples.std((0, 1))

    def interval(self, level: float | int = 0.95) -> HostArray:
        """Credible intervals with equal tails, shape (p, 2).

        Raises:
            ValueError: if the level does not lie between 0 and 1.
        """
        if not 0 < level < 1:
            raise ValueError(f"Argument `level` must lie between 0 and 1, but is {level:g}.")
        tails = (1 - level) / 2, (1 + level) / 2
        return np.quantile(self.samples, tails, axis=(0, 1)).T

    def to_xarray(self) -> "xarray.Dataset":
        """The samples by name, with the dimensions chain and draw, as ArviZ takes them.

        Raises:
            ImportError: if xarray is not installed.
        """
        try:
            import xarray
        except ImportError as error:
            raise ImportError(
                "`to_xarray` needs xarray, which is not installed: pip install 'jaxmech[xarray]'."
            ) from error
        columns = np.moveaxis(self.samples, 2, 0)
        variables = {
            name: (("chain", "draw"), column)
            for name, column in zip(self.names, columns, strict=True)
        }
        coordinates = {
            name: np.arange(size)
            for name, size in zip(("chain", "draw"), columns[0].shape, strict=True)
        }
        return xarray.Dataset(variables, coordinates)

    def __repr__(self) -> str:
        chains, draws, _ = self.samples.shape
        width = max(14, *(len(name) + 2 for name in self.names))
        lines = [f"Posterior: {chains} chains of {draws} draws, {self.divergences} divergent"]
        if not self.r_hat.max() < _MIXED:
            lines.append(
                f"  WARNING: The chains do not agree (R-hat up to {self.r_hat.max():.3g}): take "
                "more `warmup` and `draws`, or give priors or bounds to what is not determined."
            )
        heads = f"{'mean':>12}{'95 % interval':>26}{'of the fit':>26}{'R-hat':>8}{'ESS':>8}"
        lines.append(f"  {'':<{width}}{heads}")
        intervals = self.interval()
        for k, name in enumerate(self.names):
            numbers = f"{self.r_hat[k]:>8.3f}{self.effective[k]:>8.0f}"
            cells = f"{_between(intervals[k])}{_between(self.intervals[k])}"
            lines.append(f"  {name:<{width}}{self.mean[k]:>12.6g}{cells}{numbers}")
        return "\n".join(lines)


def posterior(
    fit: Fit, *, chains: int = 64, draws: int = 250, warmup: int = 200, seed: int = 0
) -> Posterior:
    """Sample the posterior distribution of a fit, if its intervals may not be accurate enough.

    The intervals of a fit assume that the model is linear within its errors, and ignore bounds.
    Samples do neither, and agree with the intervals where these are right. Parameters that the
    recordings do not determine need bounds on both sides, or a prior. Needs `pip install
    'jaxmech[posterior]'`.

    Args:
        fit: a fit that was computed in this process, whose weights, priors, bounds and noise are
            used. Numbers without a prior have a flat one within their bounds; noise that is not
            stated is integrated out.
        chains: number of chains, which run as one batch.
        draws: draws of each chain, after the warm-up.
        warmup: draws during which a chain adapts its steps.
        seed: seed of the random numbers.

    Raises:
        ImportError: if blackjax is not installed.
        ValueError: if a number is not positive, the fit was loaded from a file or has hard
            continuity conditions, or the motion fails around it.

    Example:
        >>> from jaxmech.identify.storage import made_up
        >>> posterior(made_up(), chains=16)
        Traceback (most recent call last):
        ValueError: Argument `fit` must be of this process: a file has no functions; fit again.
    """
    for name, value in (("chains", chains), ("draws", draws), ("warmup", warmup)):
        require_positive_integer(name, value, "give a number")
    require_seed(seed)
    density = _density(fit)
    try:
        import blackjax
    except ImportError as error:
        raise ImportError(
            "`posterior` needs blackjax, which is not installed: pip install 'jaxmech[posterior]'."
        ) from error
    scale = _scale(fit, density)
    best = jnp.asarray(density.best)

    def log_density(x: jax.Array) -> jax.Array:
        return density.log_density(best + scale @ x)

    x0 = _begin(log_density, chains, best.size, seed)
    keys = jax.random.split(jax.random.key(seed), chains)
    chain = _chain(blackjax, log_density, warmup, draws)
    x, divergent = jax.jit(jax.vmap(chain))(keys, x0)
    unknowns = best[None, None] + x @ scale.T
    samples = jax.jit(jax.vmap(jax.vmap(density.numbers)))(unknowns)
    r_hat, effective = (
        np.atleast_1d(np.asarray(statistic(samples)))
        for statistic in (
            blackjax.diagnostics.potential_scale_reduction,
            blackjax.diagnostics.effective_sample_size,
        )
    )
    return Posterior(
        names=fit.names,
        samples=np.asarray(samples),
        unknowns=np.asarray(unknowns),
        fitted=fit.values,
        intervals=fit.uncertainty.interval(),
        divergences=int(divergent.sum()),
        r_hat=r_hat,
        effective=effective,
    )


def _chain(blackjax: Any, log_density: Any, warmup: int, draws: int) -> Any:
    """A function chain(key, x0) with the positions and divergences of the draws of NUTS."""

    def chain(key: jax.Array, x: jax.Array) -> Any:
        first, second = jax.random.split(key)
        adapted, _ = blackjax.window_adaptation(blackjax.nuts, log_density).run(first, x, warmup)
        kernel = blackjax.nuts(log_density, **adapted.parameters)

        def step(state: Any, key: jax.Array) -> Any:
            state, info = kernel.step(key, state)
            return state, (state.position, info.is_divergent)

        return jax.lax.scan(step, adapted.state, jax.random.split(second, draws))[1]

    return chain


def _density(fit: Fit) -> Density:
    if fit.density is None:
        raise ValueError(
            "Argument `fit` must be of this process: a file has no functions; fit again."
        )
    if fit.density.hard:
        raise ValueError(
            "Argument `fit` must have no hard continuity conditions, whose posterior has no "
            "density; fit without `horizon`, or with Shooting(..., continuity=...)."
        )
    return fit.density


def _scale(fit: Fit, density: Density) -> jax.Array:
    """Changes of the unknowns (Y, Y) of unit covariance in the fit."""
    J = density.jacobian(density.best)
    H = J.T @ J / fit.noise.unit**2
    sizes = np.sqrt(np.where(np.diag(H) > 0, np.diag(H), 1.0))
    values, vectors = np.linalg.eigh(H / sizes / sizes[:, None])
    known = values > _RANK * values.max()
    # what is not determined moves by the size of the parameters
    return jnp.asarray(
        np.where(known, vectors / np.sqrt(np.where(known, values, 1.0)), vectors) / sizes[:, None]
    )


def _begin(log_density: Any, chains: int, size: int, seed: int) -> jax.Array:
    """Points to begin with, (C, Y), nearer to the fit where they are hardly possible.

    A chain that begins far off may stay there: with a flat prior without an upper bound, a density
    of next to nothing goes on for ever.
    """
    x = np.random.default_rng(seed).normal(0.0, _SCATTER, (chains, size))
    evaluate = jax.jit(jax.vmap(log_density))
    least = float(evaluate(np.zeros_like(x))[0]) - _FALL * (1 + size)
    for _ in range(_TRIES):
        failed = ~(np.asarray(evaluate(x)) > least)
        if not failed.any():
            return jnp.asarray(x)
        x[failed] *= 0.5
    raise ValueError(
        "Argument `fit` has no finite density around its end: the motion fails there; bound what "
        "is not determined."
    )


def _between(ends: HostArray) -> str:
    return f"{f'{ends[0]:.6g} to {ends[1]:.6g}':>26}"
