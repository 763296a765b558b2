# %% [markdown]
# # Why does a bicycle stay upright?
#
# Pushed hard enough, a bicycle without a rider's hands steers into each fall and rights itself, between two
# speeds. Meijaard, Papadopoulos, Ruina and Schwab (*Proc. R. Soc. A* 463, 2007) published a benchmark of
# Whipple's model with its numbers to many digits: two wheels that roll without slip, a frame with a rigid rider,
# a fork with a handlebar. It is built here from parts, with the trail and the spin of the front wheel as
# parameters: what is it that keeps a bicycle upright, the caster or the gyroscope?

# %%
import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np

import jaxmech as jm
from jaxmech import parts as jp

jax.config.update("jax_enable_x64", True)

# x points ahead, y to the right, z down; masses [kg], inertias about the centres of mass [kg m^2]
frame = jp.spatial_body("frame", mass=85.0, inertia=((9.2, 0, 2.4), (0, 11.0, 0), (2.4, 0, 2.8)))
fork_inertia = ((0.05892, 0, -0.00756), (0, 0.06, 0), (-0.00756, 0, 0.00708))
fork = jp.spatial_body("fork", mass=4.0, inertia=fork_inertia)
rear = jp.spatial_body("rear", mass=2.0, inertia=(0.0603, 0.12, 0.0603))
front = jp.spatial_body("front", mass=3.0, inertia=(0.1405, "spin", 0.1405))
centers = {
    "frame": (0.3, 0, -0.9),
    "fork": (0.9, 0, -0.7),
    "rear": (0, 0, -0.3),
    "front": (1.02, 0, -0.35),
}
side, tilt = (0, 1, 0), np.pi / 10


def on(body, point):
    """A point of the upright bicycle [m], from the centre of a body."""
    return tuple(np.subtract(point, centers[body.name]))


def head(body):
    """Where the steering axis meets the ground: the trail [m] ahead of the front contact."""
    x, y, z = on(body, (1.02, 0, 0))
    return (lambda t, p: x + p["trail"], y, z)


def rolling(name, wheel, radius):
    o, up = (0, 0, 0), (0, 0, -1)
    return jp.rolling_wheel(name, jp.ground, o, wheel, o, normal=up, axle=side, radius=radius)


axis = (np.sin(tilt), 0, np.cos(tilt))
bicycle = jp.Mechanism(
    [frame, fork, rear, front],
    joints=[
        jp.revolute("rear hub", frame, on(frame, centers["rear"]), rear, (0, 0, 0), axis=side),
        jp.revolute("steering", frame, head(frame), fork, head(fork), axis=axis),
        jp.revolute("front hub", fork, on(fork, centers["front"]), front, (0, 0, 0), axis=side),
        rolling("rear tyre", rear, 0.3),
        rolling("front tyre", front, 0.35),
    ],
    forces=[jp.gravity(9.81, down=(0, 0, 1))],
    params={"trail": 0.08, "spin": 0.28},
)
print(bicycle)

# %% [markdown]
# ## Eigenvalues over the speed
#
# Riding straight ahead is a steady motion at every speed. Its linear equations have ten eigenvalues: six are zero, as
# place, heading, the angles of both wheels and the speed do not matter. The other four belong to lean and steer.


# %%
def linear(speed, p):
    starts = {"frame": jp.Start(centers["frame"], velocity=(speed, 0, 0))}
    starts["rear hub"] = jp.Start(0.0, velocity=-speed / 0.3)
    starts["front hub"] = jp.Start(0.0, velocity=-speed / 0.35)
    return jm.analysis.linearize(bicycle.system, *bicycle.guess(starts), p)


batch = jax.jit(jax.vmap(linear))


def eigenvalues(speeds, **changes):
    """Those of lean and steer, four at each speed."""
    params = {name: jnp.full(len(speeds), x) for name, x in bicycle.params.items()} | changes
    return np.asarray(jm.analysis.modes(batch(speeds, params)).eigenvalues)[:, 6:]


