"""The texts of `--help`."""

ABOUT = """\
Constrained mechanics in batches: Monte Carlo studies and fits from a configuration file.

  jaxmech ensemble configs/double_pendulum.toml    run a study, or continue an interrupted run
  jaxmech failure study.toml                       the probability of a rare failure
  jaxmech fit configs/fit_pendulum.toml            fit parameters to recordings, with a report
  jaxmech check my_robot.py:arm                    check a system before trusting it
  jaxmech COMMAND --help                           what a command does, with all keys of its files
"""
ENSEMBLE = """\
Run a Monte Carlo study, or continue it where it was interrupted (even by kill -9). The results are
bit-identical either way, for any chunk. The run folder holds `results.zarr` (read it with
xarray.open_zarr), `config.toml`, `environment.json`, `summary.json`, `summary.txt` and `pictures/`.

--blocks 0:100 computes a part of a study. Other processes may compute other parts in the same
folder, as in a job array; the command without --blocks then completes the study. With --cluster,
the workers of a Dask cluster compute it. SIGTERM stops after the current block.
"""
FAILURE = """\
Compute the probability that a motion fails, as the table [failure] of a study says, from thousands
of trajectories where crude Monte Carlo would need billions, or continue where it was interrupted.
The keys of the table are listed by `jaxmech ensemble --help`. The run folder, by default
runs/<name of CONFIG>_failure, holds `failure.txt`, `failure.json`, `design_points.npz` with the
most probable failures, `calls/` with every batch, and `pictures/`.

  [failure]
  of = "swing"             # an observed quantity, a coordinate, or an event
  above = 0.52

exit code: 0 done; 1 with warnings; 2 bad input
"""
VERIFY = """\
Compare every file of a run folder with its stored digest, and list damaged files without changing
anything. `jaxmech ensemble` recomputes damaged blocks, with bit-identical results.

exit code: 0 undamaged, finished or not; 1 damaged; 2 no run folder, or one without digests
"""
REPLAY = """\
Recompute one trajectory of a study alone, from the seed and its number. Print its status, when and
where it failed, the values drawn for it, and whether it is bit-identical to the stored one. --out
draws it, and animates it if the model has a geometry. The Python files in the run folder are not
executed: if the model is a file, name the configuration of the run, --config CONFIG.

exit code: 0 as stored, or not stored; 1 different from what is stored; 2 bad input
"""
REPORT = """\
Write one self-contained page about a study, a probability of failure or a fit: numbers with their
intervals, tables, pictures and configuration; of a study also animated trajectories, and failures,
each with the command that replays it; of a probability of failure its design points in motion. The
Python files in the run folder are not executed: a model in a file is animated only with --config
CONFIG.
"""
COMPARE_RUNS = """\
List the differences between two studies: keys of the configuration, versions and devices, every
statistic that has an interval with the interval of the difference, and stored arrays bit by bit. A
star marks a difference whose interval does not contain zero.
"""
FIT = """\
Fit the parameters of a model to recordings in a .npz or .csv file, or continue an interrupted fit.
With candidates, cross-validation within the fitted recordings chooses one of them; the validation
recordings are used for the report alone. The run folder holds `report.md`, `report.txt`, `fit.npz`,
`config.toml`, `environment.json` and `pictures/`.
"""
NEW = """\
Write a study into the folder NAME: model.py with a system, study.toml with what is drawn, observed
and stored, and README.md with the commands. It runs as it is:

  jaxmech new swing
  cd swing
  jaxmech ensemble study.toml --out runs/first"""

