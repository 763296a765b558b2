# %% [markdown]
# # Tolerances of a linkage: Monte Carlo beside a gradient
#
# A four-bar linkage drives an output lever. Its bars are made to 0.05 mm. How far off is the angle of the
# lever over a turn of the crank? Ten thousand linkages are assembled at 72 crank angles each, and a
# derivative by the lengths predicts the same in one evaluation.

# %%
import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np

import jaxmech as jm

jax.config.update("jax_enable_x64", True)


def loop(q, t, p):
    """Crank, coupler and lever close the loop with the ground."""
    a, b, c, d = p["length"]
    crank, coupler, lever = q
    x = a * jnp.cos(crank) + b * jnp.cos(coupler) - c * jnp.cos(lever) - d
    y = a * jnp.sin(crank) + b * jnp.sin(coupler) - c * jnp.sin(lever)
    return jnp.stack([x, y])


linkage = jm.System(
    lambda q, v, t, p: 0.5 * v @ v, [jm.Holonomic(loop)], coordinates=("crank", "coupler", "lever")
)
nominal = jnp.array([0.040, 0.120, 0.080, 0.100])  # [m]
sigma = 0.05e-3 / 3  # three standard deviations within the tolerance [m]

# %% [markdown]
# `assemble` finds the nearest pose that closes the loop; the crank keeps its angle. At every angle the pose of
# the angle before is the guess, so that the linkage stays on one branch.

# %%
angles = jnp.linspace(0.0, 2 * jnp.pi, 73)[:-1]


def lever(length):
    def next_pose(q, crank):
        guess = q.at[0].set(crank)
        q, _ = jm.assemble(linkage, guess, jnp.zeros(3), 0.0, {"length": length}, fixed=["crank"])
        return q, q

    return jax.lax.scan(next_pose, jnp.array([0.0, 0.9, 1.6]), angles)[1][:, 2]


exact = jax.jit(lever)(nominal)
slopes = jax.jit(jax.jacfwd(lever))(nominal)  # [rad/m]
predicted = sigma * jnp.linalg.norm(slopes, axis=1)
print(f"lever from {np.degrees(exact.min()):.1f} to {np.degrees(exact.max()):.1f} degrees")
print(f"predicted deviation {1e3 * predicted.min():.3f} to {1e3 * predicted.max():.3f} mrad")

# %% [markdown]
# The batch of ten thousand:

# %%
drawn = nominal + sigma * jax.random.normal(jax.random.key(1), (10_000, 4))
levers = jax.jit(jax.vmap(lever))(drawn)
found = levers.std(axis=0)
print(f"Monte Carlo         {1e3 * found.min():.3f} to {1e3 * found.max():.3f} mrad")
assert jnp.abs(found / predicted - 1).max() < 0.03  # the error of 10,000 samples is 0.7 %

fig, axes = plt.subplots(figsize=(7, 4), layout="constrained")
axes.plot(np.degrees(angles), 1e3 * predicted, label="by the gradient")
axes.plot(np.degrees(angles), 1e3 * found, ".", label="10,000 linkages")
axes.set(xlabel="crank [degrees]", ylabel="standard deviation of the lever [mrad]")
axes.legend()
plt.show()

# %% [markdown]
# Which bar matters? The squares of the slopes divide the variance among the bars.

# %%
shares = slopes**2 / (slopes**2).sum(axis=1, keepdims=True)
worst = int(predicted.argmax())
for name, share in zip(("crank", "coupler", "lever", "ground"), shares[worst], strict=True):
    print(f"{name:8} {100 * share:5.1f} % at a crank of {np.degrees(angles[worst]):.0f} degrees")