speeds = jnp.linspace(0.0, 10.0, 201)
found = eigenvalues(speeds)

# from table 2 of the paper: the weave at 3, 5, 7 and 9 m/s and the capsize at 8 m/s [1/s]
weave = [1.70675605663975 + 2.31582447384325j, -0.77534188219585 + 4.46486771378823j]
weave += [-2.13875644258362 + 7.19525913329805j, -3.21675402252485 + 9.69377351531791j]
for k, value in zip((60, 100, 140, 180), weave, strict=True):
    error = abs(found[k] - value).min()
    print(f"{speeds[k]:.0f} m/s: weave {value:.6f}, off by {error:.1e}")
    assert error < 1e-8
assert abs(found[160] - 0.14327879765713).min() < 1e-8

# %% [markdown]
# The bicycle is stable where all four are on the left: from the speed at which its weaving dies out to that
# from which it tips over slowly, the capsize speed.


# %%
def speed_of(change, low, high):
    """Where the stability changes between two speeds, by bisection."""
    for _ in range(4):
        ladder = jnp.linspace(low, high, 201)
        is_stable = (eigenvalues(ladder).real < 0).all(axis=1)
        k = int(np.argmax(is_stable == change))
        low, high = ladder[k - 1], ladder[k]
    return float(high)


limits = speed_of(True, 3.0, 5.0), speed_of(False, 5.0, 7.0)
print(f"stable from {limits[0]:.8f} to {limits[1]:.8f} m/s; paper: 4.29238254 to 6.02426202")
np.testing.assert_allclose(limits, (4.29238253634111, 6.02426201538837), atol=1e-8)

fig, axes = plt.subplots(figsize=(7, 4), layout="constrained")
axes.plot(np.repeat(speeds, 4), found.real.ravel(), ".", markersize=2, label="real part")
oscillates = found.imag > 1e-6
axes.plot((speeds[:, None] + 0 * found.real)[oscillates], found.imag[oscillates], ".",
          markersize=2, label="imaginary part")  # fmt: skip
axes.axvspan(*limits, color="0.9", label="stable")
axes.axhline(0.0, color="0.5", linewidth=0.8)
axes.set(xlabel="speed [m/s]", ylabel="eigenvalue [1/s]", xlim=(0, 10), ylim=(-10, 10))
axes.legend(loc="lower right", markerscale=5)
plt.show()

# %% [markdown]
# ## Caster or gyroscope?
#
# The same over the trail, 201 speeds at 41 trails, with the front wheel of the benchmark and with half its
# moment of inertia about the axle. Trail is needed: below about zero no speed is stable. The gyroscope decides
# where: with the lighter wheel stability begins later and lasts longer, and the bicycle of the cross, stable with
# the wheel of the benchmark, weaves. (Bicycles of other masses need neither, as Kooijman and others showed in
# *Science* 332, 2011.)

# %%
trails = jnp.linspace(-0.04, 0.16, 41)
fig, both = plt.subplots(1, 2, figsize=(10, 4), sharey=True, layout="constrained")
for ax, spin, title in zip(
    both, (0.28, 0.14), ("front wheel of 0.28 kg m²", "front wheel of 0.14 kg m²"), strict=True
):
    rows = [eigenvalues(speeds, trail=jnp.full(201, x), spin=jnp.full(201, spin)) for x in trails]
    growth = np.array([row.real.max(axis=1) for row in rows])
    shown = np.clip(growth, -1.0, 1.0)
    filled = ax.contourf(speeds, trails, shown, np.linspace(-1.0, 1.0, 21), cmap="RdBu_r")
    ax.contour(speeds, trails, shown, levels=[0.0], colors="k", linewidths=1)
    ax.plot(np.mean(limits), 0.08, "k+", markersize=10)
    ax.set(xlabel="speed [m/s]", title=title)
    print(f"{title}: stable in {100 * np.mean(growth < 0):.1f} % of the map")
both[0].set_ylabel("trail [m]")
fig.colorbar(filled, ax=both, label="fastest growth [1/s]")
plt.show()
