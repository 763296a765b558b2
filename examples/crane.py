# %% [markdown]
# # How often does the load of a crane swing too far?
#
# A trolley accelerates a load that hangs on a rope. The rope, the speed, the time in which it is
# reached, the wind and the swing at the start all vary. How probable is it that the load swings by more
# than 30 degrees? About two failures in a hundred million trajectories are too rare to be counted.

# %%
import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np

import jaxmech as jm
from jaxmech.ensemble import Failure, Fixed, Normal, Observed, Study, Times, failure_probability

jax.config.update("jax_enable_x64", True)

# %% [markdown]
# The swing angle is the only coordinate, since the trolley moves as prescribed: its speed rises
# smoothly to `speed` within the time `rise`.


# %%
def trolley(t, p):
    phase = jnp.clip(t / p["rise"], 0.0, 1.0)
    return 0.5 * p["speed"] * (1 - jnp.cos(jnp.pi * phase))


def lagrangian(q, v, t, p):
    (angle,), (rate,) = q, v
    u, w = trolley(t, p) + p["l"] * rate * jnp.cos(angle), p["l"] * rate * jnp.sin(angle)
    return 0.5 * p["m"] * (u**2 + w**2) + p["m"] * 9.81 * p["l"] * jnp.cos(angle)


def wind(q, v, t, p):
    return -p["wind"] * p["l"] * jnp.cos(q)


crane = jm.System(lagrangian, force=wind, coordinates=("angle",))

# %% [markdown]
# The draws, and what is observed: the swing to either side, in degrees. The failure is that its
# largest value, at any step or between two, is at least 30.


# %%
def swing(q, v, t, p):
    return jnp.rad2deg(jnp.abs(q[0]))


study = Study(
    model=crane,
    size=1024,
    times=Times(end=10.0, saves=101),
    coordinates={"angle": Normal(mean=0.0, sd=0.03)},
    velocities={"angle": Normal(mean=0.0, sd=0.02)},
    parameters={
        "m": Fixed(2000.0),
        "l": Normal(mean=8.0, sd=0.5),
        "speed": Normal(mean=2.8, sd=0.2),
        "rise": Normal(mean=3.0, sd=0.3, low=1.0),
        "wind": Normal(mean=500.0, sd=200.0),
    },
    observe={"swing": Observed(swing, unit="deg")},
)
result = failure_probability(study, failure=Failure(of="swing", above=30.0))
print(result)
assert not result.doubts

# %% [markdown]
# The design point is the most probable motion that fails. Its initial state and parameters are what
# `simulate` takes, and `jm.animate` would animate it. Beside it the motion of the medians:

# %%
point = result.design_points[0]
ts = jnp.linspace(0.0, 10.0, 401)
medians = {**point.params, "l": 8.0, "speed": 2.8, "rise": 3.0, "wind": 500.0}
fig, ax = plt.subplots(figsize=(6.4, 3.0), layout="constrained")
for label, q, v, params in (
    ("medians", [0.0], [0.0], medians),
    ("design point", point.q, point.v, point.params),
):
    sol = jm.simulate(crane, q, v, ts, params)
    ax.plot(ts, np.rad2deg(sol["angle"]), label=label)
ax.axhline(-30.0, color="0.6")
ax.set(xlabel="time [s]", ylabel="swing [deg]")
ax.legend()
assert abs(np.rad2deg(abs(sol["angle"])).max() - 30.0) < 0.05

# %% [markdown]
# Can it be trusted? Where failures are frequent enough to be counted, both ways must agree:

# %%
often = Failure(of="swing", above=24.0)
counted = Failure(of="swing", above=24.0, method="monte-carlo")
by_design_points = failure_probability(study, failure=often)
by_counting = failure_probability(study, failure=counted)
for name, x in (("importance sampling", by_design_points), ("counting", by_counting)):
    print(f"{name}: {x.probability:.4g}, {x.trajectories:,} trajectories")
low, high = by_counting.interval
assert low * 0.9 < by_design_points.probability < high * 1.1
