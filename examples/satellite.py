# %% [markdown]
# # A satellite with a reaction wheel: how late may its computer be?
#
# A motor spins a wheel, and the satellite turns the other way: no torque acts from outside. A computer measures the
# attitude four times a second, and some time later the motor has the next torque, which it holds until another one
# comes. The motor knows multiples of 0.1 mN m, up to 40 mN m. Which delay does the loop bear?

# %%
import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np

import jaxmech as jm

jax.config.update("jax_enable_x64", True)

PERIOD = 0.25
params = {"body": 0.8, "wheel": 0.005, "kp": 0.15, "kd": 0.45, "ki": 0.01, "target": np.pi / 6}


def lagrangian(q, v, t, p):
    """The angle of the satellite, and that of its wheel relative to it."""
    return 0.5 * p["body"] * v[0] ** 2 + 0.5 * p["wheel"] * (v[0] + v[1]) ** 2


def force(q, v, t, p):
    return jnp.stack([0.0, p["motor"]])


system = jm.System(lagrangian, force=force, coordinates={"satellite": "rad", "wheel": "rad"})


def motor(measured, memory, t, p):
    """A controller with a proportional, a derivative and an integral part, which stops at the limit."""
    angle, rate = measured
    error = p["target"] - angle
    total = memory["total"] + p["ki"] * PERIOD * error
    torque = -(p["kp"] * error - p["kd"] * rate + total)
    limited = jnp.clip(torque, -0.04, 0.04)
    return limited, {"total": jnp.where(limited == torque, total, memory["total"])}


def gyroscope(q, v, t, p):
    return q[0], v[0]


def rounded(measured, memory, t, p):
    torque, memory = motor(measured, memory, t, p)
    return 1e-4 * jnp.round(torque / 1e-4), memory


ways = {"memory": {"total": 0.0}, "measure": gyroscope, "delay": "delay", "longest_delay": 3.0}
loop = jm.controlled(system, jm.Controller(rounded, PERIOD, name="motor", **ways))

# %% [markdown]
# ## A turn of thirty degrees
#
# Steps end at the times of the computer and of the motor, so that one step between two of them is exact here: between
# them all torques are constant. What the controller gives out and what it remembers are in the solution, by name.

# %%
ts = np.linspace(0.0, 120.0, 481)
steps = jm.FixedSteps(per_save=1)
start = np.zeros(2), np.zeros(2)
sol = jm.simulate(loop, *start, ts, params | {"delay": 0.1}, steps=steps)
print(f"after two minutes {np.degrees(sol['satellite'][-1]):.3f} degrees")
print(
    f"largest torque {1e3 * np.abs(sol['motor']).max():.1f} mN m, samples {int(sol['motor.sample'][-1]) + 1}"
)

momentum = params["body"] * sol["satellite.rate"] + params["wheel"] * (
    sol["satellite.rate"] + sol["wheel.rate"]
)
assert np.abs(momentum).max() < 1e-12  # nothing acts from outside
assert abs(np.degrees(sol["satellite"][-1]) - 30.0) < 0.05

fig, (top, bottom) = plt.subplots(2, 1, figsize=(8, 5), sharex=True, layout="constrained")
top.plot(ts, np.degrees(sol["satellite"]))
top.set(ylabel="satellite [deg]")
bottom.step(ts, 1e3 * sol["motor"], where="post")
bottom.set(xlabel="t [s]", ylabel="motor [mN m]")
plt.show()

# %% [markdown]
# ## The longest delay
#
# Without limits and an integral part the loop is linear, and its map from one sample to the next has eigenvalues. Where
# one of them leaves the unit circle, the loop becomes unstable. A batch of runs, each with a delay of its own, finds the
# same limit.


# %%
def linear(measured, memory, t, p):
    return -(p["kp"] * (0.0 - measured[0]) - p["kd"] * measured[1]), memory


ways = {"measure": gyroscope, "delay": "delay", "longest_delay": 3.0}
plain = jm.controlled(system, jm.Controller(linear, PERIOD, name="motor", **ways))
delays = np.linspace(0.5, 3.0, 51)


def growth(delay):
    """The energy of the satellite late in a run, relative to that before."""
    ts = np.linspace(0.0, 400.0, 201)
    sol = jm.simulate(plain, [0.01, 0.0], [0.0, 0.0], ts, params | {"delay": delay}, steps=steps)
    size = sol["satellite"] ** 2 + sol["satellite.rate"] ** 2
    return size[150:].max() / size[50:100].max()


stable = np.asarray(jax.jit(jax.vmap(growth))(delays)) < 1.0


def radius(delay):
    """The largest eigenvalue of the map of angle, rate and the last torques, from sample to sample."""
    whole, part = divmod(delay, PERIOD)
    held = round(whole)
    gain = 1.0 / params["body"]  # of the wheel's torque on the satellite
    A = np.zeros((3 + held, 3 + held))
    A[:2, :2] = [[1.0, PERIOD], [0.0, 1.0]]
    rest = PERIOD - part
    late, early = [gain * rest**2 / 2, gain * rest], [gain * PERIOD**2 / 2, gain * PERIOD]
    new = np.array([-params["kp"], -params["kd"]])
    inputs = np.zeros((2 + held, 2 + len(A) - 2))  # the torques u[k], u[k-1], ... from the state
    inputs[0, :2] = new
    for k in range(1, 2 + held):
        inputs[k, 1 + k] = 1.0
    A[:2] += np.outer(late, inputs[held]) + np.outer(np.subtract(early, late), inputs[held + 1])
    A[2:] = inputs[: 1 + held]
    return np.abs(np.linalg.eigvals(A)).max()


exact = np.array([radius(delay) < 1.0 for delay in delays])
print(
    f"longest stable delay {delays[stable].max():.2f} s, by eigenvalues {delays[exact].max():.2f} s"
)
assert abs(delays[stable].max() - delays[exact].max()) < 0.051

# %% [markdown]
# ## A gain with a gradient
#
# Derivatives go through all samples. The rounding of the torques has none, so the controller that is tuned does not
# round.


# %%
smooth = jm.controlled(
    system, jm.Controller(motor, PERIOD, memory={"total": 0.0}, measure=gyroscope, delay=0.1)
)


@jax.jit
def error(kd):
    sol = jm.simulate(smooth, *start, ts[:161], params | {"kd": kd}, steps=steps)
    return jnp.mean((sol["satellite"] - params["target"]) ** 2)


slope = jax.grad(error)(0.45)
difference = (error(0.45 + 1e-5) - error(0.45 - 1e-5)) / 2e-5
print(f"slope of the mean square error {slope:.6f}, by differences {difference:.6f}")
assert abs(slope - difference) < 1e-5 * abs(slope)