SCHEMA = """\
Print the JSON Schema of a kind of configuration: every key with its description, type, limits and
default, and the names of all methods, distributions and statistics. Editors complete and check keys
by it. With Even Better TOML or taplo, write it next to the configuration,

  jaxmech schema study > study.schema.json

and name it in the first line of the configuration:

  #:schema ./study.schema.json
"""
DOCTOR = """\
Examine this installation: versions, devices and how batches run on each, precision, where native
code is stored, free disk, and which extras are installed; then compute a few small motions, single,
in batches and with gradients, and compare them with what is known of them.

exit code: 0 all is well; 1 a requirement or a self-test fails; 2 a release of jax that is known to
give wrong numbers
"""
BENCH = """\
Compare the speed of batches with other methods for the same trajectories, on every device, over the
batch size and the length of a chain, and measure the cost of gradients. The run folder holds
`speed.md`, `speed.json`, `speed.png` and `scaling.png`; Ctrl-C keeps the measurements up to then.
The benchmark is the folder `experiments/speed` of a clone. MuJoCo and diffrax are included if they
are installed: pip install -e '.[bench]'

compare two machines:  jaxmech bench --compare runs/here/speed.json runs/there/speed.json
"""
CHECK = """\
Check a system before trusting it: degrees of freedom, redundant and contradictory constraints by
name, singular poses and masses, whether the initial state is consistent and how to make it so,
functions or derivatives that are non-finite, coordinates that nothing acts on, unused parameters,
gradients against finite differences, and whether batches are compiled to native code. Every finding
comes with a remedy.

SYSTEM is a ready model, an MJCF or URDF file, or path/file.py:attribute, where the attribute is a
System, a Model, a Mechanism, a Robot, or a function that returns one. A Model has a state, and the
coordinates of a Mechanism are zero unless its file has `q0` and `v0`; for a System, the file may
define `q0`, `v0` (at rest), `t0` (0) and `params` (None). Without `q0`, a state is found by
`assemble` and printed; missing parameters are then set to numbers around 1.

exit code: 0 nothing serious; 1 something makes results wrong; 2 bad input
"""
AUDIT = """\
Examine an MJCF or URDF file: inertias that no body can have, degrees of freedom, redundant loops by
name, keyframes that do not close the loops, what has no counterpart in hard constraints, and how
far the soft loops, limits and friction of MuJoCo deviate from the rigid motion, from the first
keyframe or the reference pose, without contacts. --out draws the latter. It needs pip install
mujoco.

exit code: 0 nothing serious; 1 something in the file is wrong; 2 bad input
"""
COMPARE = """\
Compare all laws of motion at one state of a system: the differences of their accelerations,
constraint forces and multipliers, their condition numbers and their costs. SYSTEM is as for
`check`.
"""
MODES = """\
Find the equilibrium near the state of a system (with --steady: the steady motion); if there is
none, the one of lowest energy found from random starts. Print its reactions and stability, and the
eigenvalues, frequencies [Hz] and damping ratios of small deviations from it. --out draws the
eigenvalues and the shapes of the modes, and animates the modes of a model with a geometry. SYSTEM
is as for `check`.
"""
EQUILIBRIA = """\
Find the equilibria of a system from random starts around its state, and print where they are,
whether they are stable, their energy and how many starts led to each. The list is probably complete
only if each of them attracts many starts. --out draws those of a model with a geometry. SYSTEM is
as for `check`.
"""
EXAMPLE = """\
example
  model = "double_pendulum"                  # or "path/file.py:system", relative to this file
  size = 4096
  [times]
  end = 10.0
  saves = 201
  [steps]
  per_save = 25                              # the step is 10 s / 200 / 25 = 2 ms
  [start]
  theta1 = { distribution = "uniform", low = -3.0, high = 3.0 }
  omega1 = 0.5                               # a plain number is a fixed value
  [parameters]
  m1 = { distribution = "normal", sd = 0.02, relative = true }    # 2 % around the model's value

exit code
  0 done; 1 more failed trajectories than `failed_allowed`; 2 bad input, or a file or output that
  cannot be read or written; 130 interrupted; 143 stopped by SIGTERM

keys of a configuration
"""
FIT_EXAMPLE = """\
example
  model = "fit_pendulum.py:pendulum"         # an Identifiable in a file next to this one
  [data]
  file = "fit_pendulum.csv"
  time = "t [s]"
  observed = ["theta [rad]"]                 # also the initial coordinates
  v0 = ["omega [rad/s]"]
  recording = "swing"                        # the column that names the recording
  validation = ["5", "6"]
  [parameters]
  free = ["gravity", "viscous"]              # by default all of the model
  bounds = { viscous = [0, inf] }
  [[candidates]]                             # cross-validation chooses one
  name = "viscous"
  model_options = { law = "viscous" }

exit code
  0 done; 1 not converged, or a recording cannot be simulated; 2 bad input, or a file or output that
  cannot be read or written; 130 interrupted

keys of a configuration
"""
