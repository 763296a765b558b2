# %% [markdown]
# # A rare first passage
#
# A pendulum at rest is pushed, and its length is known to two percent only. How likely does its mass rise 0.8 m
# above the pivot, and when? That happens to one in ten thousand. A plain Monte Carlo study sees hardly any of
# them; importance sampling around the most probable failure sees thousands. Both are compared with the exact
# probability.

# %%
import tempfile
from pathlib import Path

import jax
import matplotlib.pyplot as plt
import numpy as np
from scipy import special, stats

from jaxmech.ensemble import (
    Failure,
    FirstPassage,
    Fixed,
    Normal,
    Study,
    StudyEvent,
    Times,
    failure_probability,
    run_study,
)

jax.config.update("jax_enable_x64", True)

pushes = Normal(mean=0.0, sd=1.5, low=0.0)  # rate at the bottom [rad/s], to one side
lengths = Normal(mean=1.0, sd=0.02)  # [m]
height = 0.8  # above the pivot [m]

# %% [markdown]
# ## The exact probability
#
# Without friction, a push ω takes a pendulum of length l to the height h after the time
#
# $$ t = \frac{2 s}{\omega} R_F\left(1 - s^2, 1 - m s^2, 1\right), \qquad
# s^2 = \frac{l + h}{2 l}, \quad m = \frac{4 g}{l \omega^2}, $$
#
# with Carlson's elliptic integral, and never if m s² > 1. The faster, the sooner; so the probability to have passed
# by a time is that of all faster pushes, averaged over the length.


# %%
def passage(rate, length):
    """The time of the passage [s], if the rate suffices."""
    s2, m = (length + height) / (2 * length), 4 * 9.81 / (length * rate**2)
    return 2 * np.sqrt(s2) / rate * special.elliprf(1 - s2, np.maximum(1 - m * s2, 0.0), 1.0)


nodes, weights = np.polynomial.hermite_e.hermegauss(12)


def probability(time):
    """The probability to have passed by a time [s]."""
    total = 0.0
    for length, weight in zip(lengths.mean + lengths.sd * nodes, weights, strict=True):
        least = np.sqrt(2 * 9.81 * (length + height)) / length  # what suffices [rad/s]
        rates = np.linspace(20.0, least, 1001)
        slowest = np.interp(time, passage(rates, length), rates)
        total += weight * 2 * stats.norm.sf(slowest / pushes.sd)
    return total / weights.sum()


exact = probability(10.0)
print(f"exact probability {exact:.4e}")

# %% [markdown]
# ## Plain Monte Carlo
#
# A study of the pendulum in the catalogue, with an event where the mass passes the height. Each trajectory ends
# there, at the time of the event and not at the next saved time.

# %%
plain = Study(
    model="pendulum",
    size=20_000,
    seed=1,
    store="statistics",
    times=Times(end=1.0, saves=41),
    start={"theta": Fixed(0.0), "omega": pushes},
    parameters={"l": lengths},
    events={"passes": StudyEvent(of="x2", level=height, direction=1, terminal=True)},
    statistics={"when": FirstPassage(of="passes")},
)
few = run_study(plain, Path(tempfile.mkdtemp()) / "plain")["statistics"]["when"]
last, low, high = (few[key][-1] for key in ("probability", "low", "high"))
print(f"plain: {sum(few['passed']):.0f} of {few['count']}: {last:.3e} [{low:.3e}, {high:.3e}]")
assert low < exact < high

# %% [markdown]
# ## Around the most probable failure
#
# The event is the failure of the same study. Its probability follows from far fewer trajectories, which are drawn
# around the push and the length that just suffice, and weighed.

# %%
failure = Failure(of="passes", method="importance", coefficient_of_variation=0.02)
result = failure_probability(plain, failure=failure)
print(result)
low, high = result.interval
print(f"off by {result.probability / exact - 1:+.2%}")
print(f"plain Monte Carlo needs {1 / (exact * 0.02**2):.1e} trajectories for this error")
assert low < exact < high
assert result.trajectories < 20_000

# %% [markdown]
# The times of the few that pass, with the interval of the study, beside the exact probability to have passed.

# %%
ts = np.linspace(0.0, 1.0, 41)
fig, axes = plt.subplots(figsize=(7, 4), layout="constrained")
axes.fill_between(ts, few["low"], few["high"], alpha=0.4, step="post", label="plain, 95 % interval")
axes.step(ts, few["probability"], where="post", label="plain")
axes.plot(ts, [probability(t) if t else 0.0 for t in ts], "k", linewidth=1, label="exact")
axes.axhspan(low, high, xmin=0.97, color="C1", label="importance sampling, at the end")
axes.set(xlabel="time [s]", ylabel="probability to have passed", xlim=(0.4, 1.0))
axes.legend()
plt.show()
