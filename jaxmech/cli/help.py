"""What the commands say of themselves in `--help`."""

ABOUT = """\
Constrained mechanics in batches: Monte Carlo studies and fits from a configuration file.

  jaxmech ensemble configs/double_pendulum.toml    compute, or continue what was interrupted
  jaxmech fit configs/fit_pendulum.toml            parameters from recordings, with their report
  jaxmech plot runs/double_pendulum                draw the pictures of a run again
  jaxmech verify runs/double_pendulum              look for damaged files
  jaxmech models                                   list the ready models
  jaxmech models chain                             one model: sketch, parameters, start variables
  jaxmech check my_robot.py:arm                    what to know before trusting a system
  jaxmech compare four_bars                        all laws of motion at one state
  jaxmech bench                                    speed against other ways, in a clone
  jaxmech info                                     versions and devices
"""
ENSEMBLE = """\
Run a Monte Carlo study, or continue it where it was interrupted (even by kill -9): the results have
the same bits either way, whatever the chunk. The run folder holds `results.zarr` (read it with
xarray.open_zarr), `config.toml`, `environment.json`, `summary.json`, `summary.txt` and `pictures/`.
"""
VERIFY = """\
Compare every file of a run folder with the digest that was stored with it, name what is damaged,
and change nothing. `jaxmech ensemble` computes damaged blocks again, to the same bits.

exit code: 0 as it was written, finished or not; 1 damaged; 2 no run folder, or not to be judged
"""
FIT = """\
Fit the parameters of a model to recordings in a .npz or .csv file, or go on where an interrupted
fit was. With candidates, cross-validation inside the recordings to fit chooses one of them; the
validation recordings are only looked at. The run folder holds `report.md`, `report.txt`, `fit.npz`,
`config.toml`, `environment.json` and `pictures/`.
"""
BENCH = """\
Measure the speed of batches against other ways to the same trajectories, over the size of the batch
and the length of a chain, and the price of gradients. The run folder holds `speed.md`,
`speed.json`, `speed.png` and `scaling.png`; what is measured until Ctrl-C is kept. The benchmark is
the folder `experiments/speed` of a clone. MuJoCo and diffrax take part where they are installed:
pip install -e '.[bench]'
"""
CHECK = """\
Say what a person should know before trusting a system: degrees of freedom, redundant and
contradictory constraints by name, singular poses and masses, whether the start is consistent and
what would make it so, functions or derivatives that are not numbers, coordinates that nothing acts
on, parameters that nothing depends on, gradients against differences, and whether batches run as
lanes. Every finding comes with what to do about it.

SYSTEM is a ready model, or path/file.py:attribute, where the attribute is a Model, a System, or a
function that returns one. A Model knows its state; beside a System the file may hold `q0`, `v0` (at
rest), `t0` (0) and `params` (None). Without `q0` a state is looked for with `assemble` and printed;
parameters that are not given either are then numbers around 1.

exit code: 0 nothing serious; 1 something makes results wrong; 2 bad input
"""
COMPARE = """\
All laws of motion at one state of a system: how far their accelerations, constraint forces and
multipliers are apart, how well posed each is, and what it costs. SYSTEM is as for `check`.
"""
EXAMPLE = """\
example
  model = "double_pendulum"                  # or "path/file.py:system", seen from this file
  size = 4096
  [times]
  end = 10.0
  saves = 201
  [method]
  substeps = 25                              # the step is 10 s / 200 / 25 = 2 ms
  [start]
  theta1 = { distribution = "uniform", low = -3.0, high = 3.0 }
  omega1 = 0.5                               # a plain number is a fixed value
  [parameters]
  m1 = { distribution = "normal", sd = 0.02, relative = true }    # 2 % around the model's value

exit code
  0 done; 1 more failed trajectories than `failed_allowed`; 2 bad input, or a file or output that
  cannot be read or written; 130 interrupted

keys of a configuration
"""
FIT_EXAMPLE = """\
example
  model = "fit_pendulum.py:pendulum"         # an Identifiable in a file beside this one
  [data]
  file = "fit_pendulum.csv"
  time = "t [s]"
  observed = ["theta [rad]"]                 # the motion begins there too
  v0 = ["omega [rad/s]"]
  recording = "swing"                        # a column that tells recordings apart
  validation = ["5", "6"]
  [parameters]
  free = ["gravity", "viscous"]              # else all of the model
  bounds = { viscous = [0, inf] }
  [[candidates]]                             # the recordings choose one of several
  name = "viscous"
  model_options = { law = "viscous" }

exit code
  0 done; 1 not converged, or a recording cannot be simulated; 2 bad input, or a file or output that
  cannot be read or written; 130 interrupted

keys of a configuration
"""
